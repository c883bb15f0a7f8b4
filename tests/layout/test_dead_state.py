"""The dead-state rule as a change of layout: what it cuts, and what it refuses."""

import dataclasses

import pytest

from kvcellar.attention.hybrid import HybridRules
from kvcellar.errors import IncompatibleError
from kvcellar.layout.dead_state import effective_window_tokens, with_dead_state_rule
from kvcellar.layout.groups import (
    AttentionKind,
    CacheLayout,
    GroupLayout,
    make_layout,
    with_chunk_tokens,
)

FULL, WINDOW, STATE = AttentionKind.FULL, AttentionKind.WINDOW, AttentionKind.STATE


def deepseek_v4(alignment_tokens: int = 256) -> CacheLayout:
    """DeepSeek-V4-Flash's groups with its payload bytes."""
    sizes = (
        (WINDOW, 64, 822_272, 128),
        (WINDOW, 64, 784_896, 128),
        (FULL, 256, 985_664, None),
        (WINDOW, 4, 860_160, 8),
        (WINDOW, 8, 655_360, 128),
    )
    groups = [
        GroupLayout(i, kind, block, payload, payload, 20, span)
        for i, (kind, block, payload, span) in enumerate(sizes)
    ]
    return make_layout(
        groups,
        hash_block_tokens=4,
        alignment_tokens=alignment_tokens,
        scheduler_block_tokens=256,
    )


RATIOS = {3: 4, 4: 128}


def needs(layout: CacheLayout, boundary: int) -> list[tuple[int, int]]:
    """Blocks by position of a checkpoint."""
    blocks = HybridRules(layout).checkpoint_blocks(boundary)
    return [(position, len(needed)) for position, needed in blocks]


def checkpoint_bytes(layout: CacheLayout, boundary: int) -> int:
    return sum(count * layout.cell_bytes(p) for p, count in needs(layout, boundary))


def test_a_checkpoint_shrinks_from_15_to_4_million_bytes() -> None:
    """DeepSeek-V4-Flash: 22 blocks become 5, 15,420,416 bytes become 4,074,496."""
    declared, cut = deepseek_v4(), with_dead_state_rule(deepseek_v4(), RATIOS)
    for boundary in (256, 512, 65_536):
        assert needs(declared, boundary) == [(0, 2), (1, 2), (3, 2), (4, 16)]
        assert needs(cut, boundary) == [(0, 2), (1, 2), (3, 1)]
        assert checkpoint_bytes(declared, boundary) == 15_420_416
        assert checkpoint_bytes(cut, boundary) == 4_074_496


def test_only_the_windows_of_the_named_groups_change() -> None:
    """Bytes, blocks, units and the other groups stay; C4's window is 5, C128's 1."""
    declared, cut = deepseek_v4(), with_dead_state_rule(deepseek_v4(), RATIOS)
    assert [g.span_tokens for g in cut.groups] == [128, 128, None, 5, 1]
    for old, new in zip(declared.groups, cut.groups, strict=True):
        assert dataclasses.replace(new, span_tokens=old.span_tokens) == old
    assert dataclasses.replace(cut, groups=declared.groups) == declared


def test_no_ratios_change_nothing() -> None:
    """A model without compressors keeps its layout."""
    assert with_dead_state_rule(deepseek_v4(), {}) == deepseek_v4()


def test_larger_chunks_may_follow() -> None:
    """A chunk of several alignment units is a multiple of every ratio, too."""
    cut = with_chunk_tokens(with_dead_state_rule(deepseek_v4(), RATIOS), 1024)
    assert needs(cut, 1024) == [(0, 2), (1, 2), (3, 1)]


@pytest.mark.parametrize(
    ("window", "ratio", "expected"), [(8, 4, 5), (4, 4, 1), (128, 128, 1), (64, 16, 49)]
)
def test_effective_window(window: int, ratio: int, expected: int) -> None:
    """The overlap and the token itself."""
    assert effective_window_tokens(window, ratio) == expected


@pytest.mark.parametrize(
    ("ratios", "message"),
    [
        ({7: 4}, r"groups \[7\] are said to hold compressor states"),
        ({2: 4}, r"group 2 \(full, draft: False\) cannot hold"),
        ({3: 3}, "window of 8 tokens, which is no whole number"),
        ({3: 16}, "window of 8 tokens, which is no whole number"),
        ({3: 0}, "window of 8 tokens, which is no whole number"),
    ],
)
def test_refuses_groups_that_cannot_be_cut(
    ratios: dict[int, int], message: str
) -> None:
    """Unknown groups, other kinds, and windows that no ratio explains."""
    with pytest.raises(IncompatibleError, match=message):
        with_dead_state_rule(deepseek_v4(), ratios)


def test_refuses_to_cut_twice() -> None:
    """A window that was cut already is not a compressor's declared one."""
    cut = with_dead_state_rule(deepseek_v4(), RATIOS)
    with pytest.raises(IncompatibleError, match="no whole number"):
        with_dead_state_rule(cut, RATIOS)


def test_refuses_a_drafter() -> None:
    """A drafter's groups are asked for tokens past the boundary: not proven."""
    layout = deepseek_v4()
    drafts = [dataclasses.replace(g, is_draft=True) for g in layout.groups]
    layout = dataclasses.replace(layout, groups=tuple(drafts))
    with pytest.raises(IncompatibleError, match="draft: True"):
        with_dead_state_rule(layout, RATIOS)


def test_refuses_hits_inside_a_compression_group() -> None:
    """Chunks of 256 do not help when the engine's own hits are multiples of 64."""
    layout = deepseek_v4(alignment_tokens=64)
    assert layout.chunk_tokens == 256
    with pytest.raises(IncompatibleError, match="multiples of 64 tokens"):
        with_dead_state_rule(layout, RATIOS)
    assert with_dead_state_rule(layout, {3: 4}).groups[3].span_tokens == 5


def test_refuses_an_overlap_that_reaches_an_earlier_hit() -> None:
    """A load at 512 would leave the states unwritten that a hit at 384 reads."""
    window = GroupLayout(0, WINDOW, 8, 64, 64, 1, 256)
    full = GroupLayout(1, FULL, 128, 64, 64, 1)

    def layout(alignment_tokens: int) -> CacheLayout:
        return make_layout(
            [window, full],
            hash_block_tokens=8,
            alignment_tokens=alignment_tokens,
            scheduler_block_tokens=128,
        )

    with pytest.raises(IncompatibleError, match="more than the 128 between two"):
        with_dead_state_rule(layout(128), {0: 128})
    assert with_dead_state_rule(layout(256), {0: 128}).groups[0].span_tokens == 129
