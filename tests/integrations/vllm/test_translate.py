"""vLLM's cache configuration becomes ours: recorded ones, and the installed vLLM's."""

import dataclasses
import importlib.util
import json
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kvcellar.attention.hybrid import HybridRules
from kvcellar.errors import ConfigError, IncompatibleError
from kvcellar.integrations.vllm.translate import (
    cacheable_group_ids,
    layer_payload_bytes,
    layout_from_kv_cache_config,
    refuse_unsupported,
)
from kvcellar.layout.groups import AttentionKind, CacheLayout
from kvcellar.layout.sizes import BlockSizes, GroupUnits, resolve_block_sizes

DATA = Path(__file__).parents[2] / "data"
MODELS = sorted(path.stem for path in DATA.glob("*.json"))
FULL, WINDOW = AttentionKind.FULL, AttentionKind.WINDOW
CHUNKED, STATE = AttentionKind.CHUNKED, AttentionKind.STATE


def spec_class(names: list[str]) -> type[SimpleNamespace]:
    """A class of that name, with bases of the other names, like the recorded one's."""
    base: type[SimpleNamespace] = SimpleNamespace
    for name in reversed(names):
        base = type(name, (base,), {})
    return base


def make_spec(name: str, block_size: int, **fields: Any) -> Any:
    """One layer's spec of the class ``name``, 100 bytes padded to 128."""
    values = {"page_size_bytes": 128, "unpadded_page_size_bytes": 100}
    values |= {"block_size": block_size, "prefix_cacheable": True}
    return spec_class([name, "KVCacheSpec"])(**(values | fields))


def full_spec(block_size: int, **fields: Any) -> Any:
    return make_spec("FullAttentionSpec", block_size, **fields)


def window_spec(block_size: int, window: int, **fields: Any) -> Any:
    return make_spec("SlidingWindowSpec", block_size, sliding_window=window, **fields)


def local_spec(block_size: int, span: int) -> Any:
    name = "ChunkedLocalAttentionSpec"
    return make_spec(name, block_size, attention_chunk_size=span)


def ring_spec(block_size: int) -> Any:
    return make_spec("CircularBufferSpec", block_size, prefix_cacheable=False)


def state_spec(block_size: int, **fields: Any) -> Any:
    values = {"mamba_cache_mode": "align", "state_content_size_bytes": 70}
    return make_spec("MambaSpec", block_size, **(values | fields))


def make_config(*specs: Any, **fields: Any) -> Any:
    """One layer per group, one tensor per layer; sizes are left unresolved."""
    groups = [
        SimpleNamespace(layer_names=[f"layer{i}"], kv_cache_spec=spec)
        for i, spec in enumerate(specs)
    ]
    tensors = [SimpleNamespace(layers=[f"layer{i}"]) for i in range(len(specs))]
    return SimpleNamespace(
        **({"kv_cache_groups": groups, "kv_cache_tensors": tensors} | fields)
    )


def replay(model: str) -> Any:
    """A recorded configuration as objects with the recorded attributes."""
    recorded = json.loads((DATA / f"{model}.json").read_text())

    def spec(number: int) -> Any:
        fields = dict(recorded["specs"][number])
        made = spec_class(fields.pop("classes"))(**fields)
        if "kv_cache_specs" in fields:
            inner = fields["kv_cache_specs"].items()
            made.kv_cache_specs = {name: spec(n) for name, n in inner}
        return made

    groups = [
        SimpleNamespace(**(group | {"kv_cache_spec": spec(group["kv_cache_spec"])}))
        for group in recorded["kv_cache_groups"]
    ]
    tensors = [SimpleNamespace(**tensor) for tensor in recorded["kv_cache_tensors"]]
    scalars = {k: v for k, v in recorded.items() if k not in ("specs",)}
    return SimpleNamespace(
        **(scalars | {"kv_cache_groups": groups, "kv_cache_tensors": tensors})
    )


