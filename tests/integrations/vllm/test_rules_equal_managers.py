"""Our joint rules find the boundary that vLLM's own cache managers find.

Random layouts are built from vLLM's specs, random blocks are put into its real block
pool, and its real coordinator looks up a prompt. Alignment and chunk are equal here, so
both sides search the same boundaries.
"""

import math
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcellar.attention import reference
from kvcellar.attention.hybrid import HybridRules
from kvcellar.integrations.vllm.translate import layout_from_kv_cache_config

pytest.importorskip("vllm")

import torch
from vllm.v1.core.kv_cache_coordinator import get_kv_cache_coordinator
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import make_block_hash_with_group_id
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    CircularBufferSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    SlidingWindowSpec,
)

register_all_kvcache_specs(SimpleNamespace())

MOST_TOKENS = 1024
HEADS = {"num_kv_heads": 1, "head_size": 8, "dtype": torch.bfloat16}


def full(block: int) -> Any:
    return FullAttentionSpec(block_size=block, **HEADS)


def window(block: int, span: int) -> Any:
    return SlidingWindowSpec(block_size=block, sliding_window=span, **HEADS)


def local(block: int, num_blocks: int) -> Any:
    """A local chunk of whole blocks: vLLM rounds others down to one it never checks."""
    span = block * num_blocks
    return ChunkedLocalAttentionSpec(
        block_size=block, attention_chunk_size=span, **HEADS
    )


def state(block: int) -> Any:
    return MambaSpec(
        block_size=block,
        shapes=((4, 4),),
        dtypes=(torch.bfloat16,),
        mamba_cache_mode="align",
    )


def config_of(specs: list[Any]) -> Any:
    """A KVCacheConfig of one layer per group, its units worked out from the groups."""
    groups = [KVCacheGroupSpec([f"layer{i}"], spec) for i, spec in enumerate(specs)]
    return KVCacheConfig(num_blocks=2, kv_cache_tensors=[], kv_cache_groups=groups)


def coordinator_of(config: Any, layout: Any) -> Any:
    return get_kv_cache_coordinator(
        config,
        max_model_len=MOST_TOKENS,
        max_in_flight_tokens=MOST_TOKENS,
        use_eagle=False,
        enable_caching=True,
        enable_kv_cache_events=False,
        dcp_world_size=1,
        pcp_world_size=1,
        scheduler_block_size=layout.scheduler_block_tokens,
        hash_block_size=layout.hash_block_tokens,
    )


