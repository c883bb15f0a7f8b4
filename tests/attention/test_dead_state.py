"""The dead-state rule: results resumed under it equal uninterrupted ones, bit by bit.

A toy model of one or two compressed layers is run to the end, then resumed at a
boundary from a cache in which only what the rule asks for was restored and every other
number is NaN. The second half shows where the rule does not hold.
"""

import functools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcellar.attention.hybrid import HybridRules
from kvcellar.attention.reference import first_token_read_by_compressor
from kvcellar.layout.dead_state import with_dead_state_rule
from kvcellar.layout.groups import AttentionKind, CacheLayout
from kvcellar.testing.compressed_model import (
    GROUPS_PER_LAYER,
    NUM_TOKEN_IDS,
    Cache,
    ToyModel,
    restored_cache,
    toy_layout,
)
from kvcellar.testing.compressor import Array, CompressorShape

NUM_TOKENS = 900
WINDOW_TOKENS = 24
C4 = CompressorShape(ratio=4, size=4, has_overlap=True)
C128 = CompressorShape(ratio=128, size=4, has_overlap=False)
STATES = 2  # place of the compressor's group among a layer's groups

CASES = {
    "c4-block4": ((C4,), (4,)),
    "c4-block8": ((C4,), (8,)),
    "c128-block8": ((C128,), (8,)),
    "c128-block4": ((C128,), (4,)),
    "both": ((C4, C128), (4, 8)),
}