def summary(
    layout: CacheLayout,
) -> list[tuple[AttentionKind, int, int | None, int, int]]:
    """Kind, block, span, layers and payload of each group."""
    return [
        (g.kind, g.tokens_per_block, g.span_tokens, g.num_layers, g.payload_bytes)
        for g in layout.groups
    ]


def units(layout: CacheLayout) -> tuple[int, int, int, int]:
    return (
        layout.hash_block_tokens,
        layout.alignment_tokens,
        layout.scheduler_block_tokens,
        layout.chunk_tokens,
    )


# Recorded models ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "expected_units", "expected_groups"),
    [
        ("tiny_llama", (32, 32, 32, 32), [(FULL, 32, None, 2, 32768)]),
        (
            "tiny_gemma3",
            (16, 16, 16, 16),
            [(WINDOW, 16, 128, 1, 8192)] * 5 + [(FULL, 16, None, 1, 8192)],
        ),
        (
            "tiny_llama4",
            (16, 16, 16, 16),
            [(CHUNKED, 16, 64, 1, 8192)] * 3 + [(FULL, 16, None, 1, 8192)],
        ),
        (
            "tiny_qwen3_next",
            (256, 256, 256, 256),
            [(STATE, 256, None, 1, 68608)] * 3 + [(FULL, 256, None, 1, 131072)],
        ),
        (
            "gemma3_27b",
            (16, 16, 16, 16),
            [(WINDOW, 16, 1024, 9, 9 * 131072)] * 4
            + [(WINDOW, 16, 1024, 8, 8 * 131072)] * 2
            + [(FULL, 16, None, 10, 10 * 131072)],
        ),
        (
            "gpt_oss_20b",
            (16, 16, 16, 16),
            [(WINDOW, 16, 128, 12, 393216), (FULL, 16, None, 12, 393216)],
        ),
        (
            "deepseek_v4_flash",
            (4, 256, 256, 256),
            [
                (WINDOW, 64, 128, 22, 22 * 64 * 584),
                (WINDOW, 64, 128, 21, 21 * 64 * 584),
                (FULL, 256, None, 62, 20 * 1168 + 21 * 37376 + 21 * 8448),
                (WINDOW, 4, 8, 42, 21 * 32768 + 21 * 8192),
                (WINDOW, 8, 128, 20, 20 * 32768),
            ],
        ),
    ],
)
def test_recorded_models(
    model: str, expected_units: tuple[int, ...], expected_groups: list[Any]
) -> None:
    """Kinds, spans, layers, unpadded bytes and units of real models."""
    layout = layout_from_kv_cache_config(replay(model))
    assert expected_groups == summary(layout)
    assert expected_units == units(layout)


@pytest.mark.parametrize("model", MODELS)
def test_units_are_the_same_when_worked_out(model: str) -> None:
    """Without the engine's resolved sizes the same ones follow from the groups."""
    config = replay(model)
    resolved = units(layout_from_kv_cache_config(config))
    config.hash_block_size = config.cache_hit_alignment_tokens = None
    assert resolved == units(layout_from_kv_cache_config(config))


@pytest.mark.parametrize("model", MODELS)
def test_bytes_fit_the_tensors(model: str) -> None:
    """Padded bytes times blocks never exceed the allocation they lie in."""
    config = replay(model)
    size = config.kv_cache_tensors[0].size
    for group in layout_from_kv_cache_config(config).groups:
        assert group.payload_bytes <= group.padded_bytes <= size // config.num_blocks


def test_deepseek_v4_checkpoint_bytes() -> None:
    """One DeepSeek-V4 checkpoint is 22 blocks and 14.7 MiB, a chunk 0.94 MiB."""
    layout = layout_from_kv_cache_config(replay("deepseek_v4_flash"))
    checkpoint = HybridRules(layout).checkpoint_blocks(32768)
    assert [2, 2, 2, 16] == [len(blocks) for _, blocks in checkpoint]
    sizes = [layout.cell_bytes(p) * len(blocks) for p, blocks in checkpoint]
    assert 15_420_416 == sum(sizes)
    assert 985_664 == layout.cell_bytes(2)


