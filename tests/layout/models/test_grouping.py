"""How layers are cut into groups, on examples small enough to do by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcellar.errors import ConfigError, IncompatibleError
from kvcellar.layout.models.grouping import group_layers
from kvcellar.layout.models.layer import AttentionCache, CacheForm, Layer, StateCache
from kvcellar.layout.models.stages import stage_bounds


def attention(form: CacheForm, **changes: object) -> AttentionCache:
    fields = {
        "form": form,
        "block_tokens": 16,
        "num_heads": 1,
        "key_size": 8,
        "value_size": 8,
        "dtype": "bfloat16",
    }
    return AttentionCache(**(fields | changes))  # type: ignore[arg-type]


FULL = attention(CacheForm.FULL)
WINDOW = attention(CacheForm.WINDOW, span_tokens=64)
PAGE_BYTES = 512


def numbers(caches, *, is_block_outer=False):
    """Indices of the layers of each group."""
    layers = [Layer(index, "attn", cache) for index, cache in enumerate(caches)]
    groups = group_layers(layers, is_block_outer=is_block_outer)
    return [[layer.index for layer in group] for group in groups]


def pages(caches):
    """Block and page of each layer, by its index."""
    layers = [Layer(index, "attn", cache) for index, cache in enumerate(caches)]
    found = [x for g in group_layers(layers, is_block_outer=False) for x in g]
    found.sort(key=lambda layer: layer.index)
    return [(layer.cache.block_tokens, layer.cache.page_bytes) for layer in found]


def test_equal_layers_are_one_group():
    """However many there are."""
    assert [[0, 1, 2]] == numbers([FULL] * 3)


def test_full_layers_of_two_widths_are_one_group():
    """They need the same blocks; pages need not agree."""
    wide = attention(CacheForm.FULL, num_heads=2)
    assert [[0, 1, 2]] == numbers([FULL, wide, FULL])


def test_windows_of_two_lengths_are_two_groups():
    """They free blocks at different times."""
    longer = attention(CacheForm.WINDOW, span_tokens=128)
    assert [[0], [1]] == numbers([WINDOW, longer])


def test_the_rarer_kind_sets_the_length():
    """Five windows to one full layer make six groups of one length, dealt in turn."""
    caches = ([WINDOW] * 5 + [FULL]) * 2
    windows = [[0, 6], [1, 7], [2, 8], [3, 9], [4, 10]]
    assert [*windows, [5, 11]] == numbers(caches)


def test_nearly_equal_counts_are_padded():
    """Twelve and thirteen layers make two groups, not three."""
    caches = [WINDOW, FULL] * 12 + [FULL]
    assert [12, 13] == [len(group) for group in numbers(caches)]


def test_a_last_group_may_be_short():
    """Seven windows to two full layers: four groups, one with a layer missing."""
    caches = [WINDOW] * 7 + [FULL] * 2
    assert [[0, 4], [1, 5], [2, 6], [3], [7, 8]] == numbers(caches)


def test_smaller_pages_get_longer_blocks():
    """A page of half the bytes covers twice the tokens."""
    narrow = attention(CacheForm.WINDOW, span_tokens=64, key_size=4, value_size=4)
    assert [(32, PAGE_BYTES), (16, PAGE_BYTES)] == pages([narrow, FULL])


def test_pages_that_do_not_divide_are_padded():
    """Three quarters of a page stay 16 tokens."""
    odd = attention(CacheForm.WINDOW, span_tokens=64, key_size=4)
    assert [(16, PAGE_BYTES), (16, PAGE_BYTES)] == pages([odd, FULL])


def test_states_are_padded_to_the_page():
    """Their size does not follow the block."""
    state = StateCache(16, ((4, 8),), ("float32",))
    assert [(16, PAGE_BYTES), (16, PAGE_BYTES)] == pages([state, FULL])


def test_a_latent_page_that_does_not_divide_is_refused():
    """It cannot be padded, so that kvcellar does not know what the engine does."""
    odd = attention(CacheForm.LATENT, key_size=12, value_size=0)
    with pytest.raises(IncompatibleError, match=r"layers\.0\.attn keeps 384 bytes"):
        numbers([odd, WINDOW])


def test_packed_groups_repeat_the_pattern_of_the_mixed_bucket():
    """Two sizes of one type stay together; others are cut to as many repeats."""
    wide = attention(CacheForm.FULL, num_heads=2)
    caches = [FULL, wide, WINDOW, WINDOW]
    assert [[0, 1, 4, 5], [2, 6], [3, 7]] == numbers(caches * 2, is_block_outer=True)


def test_packed_windows_alone_are_cut_to_the_widest_block():
    """Where nothing repeats, a group of windows is no wider than the full layers."""
    window = attention(CacheForm.WINDOW, span_tokens=64, num_heads=2)
    caches = [FULL] * 4 + [window] * 4
    assert [[0, 1, 2, 3], [4, 6], [5, 7]] == numbers(caches, is_block_outer=True)


def test_packed_rings_of_several_sizes_are_refused():
    """The engine would lose layers."""
    ring = attention(CacheForm.RING, block_tokens=8, value_size=0, dtype="float32")
    small = attention(CacheForm.RING, block_tokens=8, key_size=4, value_size=0)
    caches = [ring, ring, small, attention(CacheForm.CHUNKED, span_tokens=64)]
    narrow = attention(CacheForm.FULL, key_size=4, value_size=4)
    with pytest.raises(IncompatibleError, match="ring layers with several page sizes"):
        numbers([ring, *caches[:3], narrow], is_block_outer=True)


@given(st.integers(1, 200), st.integers(1, 64))
def test_stages_cover_all_layers_once(num_layers: int, num_stages: int):
    """Stages follow each other without a gap and differ by at most one layer."""
    if num_stages > num_layers:
        with pytest.raises(ConfigError, match="pipeline_parallel"):
            stage_bounds(num_layers, num_stages)
        return
    bounds = stage_bounds(num_layers, num_stages)
    assert list(range(num_layers)) == [i for b in bounds for i in range(*b)]
    sizes = {end - first for first, end in bounds}
    assert max(sizes) - min(sizes) <= 1