@dataclass(frozen=True)
class Case:
    """A model, how its cache is cut, and its uninterrupted run."""

    model: ToyModel
    declared: CacheLayout
    tokens: list[int]
    cache: Cache
    logits: Array

    @property
    def ratios(self) -> dict[int, int]:
        return {
            number * GROUPS_PER_LAYER + STATES: shape.ratio
            for number, shape in enumerate(self.model.shapes)
        }

    def blocks(self, boundary: int, *, rule: bool = True) -> dict[int, range]:
        """What a resume needs, by position, with the dead-state rule or without."""
        layout = self.declared
        if rule:
            layout = with_dead_state_rule(layout, self.ratios)
        rules = HybridRules(layout).rules
        return {position: r.needed(boundary) for position, r in enumerate(rules)}

    def resumed(
        self,
        boundary: int,
        blocks: dict[int, range],
        *,
        first: int | None = None,
        end: int = NUM_TOKENS,
        cuts: tuple[int, ...] = (),
        garbage: float = float("nan"),
    ) -> tuple[Array, Cache]:
        """Restore ``blocks`` as of ``boundary``, then compute ``[first, end)``."""
        cache = self.model.blank_cache(self.declared, NUM_TOKENS, garbage)
        restored_cache(cache, self.cache, blocks.items(), boundary)
        first = boundary if first is None else first
        ends = sorted({cut for cut in cuts if first < cut < end} | {end})
        steps = zip([first, *ends], ends, strict=False)
        logits = [self.model.run(self.tokens[:e], f, cache) for f, e in steps]
        return np.concatenate(logits), cache

    def is_equal(self, boundary: int, logits: Array, cache: Cache, end: int) -> bool:
        """Whether logits and all later compressed entries equal, to the bit."""
        first = end - len(logits)
        same = np.array_equal(logits, self.logits[first:end])
        for number, shape in enumerate(self.model.shapes):
            position = number * GROUPS_PER_LAYER + 1
            entries = slice(boundary // shape.ratio, end // shape.ratio)
            mine, right = cache[position].rows, self.cache[position].rows
            same &= np.array_equal(mine[entries], right[entries])
        return same


@functools.cache
def case_named(name: str, alignment_tokens: int = 128) -> Case:
    shapes, blocks = CASES[name]
    layout = toy_layout(
        shapes,
        window_tokens=WINDOW_TOKENS,
        state_block_tokens=blocks,
        alignment_tokens=alignment_tokens,
    )
    model = ToyModel(shapes, window_tokens=WINDOW_TOKENS)
    rng = np.random.default_rng(1)
    tokens = [int(t) for t in rng.integers(0, NUM_TOKEN_IDS, NUM_TOKENS)]
    cache = model.blank_cache(layout, NUM_TOKENS)
    logits = model.run(tokens, 0, cache)
    assert np.isfinite(logits).all()
    return Case(model, layout, tokens, cache, logits)


def with_states(blocks: dict[int, range], needed: range) -> dict[int, range]:
    """The same blocks, but others of the first layer's compressor states."""
    return blocks | {STATES: needed}


# -- where the rule holds ----------------------------------------------------------


@pytest.mark.parametrize("alignment", [128, 256])
@pytest.mark.parametrize("name", CASES)
def test_resumed_equals_uninterrupted_at_every_boundary(
    name: str, alignment: int
) -> None:
    """At each multiple of 128, or of 256, all later entries and logits are equal."""
    case = case_named(name, alignment)
    for boundary in range(alignment, NUM_TOKENS, alignment):
        logits, cache = case.resumed(boundary, case.blocks(boundary))
        assert case.is_equal(boundary, logits, cache, NUM_TOKENS)


@settings(max_examples=60)
@given(
    st.sampled_from(list(CASES)),
    st.integers(1, 6),
    st.integers(1, 270),
    st.sets(st.integers(1, NUM_TOKENS - 1), max_size=4),
    st.sampled_from([float("nan"), float("inf"), 1e30, -3.0]),
)
def test_resumed_equals_uninterrupted_however_it_goes_on(
    name: str, num_chunks: int, num_tokens: int, cuts: set[int], garbage: float
) -> None:
    """Any boundary, any length, any cut into steps, any garbage in dead blocks."""
    case = case_named(name)
    boundary = num_chunks * 128
    end = min(boundary + num_tokens, NUM_TOKENS)
    logits, cache = case.resumed(
        boundary,
        case.blocks(boundary),
        end=end,
        cuts=tuple(cuts),
        garbage=garbage,
    )
    assert case.is_equal(boundary, logits, cache, end)


@pytest.mark.parametrize("cut_tokens", [1, 2, 100])
@pytest.mark.parametrize("name", CASES)
def test_a_second_resume_may_read_what_the_first_one_wrote(
    name: str, cut_tokens: int
) -> None:
    """States computed after a resume serve the next boundary as well as any others."""
    case = case_named(name)
    _, between = case.resumed(256, case.blocks(256), end=512, cuts=(256 + cut_tokens,))
    again = case.model.blank_cache(case.declared, NUM_TOKENS)
    blocks = case.blocks(512)
    # What lies below 256 was restored once more, as from host memory.
    chunks = {p: range(256 // 128) for p in case.declared.chunk_positions}
    restored_cache(between, case.cache, chunks.items(), 256)
    restored_cache(again, between, blocks.items(), 512)
    logits = case.model.run(case.tokens, 512, again)
    assert case.is_equal(512, logits, again, NUM_TOKENS)


@pytest.mark.parametrize(
    ("name", "declared", "ruled"),
    [
        ("c4-block4", range(62, 64), range(63, 64)),
        ("c4-block8", range(31, 32), range(31, 32)),
        ("c128-block8", range(16, 32), range(0)),
        ("c128-block4", range(32, 64), range(0)),
    ],
)
def test_blocks_at_256(name: str, declared: range, ruled: range) -> None:
    """Hand-computed: one block of 4 instead of 2, none instead of 16 of 8."""
    case = case_named(name)
    assert case.blocks(256, rule=False)[STATES] == declared
    assert case.blocks(256)[STATES] == ruled


@given(
    st.sampled_from([(4, 4), (4, 0), (8, 8), (16, 0), (128, 0), (64, 64)]),
    st.sampled_from([4, 8, 16]),
    st.integers(1, 20),
)
def test_needed_is_exactly_what_the_compressor_reads(
    ratio_and_overlap: tuple[int, int], block: int, num_chunks: int
) -> None:
    """At aligned boundaries the cut window needs the blocks of [first read, b)."""
    ratio, overlap = ratio_and_overlap
    shape = CompressorShape(ratio, 4, has_overlap=bool(overlap))
    layout = toy_layout(
        [shape], window_tokens=8, state_block_tokens=[block], alignment_tokens=128
    )
    cut = with_dead_state_rule(layout, {STATES: ratio})
    boundary = num_chunks * 128
    first = first_token_read_by_compressor(ratio, overlap, boundary)
    read = range(first // block, boundary // block) if first < boundary else range(0)
    assert HybridRules(cut).rules[STATES].needed(boundary) == read


@given(st.sampled_from([C4, C128]), st.integers(0, 600), st.integers(0, 600))
def test_later_tokens_read_no_earlier_states(
    shape: CompressorShape, one: int, other: int
) -> None:
    """The first state read never moves down, and lies within the declared window."""
    overlap = shape.window_tokens - shape.ratio
    low, high = sorted((one, other))
    first = first_token_read_by_compressor(shape.ratio, overlap, low)
    assert first <= first_token_read_by_compressor(shape.ratio, overlap, high)
    last = low - low % shape.ratio + shape.ratio - 1  # where the group ends
    assert first == max(last - shape.window_tokens + 1, 0)


# -- where it does not -------------------------------------------------------------


@pytest.mark.parametrize("boundary", [129, 200, 255, 257, 383, 500, 700])
def test_ratio_128_fails_inside_a_group(boundary: int) -> None:
    """Off the multiples of 128, C128 needs its states; all of the window is enough."""
    case = case_named("c128-block8")
    logits, cache = case.resumed(boundary, case.blocks(boundary))
    assert not case.is_equal(boundary, logits, cache, NUM_TOKENS)
    assert np.isnan(logits).any()
    declared = case.blocks(boundary, rule=False)
    logits, cache = case.resumed(boundary, declared)
    assert case.is_equal(boundary, logits, cache, NUM_TOKENS)


def test_ratio_4_holds_inside_a_group_by_whole_blocks_only() -> None:
    """C4's blocks begin where its groups do, so rounding up saves it; 4 tokens don't.

    At b = 4n + 1 the group reads from b - 5 on: one token more than the rule's four.
    """
    case = case_named("c4-block4")
    for boundary in (253, 254, 255, 257):
        blocks = case.blocks(boundary)
        logits, cache = case.resumed(boundary, blocks)
        assert case.is_equal(boundary, logits, cache, NUM_TOKENS)
    cache = case.model.blank_cache(case.declared, NUM_TOKENS)
    restored_cache(cache, case.cache, case.blocks(257).items(), 257)
    cache[STATES].rows[: 257 - 4] = np.nan
    logits = case.model.run(case.tokens, 257, cache)
    assert not case.is_equal(257, logits, cache, NUM_TOKENS)


@pytest.mark.parametrize("name", ["c4-block4", "c128-block8", "both"])
def test_fails_when_one_token_below_the_boundary_is_recomputed(name: str) -> None:
    """A load of the whole prompt is rolled back by a token, which closes a group anew.

    So a boundary must lie below the prompt's last token, as every look-up's does.
    """
    case = case_named(name)
    for boundary in (256, 384, 640):
        logits, cache = case.resumed(
            boundary, case.blocks(boundary), first=boundary - 1
        )
        assert not case.is_equal(boundary - 1, logits, cache, NUM_TOKENS)
        declared = case.blocks(boundary, rule=False)
        logits, cache = case.resumed(boundary, declared, first=boundary - 1)
        assert case.is_equal(boundary - 1, logits, cache, NUM_TOKENS)


@pytest.mark.parametrize("name", ["c4-block4", "c4-block8"])
def test_ratio_4_fails_without_its_block(name: str) -> None:
    """The rule is tight: C4 with no block at all reads garbage at its first entry."""
    case = case_named(name)
    for boundary in (128, 256, 640):
        blocks = with_states(case.blocks(boundary), range(0))
        logits, cache = case.resumed(boundary, blocks)
        assert not case.is_equal(boundary, logits, cache, NUM_TOKENS)
        # Nothing has closed a group yet: the first three tokens are right.
        logits, cache = case.resumed(boundary, blocks, end=boundary + 3)
        assert case.is_equal(boundary, logits, cache, boundary + 3)


def test_ratio_4_fails_with_a_zeroed_block() -> None:
    """Zeroes instead of the block are wrong, too, though no NaN shows it."""
    case = case_named("c4-block4")
    blocks = with_states(case.blocks(256), range(0))
    logits, cache = case.resumed(256, blocks, garbage=0.0)
    assert np.isfinite(logits).all()
    assert not case.is_equal(256, logits, cache, NUM_TOKENS)


@pytest.mark.parametrize("position", [0, 1])
def test_the_other_groups_are_not_dead(position: int) -> None:
    """One block less of the raw window, or of the entries, is noticed."""
    case = case_named("both")
    blocks = case.blocks(256)
    blocks[position] = range(blocks[position].start + 1, blocks[position].stop)
    logits, cache = case.resumed(256, blocks)
    assert not case.is_equal(256, logits, cache, NUM_TOKENS)


def test_a_real_window_of_the_same_shape_must_not_be_cut() -> None:
    """Raw keys in a window of 24 look like states of ratio 4 or 8; cut, they fail."""
    case = case_named("both")
    assert case.declared.groups[0].kind is AttentionKind.WINDOW
    assert case.declared.groups[0].span_tokens == WINDOW_TOKENS
    cut = with_dead_state_rule(case.declared, {0: 8})
    blocks = case.blocks(256) | {0: HybridRules(cut).rules[0].needed(256)}
    logits, cache = case.resumed(256, blocks)
    assert not case.is_equal(256, logits, cache, NUM_TOKENS)