def test_the_schedulers_shortened_copy_is_refused_without_bytes() -> None:
    """The engine shows its scheduler one spec per group: bytes are not guessed."""
    config = replay("deepseek_v4_flash")
    exact = layout_from_kv_cache_config(config)
    for group in config.kv_cache_groups:
        wrapped = getattr(group.kv_cache_spec, "kv_cache_specs", None)
        if wrapped is not None:
            group.kv_cache_spec = next(iter(wrapped.values()))
    with pytest.raises(IncompatibleError, match="pass the workers' payload_bytes"):
        layout_from_kv_cache_config(config)
    payloads = {g.group_id: g.payload_bytes for g in exact.groups}
    found = layout_from_kv_cache_config(config, payload_bytes_by_group=payloads)
    assert summary(exact) == summary(found)
    assert units(exact) == units(found)


# One rule at a time ------------------------------------------------------------------


def test_given_units_win() -> None:
    """Given units override the configuration's, and those what we work out."""
    config = make_config(full_spec(32), window_spec(16, 64))
    assert (16, 32, 32, 32) == units(layout_from_kv_cache_config(config))
    config.hash_block_size, config.cache_hit_alignment_tokens = 8, 64
    assert (8, 64, 32, 64) == units(layout_from_kv_cache_config(config))
    given_units = layout_from_kv_cache_config(
        config,
        hash_block_tokens=4,
        alignment_tokens=16,
        scheduler_block_tokens=128,
        chunk_tokens=96,
    )
    assert (4, 16, 128, 96) == units(given_units)


def test_a_given_hash_alone_is_a_match_unit() -> None:
    """The alignment that is still missing is worked out beside the given hash."""
    config = make_config(full_spec(32), window_spec(16, 64))
    layout = layout_from_kv_cache_config(config, hash_block_tokens=8)
    assert (8, 32, 32, 32) == units(layout)


def test_scratch_replicas_and_untransferred_groups_are_left_out() -> None:
    """Groups keep the engine's ids; those that cannot be hit have no place."""
    config = make_config(ring_spec(8), full_spec(32), full_spec(32), window_spec(64, 9))
    config.kv_cache_groups[1].enable_kv_transfer = False
    assert (2, 3) == cacheable_group_ids(config)
    layout = layout_from_kv_cache_config(config)
    assert [2, 3] == [g.group_id for g in layout.groups]


def test_layers_without_a_tensor_hold_no_bytes() -> None:
    """Layers that share another's cache, or live on another rank, are not counted."""
    config = make_config(full_spec(16))
    config.kv_cache_groups[0].layer_names = ["layer0", "shares_layer0"]
    layout = layout_from_kv_cache_config(config)
    assert [(FULL, 16, None, 1, 100)] == summary(layout)
    assert 128 == layout.groups[0].padded_bytes


def test_bytes_of_one_layer() -> None:
    """A layer's payload is its own spec's, wrapped or shared; a state's is its state."""
    wrapped = {"a": full_spec(16), "b": full_spec(16, unpadded_page_size_bytes=90)}
    spec = make_spec("UniformTypeKVCacheSpecs", 16, kv_cache_specs=wrapped)
    assert [100, 90] == [layer_payload_bytes(spec, name) for name in "ab"]
    assert 100 == layer_payload_bytes(full_spec(16), "any")
    assert 70 == layer_payload_bytes(state_spec(16), "any")


def test_group_of_another_rank_is_refused() -> None:
    """A rank that holds none of a group's layers has no bytes to keep for it."""
    config = make_config(full_spec(16), window_spec(16, 64))
    config.kv_cache_groups[1].layer_names = []
    with pytest.raises(IncompatibleError, match="group 1 holds no bytes on this rank"):
        layout_from_kv_cache_config(config)


