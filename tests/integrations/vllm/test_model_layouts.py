"""Layouts worked out without an engine equal those that vLLM plans for the same layers.

Our descriptions of the layers become vLLM's specs, vLLM's own code plans them, and the
result is translated as a running engine's would be. Whether the descriptions themselves
are right is checked against the oracle's layouts, which are made from specs by hand.
"""

import dataclasses
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcellar.errors import IncompatibleError
from kvcellar.integrations.vllm.compat import cache_planning, plan_ranks
from kvcellar.integrations.vllm.dead_state import compressor_states
from kvcellar.integrations.vllm.translate import layout_from_kv_cache_config
from kvcellar.layout.models import MODEL_NAMES, ModelLayout, model_layout
from kvcellar.layout.models.catalogue import CONFIGS
from kvcellar.layout.models.config import ModelConfig
from kvcellar.layout.models.families import model_layers
from kvcellar.layout.models.grouping import group_layers
from kvcellar.layout.models.layer import (
    AttentionCache,
    CacheForm,
    Layer,
    LayerCache,
    StateCache,
)

DATA = Path(__file__).parents[2] / "data"
MAX_TOKENS = 131072
IN_FLIGHT_TOKENS = 8192
BLOCK_OUTER, LAYER_OUTER = "BLHNC", "LBNHC"
NUM_BLOCKS = 8

DEEPSEEK_V41 = {
    "architectures": ["DeepseekV41ForCausalLM"],
    "text_config": {
        "num_hidden_layers": 40,
        "num_attention_heads": 64,
        "head_dim": 512,
        "index_head_dim": 128,
        "sliding_window": 128,
        "compress_ratios": [0, 0] + [2] * 18 + [1] * 20,
        "kv_source_layer_ids": [2, 8, 14, 20],
        "index_source_layer_ids": [2, 8, 14, 20],
    },
}

DEEPSEEK_V32 = {
    **CONFIGS["deepseek-v3"],
    "architectures": ["DeepseekV32ForCausalLM"],
    "index_topk": 2048,
    "index_head_dim": 128,
}

TENSOR_PARALLEL_CASES = [
    ("deepseek-v3", 8),
    ("deepseek-v4-flash", 4),
    ("gemma-3-27b", 2),
    ("gpt-oss-20b", 16),
    ("llama-4", 8),
    ("nemotron-h", 2),
    ("nemotron-h", 16),
    ("qwen3-next", 4),
]
PIPELINE_CASES = [
    ("deepseek-v3", 4),
    ("deepseek-v4-flash", 2),
    ("deepseek-v4-flash", 4),
    ("gemma-3-27b", 3),
    ("gpt-oss-20b", 2),
    ("nemotron-h", 2),
    ("qwen3-next", 5),
]
ORACLE_CASES: list[tuple[str, Any, dict[str, Any]]] = [
    # The oracle's latent blocks are FlashMLA's; on Hopper vLLM prefers another kernel.
    ("deepseek-v3", "deepseek-v3", {"block_tokens": 64}),
    ("deepseek-v4-flash", "deepseek-v4-flash", {}),
    ("deepseek-v4-flash-bf16", "deepseek-v4-flash", {"cache_dtype": "bfloat16"}),
    ("deepseek-v4.1", DEEPSEEK_V41, {}),
    ("gemma-3-27b", "gemma-3-27b", {}),
    ("gpt-oss-20b", "gpt-oss-20b", {}),
    ("llama-3.1-8b", "llama-3.1-8b", {}),
    ("llama-4", "llama-4", {}),
    ("nemotron-h", "nemotron-h", {}),
    ("qwen3-next", "qwen3-next", {}),
]


