"""vLLM's cache configuration becomes ours, one rule at a time; no vLLM is needed."""

from types import SimpleNamespace
from typing import Any

import pytest

from kvcellar.attention.hybrid import HybridRules
from kvcellar.errors import ConfigError, IncompatibleError
from kvcellar.integrations.vllm.translate import (
    cacheable_group_ids,
    layer_payload_bytes,
    layout_from_kv_cache_config,
)
from kvcellar.layout.groups import AttentionKind, CacheLayout

FULL, WINDOW, STATE = AttentionKind.FULL, AttentionKind.WINDOW, AttentionKind.STATE


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


def make_config(*specs: Any) -> Any:
    """One layer per group, one tensor per layer; sizes are left unresolved."""
    groups = [
        SimpleNamespace(layer_names=[f"layer{i}"], kv_cache_spec=spec)
        for i, spec in enumerate(specs)
    ]
    tensors = [SimpleNamespace(layers=[f"layer{i}"]) for i in range(len(specs))]
    return SimpleNamespace(kv_cache_groups=groups, kv_cache_tensors=tensors)


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
    """A layer's payload is that of its own spec, wrapped or shared by the group."""
    wrapped = {"a": full_spec(16), "b": full_spec(16, unpadded_page_size_bytes=90)}
    spec = make_spec("UniformTypeKVCacheSpecs", 16, kv_cache_specs=wrapped)
    assert [100, 90] == [layer_payload_bytes(spec, name) for name in "ab"]
    assert 100 == layer_payload_bytes(full_spec(16), "any")
    assert 70 == layer_payload_bytes(state_spec(16), "any")


def test_group_of_another_rank_has_no_bytes_here() -> None:
    """A stage with none of a group's layers knows what the group is all the same."""
    config = make_config(full_spec(16), window_spec(16, 64))
    config.kv_cache_groups[1].layer_names = []
    layout = layout_from_kv_cache_config(config)
    assert [(FULL, 16, None, 1, 100), (WINDOW, 16, 64, 0, 0)] == summary(layout)


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


def test_states_are_translated() -> None:
    """Recurrent state is in the layout with its own bytes, and served."""
    layout = layout_from_kv_cache_config(make_config(full_spec(64), state_spec(64)))
    assert [(FULL, 64, None, 1, 100), (STATE, 64, None, 1, 70)] == summary(layout)


def test_states_that_the_engine_does_not_cache_are_refused() -> None:
    """Without align mode no prefix of a recurrent model can be resumed at all."""
    config = make_config(full_spec(64), state_spec(64, mamba_cache_mode="none"))
    with pytest.raises(IncompatibleError, match="mamba_cache_mode='none'"):
        layout_from_kv_cache_config(config)


def test_draft_groups_are_marked() -> None:
    """A drafter's group makes every hit keep a margin, marked or not."""
    config = make_config(full_spec(16), full_spec(16))
    assert not layout_from_kv_cache_config(config).has_drafter
    assert layout_from_kv_cache_config(config, has_drafter=True).has_drafter
    config.kv_cache_groups[1].is_eagle_group = True
    layout = layout_from_kv_cache_config(config)
    assert [False, True] == [g.is_draft for g in layout.groups]
    assert layout.has_drafter


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