def test_windowed_full_attention_keeps_everything() -> None:
    """With the hybrid manager off, windows are cached as full attention: no span."""
    config = make_config(full_spec(16, sliding_window=128))
    assert [(FULL, 16, None, 1, 100)] == summary(layout_from_kv_cache_config(config))


def test_a_plugins_subclass_reads_as_its_base() -> None:
    """A registered class of someone else is what it extends."""
    spec = spec_class(["TheirSpec", "SlidingWindowSpec"])(**vars(window_spec(16, 64)))
    found = layout_from_kv_cache_config(make_config(full_spec(16), spec))
    assert (WINDOW, 64) == (found.groups[1].kind, found.groups[1].span_tokens)


@pytest.mark.parametrize(
    "names",
    [
        ["NewSpec"],
        ["CrossAttentionSpec", "AttentionSpec"],
        ["EncoderOnlyAttentionSpec"],
        ["RSWASpec", "FullAttentionSpec"],
    ],
)
def test_unknown_kinds_are_refused_by_name(names: list[str]) -> None:
    """Group, class and what is supported; nothing is guessed from a base in common."""
    spec = spec_class(names)(**vars(full_spec(16)))
    with pytest.raises(IncompatibleError) as refusal:
        layout_from_kv_cache_config(make_config(full_spec(16), spec))
    text = str(refusal.value)
    assert f"group 1 is a {names[0]}" in text
    assert "ChunkedLocalAttentionSpec, FullAttentionSpec, MLAAttentionSpec" in text
    assert "RSWASpec" not in text.split("supported:")[1]


def test_mixed_kinds_in_one_group_are_refused() -> None:
    """A group of layers that remember differently has no one rule."""
    layers = {"layer0": full_spec(16), "x": window_spec(16, 64)}
    name = "UniformTypeKVCacheSpecs"
    spec = make_spec(name, 16, kv_cache_specs=layers)
    with pytest.raises(
        IncompatibleError, match=r"mixes .*: full\(None\), window\(64\)"
    ):
        layout_from_kv_cache_config(make_config(spec))


def test_host_resident_groups_are_refused() -> None:
    """A cacheable group in another pool cannot be read, and must not be skipped."""
    config = make_config(full_spec(16))
    config.kv_cache_groups[0].host_resident = True
    with pytest.raises(
        IncompatibleError, match="group 0 lives in the engine's own host"
    ):
        layout_from_kv_cache_config(config)


def test_tokens_kept_for_a_drafter_are_refused() -> None:
    """A window that retains more than it reads needs a rule of the next release."""
    spec = window_spec(16, 64, extra_retained_tokens=3)
    with pytest.raises(IncompatibleError, match="group 0 keeps 3 tokens below"):
        layout_from_kv_cache_config(make_config(spec))


def test_states_are_translated_but_not_served_yet() -> None:
    """Recurrent state is in the layout with its own bytes, and refused clearly."""
    layout = layout_from_kv_cache_config(make_config(full_spec(64), state_spec(64)))
    assert [(FULL, 64, None, 1, 100), (STATE, 64, None, 1, 70)] == summary(layout)
    with pytest.raises(IncompatibleError, match=r"recurrent state .* next release"):
        refuse_unsupported(layout)


def test_states_that_the_engine_does_not_cache_are_refused() -> None:
    """Without align mode no prefix of a recurrent model can be resumed at all."""
    config = make_config(full_spec(64), state_spec(64, mamba_cache_mode="none"))
    with pytest.raises(IncompatibleError, match="mamba_cache_mode='none'"):
        layout_from_kv_cache_config(config)