@pytest.fixture(scope="module")
def recorder() -> ModuleType:
    """tests/data/record.py with vLLM's specs registered; a skip without vLLM."""
    pytest.importorskip("vllm")
    from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs

    found = importlib.util.spec_from_file_location("record", DATA / "record.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    register_all_kvcache_specs(object())
    return module


def vllm_spec(cache: LayerCache, *, max_tp_shards: int | None = None) -> Any:
    """VLLM's spec of the same cache."""
    import torch
    from vllm.v1 import kv_cache_interface as vllm

    if isinstance(cache, StateCache):
        return vllm.MambaSpec(
            block_size=cache.block_tokens,
            shapes=cache.shapes,
            dtypes=tuple(getattr(torch, name) for name in cache.dtypes),
            page_size_padded=cache.page_padded_bytes,
            mamba_cache_mode="align",
            num_prefill_checkpoint_blocks=cache.num_checkpoint_blocks,
        )
    fields: dict[str, Any] = {
        "block_size": cache.block_tokens,
        "num_kv_heads": cache.num_heads,
        "head_size": cache.key_size,
        "head_size_v": cache.value_size,
        "dtype": getattr(torch, cache.dtype),
        "state_content_bytes": cache.record_bytes,
        "page_size_padded": cache.page_padded_bytes,
        "tokens_per_state": cache.tokens_per_state,
        "max_tp_shards": max_tp_shards,
    }
    if cache.form in (CacheForm.LATENT, CacheForm.LATENT_WINDOW):
        fields["alignment"] = cache.alignment_bytes
        fields["model_version"] = cache.model_version
    if cache.form is CacheForm.CHUNKED:
        fields["attention_chunk_size"] = cache.span_tokens
    elif cache.span_tokens is not None:
        fields["sliding_window"] = cache.span_tokens
    if cache.form is CacheForm.LATENT_WINDOW:
        fields["bounded_replay"] = cache.is_replayed
    classes = {
        CacheForm.FULL: vllm.FullAttentionSpec,
        CacheForm.LATENT: vllm.MLAAttentionSpec,
        CacheForm.WINDOW: vllm.SlidingWindowSpec,
        CacheForm.LATENT_WINDOW: vllm.SlidingWindowMLASpec,
        CacheForm.CHUNKED: vllm.ChunkedLocalAttentionSpec,
        CacheForm.RING: vllm.CircularBufferSpec,
    }
    return classes[cache.form](**fields)


def engine(recorder: ModuleType, layout: str, tensor_parallel: int = 1) -> Any:
    """What vLLM's planning reads of a VllmConfig."""
    made = recorder.engine_config(16, layout, mamba_cache_mode="align")
    made.cache_config.num_gpu_blocks_override = NUM_BLOCKS
    made.parallel_config.tensor_parallel_size = tensor_parallel
    made.model_config.max_model_len = MAX_TOKENS
    made.model_config.original_max_model_len = MAX_TOKENS
    made.max_in_flight_tokens = IN_FLIGHT_TOKENS
    made.num_prefill_lookahead_tokens = 0
    return made


def vllm_configs(
    recorder: ModuleType, found: ModelLayout, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, list[Any]]:
    """The engine, and what vLLM plans for one rank of each of the layout's stages."""
    from vllm.v1.core import kv_cache_utils as utils

    model = model_layers(ModelConfig(raw, found.name), found.options)
    # A pool of few blocks is too small for a long request, which matters only to serve.
    planning = cache_planning()
    monkeypatch.setattr(planning, "_check_enough_kv_cache_memory", lambda *_: None)
    shards = 1 if model.are_ranks_identical else None
    workers = [
        {
            layer.name: vllm_spec(layer.cache, max_tp_shards=shards)
            for layer in model.layers
            if stage.first_layer <= layer.index < stage.end_layer
        }
        for stage in found.stages
    ]
    made = engine(
        recorder,
        BLOCK_OUTER if model.is_block_outer else LAYER_OUTER,
        found.options.tensor_parallel,
    )
    configs = plan_ranks(made, workers)
    shared = utils.generate_scheduler_kv_cache_config(configs)
    made.cache_config.block_size = min(
        group.kv_cache_spec.block_size for group in shared.prefix_cacheable_groups
    )
    scheduler, hashed = utils.resolve_kv_cache_block_sizes(shared, made)
    alignment = utils.resolve_cache_hit_alignment_tokens(
        shared, made, scheduler, hashed
    )
    for config in configs:
        config.hash_block_size = hashed
        config.cache_hit_alignment_tokens = alignment
    return made, configs


def assert_equals_vllm(
    recorder: ModuleType, found: ModelLayout, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups, bytes, units, rows and blocks per request of every stage are vLLM's."""
    made, configs = vllm_configs(recorder, found, raw, monkeypatch)
    assert len(configs) == len(found.stages)
    for config, stage in zip(configs, found.stages, strict=True):
        assert layout_from_kv_cache_config(config) == stage.layout
        sizes = {tensor.size for tensor in config.kv_cache_tensors}
        assert sizes == {NUM_BLOCKS * stage.row_bytes}
        assert [
            (len(g.layer_names), g.kv_cache_spec.block_size)
            for g in config.kv_cache_groups
        ] == [(g.num_layers, g.tokens_per_block) for g in stage.groups_all]
        assert config.prefix_cacheable_group_ids == tuple(
            g.group_id for g in stage.groups_all if g.is_cacheable
        )
    assert configs[0].kv_tp_replicas == found.num_identical_ranks
    assert compressor_states(configs[0]) == found.compressor_ratios
    assert blocks_per_request(made, configs[0]) == found.blocks_per_request(
        MAX_TOKENS, IN_FLIGHT_TOKENS
    )


def blocks_per_request(made: Any, config: Any) -> int:
    """Blocks of the longest request, as vLLM counts them."""
    from vllm.v1.core import kv_cache_utils as planning

    share = planning.get_max_concurrency_for_kv_cache_config(made, config)
    return round(NUM_BLOCKS / share)


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_catalogue_equals_vllm(
    recorder: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every model of the catalogue is planned as vLLM plans its layers."""
    assert_equals_vllm(recorder, model_layout(name), CONFIGS[name], monkeypatch)


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_fp8_equals_vllm(
    recorder: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So is every model with its cache in 8 bits."""
    found = model_layout(name, cache_dtype="fp8")
    assert_equals_vllm(recorder, found, CONFIGS[name], monkeypatch)


@pytest.mark.parametrize("cache_dtype", ["auto", "fp8"])
@pytest.mark.parametrize("raw", [DEEPSEEK_V41, DEEPSEEK_V32], ids=["v4.1", "v3.2"])
def test_other_deepseeks_equal_vllm(
    recorder: ModuleType, raw: Any, cache_dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scratch groups, and indexers beside latent caches, are planned as vLLM does."""
    found = model_layout(raw, cache_dtype=cache_dtype)
    assert_equals_vllm(recorder, found, raw, monkeypatch)


@pytest.mark.parametrize(("name", "ranks"), TENSOR_PARALLEL_CASES)
def test_tensor_parallel_equals_vllm(
    recorder: ModuleType, name: str, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One rank's share is planned as vLLM does, and identical ranks are as declared."""
    found = model_layout(name, tensor_parallel=ranks)
    raw = CONFIGS[found.name]
    assert_equals_vllm(recorder, found, raw, monkeypatch)


@pytest.mark.parametrize(("name", "stages"), PIPELINE_CASES)
def test_pipeline_parallel_equals_vllm(
    recorder: ModuleType, name: str, stages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every stage's bytes are those of vLLM's worker of that stage."""
    found = model_layout(name, pipeline_parallel=stages)
    assert_equals_vllm(recorder, found, CONFIGS[name], monkeypatch)


@pytest.mark.parametrize("num_layers", [16, 43, 61, 62])
@pytest.mark.parametrize("num_stages", [1, 2, 3, 4, 8, 16])
def test_stages_hold_vllms_layers(
    recorder: ModuleType, num_layers: int, num_stages: int
) -> None:
    """Decoder layers are shared out among stages as vLLM does."""
    from vllm.distributed.utils import get_pp_indices

    from kvcellar.layout.models.stages import stage_bounds

    assert stage_bounds(num_layers, num_stages) == tuple(
        get_pp_indices(num_layers, stage, num_stages) for stage in range(num_stages)
    )


@pytest.mark.parametrize(
    ("oracle_name", "model", "options"), ORACLE_CASES, ids=lambda case: str(case)[:24]
)
def test_equals_the_oracles_layout(
    recorder: ModuleType, oracle_name: str, model: Any, options: dict[str, Any]
) -> None:
    """A layout from numbers equals the oracle's, which is made from vLLM's specs."""
    from kvcellar.testing.oracle.layouts import build

    planned = build(oracle_name, extra_config={}, is_small=False)
    found = model_layout(model, **options)
    assert layout_from_kv_cache_config(planned.worker_config) == found.layout
    num_blocks = planned.worker_config.num_blocks
    sizes = {tensor.size for tensor in planned.worker_config.kv_cache_tensors}
    assert sizes == {num_blocks * found.row_bytes}
    assert compressor_states(planned.worker_config) == found.compressor_ratios
    assert [
        g.kv_cache_spec.block_size for g in planned.worker_config.kv_cache_groups
    ] == [g.tokens_per_block for g in found.groups_all]


BLOCKS = st.sampled_from((16, 32, 48, 64))
SPANS = st.sampled_from((32, 100))
ALIGNMENT_BYTES = 96


def attention(form: CacheForm, **fields: Any) -> st.SearchStrategy[AttentionCache]:
    """Caches of one form."""
    chosen = {
        "form": st.just(form),
        "block_tokens": BLOCKS,
        "num_heads": st.sampled_from((1, 2, 3)),
        "key_size": st.sampled_from((8, 16)),
        "value_size": st.sampled_from((8, 16)),
        "dtype": st.sampled_from(("bfloat16", "uint8")),
    }
    return st.builds(AttentionCache, **(chosen | fields))


def latent(form: CacheForm, **fields: Any) -> st.SearchStrategy[AttentionCache]:
    """Caches of one vector per token."""
    own = {"num_heads": st.just(1), "value_size": st.just(0)}
    return attention(form, **(own | fields))


STATES = st.builds(
    StateCache,
    BLOCKS,
    st.sampled_from((((3, 8), (4, 8, 8)), ((2, 16), (1, 8, 8)))),
    st.just(("bfloat16", "float32")),
    num_checkpoint_blocks=st.sampled_from((0, 1)),
)
# Each latent window has one shape per span: vLLM itself merges specs of several.
LATENT_WINDOWS = latent(
    CacheForm.LATENT_WINDOW,
    block_tokens=st.just(16),
    key_size=st.just(8),
    dtype=st.just("float32"),
    span_tokens=SPANS,
    is_replayed=st.booleans(),
)
CACHES = st.one_of(
    attention(CacheForm.FULL),
    attention(CacheForm.WINDOW, span_tokens=SPANS),
    attention(CacheForm.CHUNKED, span_tokens=SPANS),
    latent(
        CacheForm.LATENT,
        tokens_per_state=st.sampled_from((1, 4)),
        record_bytes=st.sampled_from((None, 20)),
    ),
    LATENT_WINDOWS,
    latent(CacheForm.RING, block_tokens=st.just(8), dtype=st.just("float32")),
    STATES,
)


@st.composite
def stacks(draw: st.DrawFn) -> list[LayerCache]:
    """Caches of up to 40 layers in a pattern of up to five kinds."""
    kinds = draw(st.lists(CACHES, min_size=1, max_size=5))
    pattern = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=8))
    return (pattern * draw(st.integers(1, 5)))[: draw(st.integers(1, 40))]


def as_groups(planned: list[Any]) -> list[list[tuple[str, int, int]]]:
    """Name, block and page of every layer of every group that vLLM made."""
    planning = cache_planning()
    groups = []
    for group in planned:
        specs = [planning._get_per_layer_spec(group, n) for n in group.layer_names]
        pairs = zip(group.layer_names, specs, strict=True)
        groups.append([(n, s.block_size, s.page_size_bytes) for n, s in pairs])
    return groups


def plan_with_vllm(made: Any, layers: list[Layer]) -> list[Any] | None:
    """What vLLM makes of the layers; None where it cannot keep them apart as they are.

    Where pages cannot be made equal it drops windows if it can, which none of the known
    models comes to. Rings of several sizes in packed blocks it loses, or it stops at
    them with a ``StopIteration``.
    """
    planning = cache_planning()
    specs = {layer.name: vllm_spec(layer.cache) for layer in layers}
    refused: list[Exception] = []
    real = planning.unify_kv_cache_spec_page_size

    def noting(given: Any) -> Any:
        try:
            return real(given)
        except NotImplementedError as error:
            refused.append(error)
            raise

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(planning, "unify_kv_cache_spec_page_size", noting)
        try:
            groups: list[Any] = planning.get_kv_cache_groups(made, specs)
        except (NotImplementedError, StopIteration):
            return None
    kept = {name for group in groups for name in group.layer_names}
    return None if refused or kept != specs.keys() else groups


@settings(max_examples=400)
@given(stacks(), st.booleans())
def test_random_mixes_are_grouped_as_vllm_does(
    recorder: ModuleType, caches: list[LayerCache], is_block_outer: bool
) -> None:
    """Random layers get vLLM's groups, blocks and pages, or are refused as by it."""
    if is_block_outer:
        caches = [aligned(cache) for cache in caches]
    layers = [Layer(index, "attn", cache) for index, cache in enumerate(caches)]
    made = engine(recorder, BLOCK_OUTER if is_block_outer else LAYER_OUTER)
    expected = plan_with_vllm(made, layers)
    try:
        found = group_layers(layers, is_block_outer=is_block_outer)
    except IncompatibleError:
        assert expected is None
        return
    assert expected is not None
    assert as_groups(expected) == [
        [(x.name, x.cache.block_tokens, x.cache.page_bytes) for x in group]
        for group in found
    ]


def aligned(cache: LayerCache) -> LayerCache:
    """The same with its page aligned, where the form has that."""
    latent_forms = (CacheForm.LATENT, CacheForm.LATENT_WINDOW)
    if isinstance(cache, StateCache) or cache.form not in latent_forms:
        return cache
    return dataclasses.replace(cache, alignment_bytes=ALIGNMENT_BYTES)