def hashes_of(num_tokens: int, hash_block: int) -> list[bytes]:
    return [i.to_bytes(32, "big") for i in range(num_tokens // hash_block)]


def cache_blocks(pool: Any, layout: Any, blocks: Iterable[tuple[int, int]]) -> None:
    """Tell vLLM's pool that these (position, block index) are cached."""
    hashes = hashes_of(MOST_TOKENS, layout.hash_block_tokens)
    for position, block in blocks:
        group = layout.groups[position]
        per_block = group.tokens_per_block // layout.hash_block_tokens
        last_hash = hashes[(block + 1) * per_block - 1]
        key = make_block_hash_with_group_id(last_hash, group.group_id)
        pool.cached_block_hash_to_block.insert(key, pool.blocks[1])


def all_blocks(layout: Any) -> list[tuple[int, int]]:
    return [
        (position, block)
        for position, group in enumerate(layout.groups)
        for block in range(MOST_TOKENS // group.tokens_per_block)
    ]


@st.composite
def specs_of_equal_blocks(draw: st.DrawFn) -> list[Any]:
    """Groups with one block size: full, window, local and state in any mix."""
    block = draw(st.sampled_from((16, 32, 64)))
    kinds = st.one_of(
        st.builds(full, st.just(block)),
        st.builds(window, st.just(block), st.integers(2, 200)),
        st.builds(local, st.just(block), st.integers(1, 8)),
        st.builds(state, st.just(block)),
    )
    return draw(st.lists(kinds, min_size=1, max_size=4))


@st.composite
def specs_of_mixed_blocks(draw: st.DrawFn) -> list[Any]:
    """Full and window groups, each with its own block size, and a scratch ring."""
    kinds = st.one_of(
        st.builds(full, st.sampled_from((16, 32, 64))),
        st.builds(window, st.sampled_from((8, 16, 32, 64)), st.integers(2, 200)),
    )
    specs = draw(st.lists(kinds, min_size=2, max_size=4))
    if draw(st.booleans()):
        ring = CircularBufferSpec(block_size=8, **HEADS)
        specs.insert(draw(st.integers(0, len(specs))), ring)
    return specs


@st.composite
def lookups(draw: st.DrawFn, specs: st.SearchStrategy[list[Any]]) -> tuple[Any, ...]:
    """A configuration, its layout, the blocks held, and a prompt length."""
    config = config_of(draw(specs))
    layout = layout_from_kv_cache_config(config)
    every = all_blocks(layout)
    if draw(st.booleans()):
        held = set(every) - draw(st.sets(st.sampled_from(every), max_size=10))
    else:
        held = draw(st.sets(st.sampled_from(every)))
    return config, layout, held, draw(st.integers(1, MOST_TOKENS))


def vllm_hit(config: Any, layout: Any, held: set[Any], num_tokens: int) -> int:
    coordinator = coordinator_of(config, layout)
    cache_blocks(coordinator.block_pool, layout, held)
    hashes = hashes_of(num_tokens, layout.hash_block_tokens)
    _, hit, _ = coordinator.find_longest_cache_hit(hashes, num_tokens - 1)
    return int(hit)


def assert_same_hit(lookup: tuple[Any, ...]) -> None:
    config, layout, held, num_tokens = lookup
    assert layout.chunk_tokens == layout.alignment_tokens
    expected = vllm_hit(config, layout, held, num_tokens)
    found = HybridRules(layout).longest_hit(
        num_tokens, lambda position, block: (position, block) in held
    )
    assert expected == found


@settings(max_examples=500, deadline=None)
@given(lookups(specs_of_equal_blocks()))
def test_same_hit_with_equal_blocks(lookup: tuple[Any, ...]) -> None:
    """Full, window, chunked-local and state groups in any mix: the same boundary."""
    assert_same_hit(lookup)


@settings(max_examples=500, deadline=None)
@given(lookups(specs_of_mixed_blocks()))
def test_same_hit_with_mixed_blocks(lookup: tuple[Any, ...]) -> None:
    """Groups whose blocks differ, with or without a ring: the same boundary."""
    assert_same_hit(lookup)


@settings(max_examples=200, deadline=None)
@given(st.data(), st.one_of(specs_of_equal_blocks(), specs_of_mixed_blocks()))
def test_exactly_the_needed_blocks_make_a_vllm_hit(
    data: st.DataObject, specs: list[Any]
) -> None:
    """A checkpoint and its chunks are enough for vLLM, and no block is spare."""
    config = config_of(specs)
    layout = layout_from_kv_cache_config(config)
    most = MOST_TOKENS // layout.chunk_tokens - 1
    boundary = data.draw(st.integers(1, most)) * layout.chunk_tokens
    rules = HybridRules(layout).rules
    needed = {(p, b) for p, rule in enumerate(rules) for b in rule.needed(boundary)}
    assert boundary == vllm_hit(config, layout, needed, boundary + 1)
    if needed:
        fewer = needed - {data.draw(st.sampled_from(sorted(needed)))}
        assert boundary > vllm_hit(config, layout, fewer, boundary + 1)


def test_same_hit_through_the_manager() -> None:
    """The scheduler's own entry, get_computed_blocks, agrees on a Gemma-like layout."""
    config = config_of([full(32), window(16, 128), window(16, 128)])
    layout = layout_from_kv_cache_config(config)
    manager = KVCacheManager(
        config,
        max_model_len=MOST_TOKENS,
        scheduler_block_size=layout.scheduler_block_tokens,
        hash_block_size=layout.hash_block_tokens,
        enable_caching=True,
        max_in_flight_tokens=MOST_TOKENS,
    )
    held = set(all_blocks(layout)) - {(0, 20), (1, 39), (2, 30)}
    cache_blocks(manager.block_pool, layout, held)
    request = SimpleNamespace(
        num_tokens=1000,
        block_hashes=hashes_of(1000, layout.hash_block_tokens),
        skip_reading_prefix_cache=False,
    )
    _, hit, _ = manager.get_computed_blocks(request)
    found = HybridRules(layout).longest_hit(1000, lambda p, b: (p, b) in held)
    assert 480 == hit == found


def test_known_difference_window_of_one_token() -> None:
    """A window of 1 reads nothing back, yet vLLM asks for its last block; we do not."""
    config = config_of([full(16), window(16, 1)])
    layout = layout_from_kv_cache_config(config)
    held = {(position, block) for position, block in all_blocks(layout) if not position}
    assert 0 == vllm_hit(config, layout, held, 101)
    found = HybridRules(layout).longest_hit(101, lambda p, b: (p, b) in held)
    oracle = reference.longest_hit(layout, 101, lambda p, b: (p, b) in held)
    assert 96 == oracle == found


def test_layouts_are_aligned() -> None:
    """The mixed layouts above really have several units: hash, block and alignment."""
    layout = layout_from_kv_cache_config(config_of([full(64), window(8, 40)]))
    assert (8, 64) == (layout.hash_block_tokens, layout.chunk_tokens)
    assert math.lcm(64, 8) == layout.scheduler_block_tokens