def test_draft_groups_are_marked_but_not_served_yet() -> None:
    """A drafter's group is in the layout and refused in one sentence."""
    config = make_config(full_spec(16), full_spec(16))
    config.kv_cache_groups[1].is_eagle_group = True
    layout = layout_from_kv_cache_config(config)
    assert [False, True] == [g.is_draft for g in layout.groups]
    with pytest.raises(IncompatibleError, match=r"group 1 serves .* next release"):
        refuse_unsupported(layout)


def test_context_parallelism_is_not_served_yet() -> None:
    """Blocks spread over ranks are refused; one rank is fine."""
    layout = layout_from_kv_cache_config(make_config(full_spec(16)))
    refuse_unsupported(layout)
    with pytest.raises(IncompatibleError, match="over 2 ranks"):
        refuse_unsupported(layout, num_context_ranks=2)


# Geometries that other offload code has failed on ------------------------------------


def held(*missing: tuple[int, int]) -> Any:
    return lambda position, block: (position, block) not in missing


def test_ring_group_below_the_hash_unit() -> None:
    """full(32) + window(64, 128) + ring(8): starts, and 256 tokens hit 192."""
    config = make_config(full_spec(32), window_spec(64, 128), ring_spec(8))
    layout = layout_from_kv_cache_config(config)
    rules = HybridRules(layout)
    assert (32, 64, 64, 64) == units(layout)
    assert [0, 1] == [g.group_id for g in layout.groups]
    assert 192 == rules.longest_hit(256, held())
    assert ((1, range(1, 3)),) == rules.checkpoint_blocks(192)


def test_scratch_group_does_not_fail_the_divisibility_check() -> None:
    """full(16) + ring(4) at hash 16: accepted, and only group 0 is kept."""
    layout = layout_from_kv_cache_config(make_config(full_spec(16), ring_spec(4)))
    assert (16, 16, 16, 16) == units(layout)
    assert [0] == [g.group_id for g in layout.groups]


def test_blocks_that_the_hash_does_not_divide() -> None:
    """full(24) + window(16) at hash 16: group, both numbers and what to change."""
    config = make_config(full_spec(24), window_spec(16, 64))
    with pytest.raises(
        ConfigError, match=r"=16 does not divide .* 24 .* group 0; use a"
    ):
        layout_from_kv_cache_config(config, hash_block_tokens=16)
    with pytest.raises(
        IncompatibleError, match=r"group 0 has blocks of 24 .* block of 16"
    ):
        layout_from_kv_cache_config(config, hash_block_tokens=16, alignment_tokens=48)


def test_live_window_group_does_not_pull_the_hit_to_zero() -> None:
    """full + 4 states + window + a live group of 4 tokens: 4000 tokens hit 3584."""
    config = make_config(
        full_spec(3584),
        *[state_spec(3584)] * 4,
        window_spec(64, 512),
        window_spec(4, 4, prefix_cacheable=False),
    )
    layout = layout_from_kv_cache_config(config)
    assert 64 == layout.hash_block_tokens
    assert 6 == len(layout.groups)
    assert 3584 == HybridRules(layout).longest_hit(4000, held())


def test_local_chunks_of_llama_4() -> None:
    """full(16) + local(16, 64): 192 needs no local block; 176 needs blocks 8 to 10."""
    layout = layout_from_kv_cache_config(make_config(full_spec(16), local_spec(16, 64)))
    rules = HybridRules(layout)
    assert 192 == rules.longest_hit(200, held())
    assert not rules.needs_checkpoint(192)
    assert 176 == rules.longest_hit(200, held((0, 11)))
    assert ((1, range(8, 11)),) == rules.checkpoint_blocks(176)


def test_two_head_sizes_stay_two_groups() -> None:
    """full(32) + window(16, 1024) with equal pages: two groups, hits at 32."""
    config = make_config(full_spec(32), window_spec(16, 1024))
    layout = layout_from_kv_cache_config(config)
    assert [FULL, WINDOW] == [g.kind for g in layout.groups]
    assert (16, 32, 32, 32) == units(layout)


