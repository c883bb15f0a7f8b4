"""Hash, alignment and scheduler units equal vLLM's on random groups."""

import dataclasses
import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kvcellar.errors import ConfigError
from kvcellar.integrations.vllm.translate import layout_from_kv_cache_config
from kvcellar.layout.sizes import BlockSizes, GroupUnits, resolve_block_sizes

DATA = Path(__file__).parents[2] / "data"
BLOCKS = st.sampled_from((4, 8, 16, 24, 32, 64, 128, 256))
KINDS = st.sampled_from(("full", "window", "ring", "compressed", "align", "none"))
GROUPS = st.lists(st.tuples(KINDS, BLOCKS), min_size=1, max_size=5)


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
    groups_of_one = [
        SimpleNamespace(layer_names=["layer"], kv_cache_spec=spec) for spec in specs
    ]
    config = SimpleNamespace(kv_cache_groups=groups_of_one, kv_cache_tensors=[])
    layout = layout_from_kv_cache_config(config)
    assert dataclasses.astuple(expected) == (
        layout.scheduler_block_tokens,
        layout.hash_block_tokens,
        layout.alignment_tokens,
    )