def test_unequal_padding_leaves_the_payload_alone() -> None:
    """Pages of 576 and 584 bytes with different padding: only the payload is copied."""
    layers = {
        "layer0": full_spec(16, unpadded_page_size_bytes=576, page_size_bytes=1024),
        "b": full_spec(16, unpadded_page_size_bytes=584, page_size_bytes=640),
    }
    spec = make_spec("UniformTypeKVCacheSpecs", 16, kv_cache_specs=layers)
    config = make_config(spec)
    config.kv_cache_groups[0].layer_names = list(layers)
    config.kv_cache_tensors.append(SimpleNamespace(layers=["b"]))
    group = layout_from_kv_cache_config(config).groups[0]
    assert (1160, 1664, 2) == (
        group.payload_bytes,
        group.padded_bytes,
        group.num_layers,
    )


def test_many_layers_are_counted_once() -> None:
    """78 layers of 9216 bytes are 78 * 9216, not multiplied by their tensors again."""
    config = make_config(full_spec(16, unpadded_page_size_bytes=9216))
    names = [f"layer{i}" for i in range(78)]
    config.kv_cache_groups[0].layer_names = config.kv_cache_tensors[0].layers = names
    assert 78 * 9216 == layout_from_kv_cache_config(config).groups[0].payload_bytes


# The installed vLLM ------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorder() -> ModuleType:
    """tests/data/record.py, or a visible skip where vLLM is missing."""
    pytest.importorskip("vllm")
    found = importlib.util.spec_from_file_location("record", DATA / "record.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.parametrize("model", MODELS)
def test_recorded_is_what_vllm_builds_now(recorder: ModuleType, model: str) -> None:
    """The recorded files equal what the installed vLLM plans, and read the same."""
    live = recorder.cache_config(model)
    recorded = json.loads((DATA / f"{model}.json").read_text())
    assert recorded == json.loads(json.dumps(recorder.to_json(live)))
    expected = layout_from_kv_cache_config(replay(model))
    assert expected == layout_from_kv_cache_config(live)


def test_scales_inside_the_cell_are_counted(recorder: ModuleType) -> None:
    """fp8 with a scale per token and head: 16 x 2 x 2 x (64 + 4) bytes, not 4096."""
    import torch

    spec = recorder.full(dtype=torch.uint8, state_content_bytes=2 * (64 + 4))
    layout = layout_from_kv_cache_config(make_config(spec))
    assert 4352 == layout.groups[0].payload_bytes


def test_kinds_agree_with_vllm(recorder: ModuleType) -> None:
    """Our reading of the class names is vLLM's own kind, for every recorded group."""
    from vllm.v1.kv_cache_interface import KVCacheSpecKind, get_kv_cache_spec_kind

    ours = {
        KVCacheSpecKind.FULL_ATTENTION: FULL,
        KVCacheSpecKind.MLA_ATTENTION: FULL,
        KVCacheSpecKind.SLIDING_WINDOW: WINDOW,
        KVCacheSpecKind.SLIDING_WINDOW_MLA: WINDOW,
        KVCacheSpecKind.CHUNKED_LOCAL_ATTENTION: CHUNKED,
        KVCacheSpecKind.MAMBA: STATE,
    }
    for model in MODELS:
        config = recorder.cache_config(model)
        expected = [
            ours[get_kv_cache_spec_kind(g.kv_cache_spec)]
            for g in config.kv_cache_groups
        ]
        found = layout_from_kv_cache_config(config)
        assert expected == [g.kind for g in found.groups]


BLOCKS = st.sampled_from((4, 8, 16, 24, 32, 64, 128, 256))
KINDS = st.sampled_from(("full", "window", "ring", "compressed", "align", "none"))
GROUPS = st.lists(st.tuples(KINDS, BLOCKS), min_size=1, max_size=5)


def vllm_spec(kind: str, block: int) -> Any:
    import torch
    from vllm.v1.kv_cache_interface import (
        CircularBufferSpec,
        FullAttentionSpec,
        MambaSpec,
        MLAAttentionSpec,
        SlidingWindowSpec,
    )

    heads = {"block_size": block, "num_kv_heads": 1, "head_size": 8}
    heads |= {"dtype": torch.bfloat16}
    if kind in ("align", "none"):
        shapes, dtypes = ((4, 4),), (torch.bfloat16,)
        return MambaSpec(
            block_size=block, shapes=shapes, dtypes=dtypes, mamba_cache_mode=kind
        )
    if kind == "window":
        return SlidingWindowSpec(**heads, sliding_window=20, dcp_sharded=False)
    if kind == "compressed":
        return MLAAttentionSpec(**heads, tokens_per_state=4)
    return {"full": FullAttentionSpec, "ring": CircularBufferSpec}[kind](**heads)


def our_units(kind: str, block: int) -> GroupUnits:
    return GroupUnits(
        block,
        is_sharded=kind in ("full", "ring", "compressed"),
        is_cacheable=kind != "ring",
        has_fine_lookup=kind not in ("window", "ring"),
        is_state=kind in ("align", "none"),
        is_aligned_state=kind == "align",
        compressions=(4,) if kind == "compressed" else (),
    )


def vllm_sizes(engine: Any, specs: list[Any]) -> BlockSizes | None:
    """What vLLM resolves, or None if it refuses."""
    from vllm.v1.core import kv_cache_utils as planning
    from vllm.v1.kv_cache_interface import KVCacheGroupSpec

    groups = [KVCacheGroupSpec([], spec) for spec in specs]
    config = SimpleNamespace(kv_cache_groups=groups)
    try:
        scheduler, hashed = planning.resolve_kv_cache_block_sizes(config, engine)
    except ValueError:
        return None
    alignment = planning.resolve_cache_hit_alignment_tokens(
        config, engine, scheduler, hashed
    )
    return BlockSizes(scheduler, hashed, alignment)


@settings(max_examples=400, deadline=None)
@given(
    GROUPS,
    st.none() | st.sampled_from((2, 4, 8, 16, 32)),
    st.sampled_from((1, 1, 2)),
    st.booleans(),
)
def test_sizes_equal_vllms(
    recorder: ModuleType,
    groups: list[tuple[str, int]],
    unit: int | None,
    ranks: int,
    has_prefix_caching: bool,
) -> None:
    """For random groups, units and ranks we resolve, or refuse, what vLLM does."""
    specs = [vllm_spec(kind, block) for kind, block in groups]
    engine = recorder.engine_config(
        groups[0][1],
        "LBHNC",
        prefix_match_unit=unit,
        enable_prefix_caching=has_prefix_caching,
    )
    engine.parallel_config.decode_context_parallel_size = ranks
    expected = vllm_sizes(engine, specs)
    found: BlockSizes | None
    try:
        found = resolve_block_sizes(
            [our_units(*group) for group in groups],
            prefix_match_unit=unit,
            num_context_ranks=ranks,
            has_prefix_caching=has_prefix_caching,
        )
    except ConfigError:
        found = None
    assert expected == found


@settings(max_examples=200, deadline=None)
@given(GROUPS)
def test_translated_units_equal_vllms(
    recorder: ModuleType, groups: list[tuple[str, int]]
) -> None:
    """From live specs without resolved sizes we arrive at vLLM's own."""
    kinds = {kind for kind, _ in groups}
    assume(kinds != {"ring"} and "none" not in kinds)
    specs = [vllm_spec(kind, block) for kind, block in groups]
    expected = vllm_sizes(recorder.engine_config(groups[0][1], "LBHNC"), specs)
    assume(expected is not None)
    assert expected is not None
    layout = layout_from_kv_cache_config(make_config(*specs))
    scheduler, hashed, alignment = dataclasses.astuple(expected)
    assert (hashed, alignment, scheduler) == units(layout)[:3]
