"""Each attention kind's rule, alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcellar.attention import rule_for
from kvcellar.attention.reference import blocks_read, tokens_read
from kvcellar.errors import IncompatibleError
from kvcellar.layout.groups import AttentionKind, GroupLayout

SPANNED = (AttentionKind.WINDOW, AttentionKind.CHUNKED)


def make_group(
    kind: AttentionKind, tokens_per_block: int, span_tokens: int | None = None
) -> GroupLayout:
    return GroupLayout(0, kind, tokens_per_block, 100, 128, 1, span_tokens)


@st.composite
def groups(draw: st.DrawFn) -> GroupLayout:
    kind = draw(st.sampled_from(AttentionKind))
    span = draw(st.integers(1, 40)) if kind in SPANNED else None
    return make_group(kind, draw(st.integers(1, 16)), span)


@given(groups(), st.integers(0, 12))
def test_needed_equals_the_blocks_that_are_read(
    group: GroupLayout, num_blocks: int
) -> None:
    """At every block boundary, needed() is exactly what the reference reads."""
    boundary = num_blocks * group.tokens_per_block
    assert blocks_read(group, boundary) == frozenset(rule_for(group).needed(boundary))


@given(groups(), st.integers(0, 120))
def test_needed_equals_the_reference_inside_a_block(
    group: GroupLayout, boundary: int
) -> None:
    """The rules hold at boundaries that end inside a block, too."""
    assert blocks_read(group, boundary) == frozenset(rule_for(group).needed(boundary))


@given(groups(), st.integers(0, 120), st.integers(0, 120))
def test_first_needed_block_never_moves_down(
    group: GroupLayout, one: int, other: int
) -> None:
    """A block that a longer prefix does not need is needed by none longer still."""
    low, high = sorted((one, other))
    rule = rule_for(group)
    if rule.needed(low) and rule.needed(high):
        assert rule.needed(low).start <= rule.needed(high).start
        assert rule.needed(low).stop <= rule.needed(high).stop


@given(groups(), st.integers(1, 120))
def test_needed_blocks_lie_below_the_boundary(group: GroupLayout, b: int) -> None:
    """No rule asks for a block that begins at or after the boundary."""
    bs = group.tokens_per_block
    assert all(block * bs < b for block in rule_for(group).needed(b))


@given(groups(), st.integers(0, 60), st.integers(0, 60))
def test_later_tokens_read_no_older_cache(
    group: GroupLayout, boundary: int, steps: int
) -> None:
    """What token b does not read, no later token reads: checking b is enough."""
    first = tokens_read(group, boundary, boundary)
    assert tokens_read(group, boundary + steps, boundary) <= first


@given(groups(), st.integers(0, 300))
def test_needed_blocks_repeat_after_a_period(group: GroupLayout, b: int) -> None:
    """Moved on by the distance; from the first token on they only grow."""
    rule = rule_for(group)
    period, distance = rule.period_tokens, rule.period_tokens // group.tokens_per_block
    assert 0 == period % group.tokens_per_block
    boundary = b + (group.span_tokens or 0) + group.tokens_per_block
    first, later = rule.needed(boundary), rule.needed(boundary + period)
    assert later.stop - first.stop == (distance if first else 0)
    if first:
        moved = 0 if group.kind is AttentionKind.FULL else distance
        assert later.start - first.start == moved


@pytest.mark.parametrize(
    ("kind", "block", "span", "boundary", "expected"),
    [
        (AttentionKind.FULL, 16, None, 64, range(4)),
        (AttentionKind.WINDOW, 16, 1, 64, range(0)),
        (AttentionKind.WINDOW, 16, 17, 64, range(3, 4)),
        (AttentionKind.WINDOW, 16, 18, 64, range(2, 4)),
        (AttentionKind.WINDOW, 64, 128, 256, range(2, 4)),
        (AttentionKind.WINDOW, 16, 1024, 64, range(4)),
        (AttentionKind.CHUNKED, 16, 64, 176, range(8, 11)),
        (AttentionKind.CHUNKED, 16, 64, 192, range(0)),
        (AttentionKind.CHUNKED, 16, 24, 48, range(0)),
        (AttentionKind.CHUNKED, 16, 24, 64, range(3, 4)),
        (AttentionKind.STATE, 256, None, 512, range(1, 2)),
        (AttentionKind.STATE, 256, None, 0, range(0)),
    ],
)
def test_worked_examples(
    kind: AttentionKind, block: int, span: int | None, boundary: int, expected: range
) -> None:
    """Hand-computed cases, among them the ones of DeepSeek-V4 and Llama 4."""
    assert rule_for(make_group(kind, block, span)).needed(boundary) == expected


@pytest.mark.parametrize("kind", SPANNED)
@pytest.mark.parametrize("span", [None, 0, -1])
def test_refuses_a_spanned_group_without_a_span(
    kind: AttentionKind, span: int | None
) -> None:
    """A window or local chunk without a length is refused and named."""
    with pytest.raises(IncompatibleError, match=f"{kind} group 0 has span_tokens"):
        rule_for(make_group(kind, 16, span))


@pytest.mark.parametrize("kind", [AttentionKind.FULL, AttentionKind.STATE])
def test_refuses_a_span_that_means_nothing(kind: AttentionKind) -> None:
    """A full or state group with a window was mistranslated: refused."""
    with pytest.raises(IncompatibleError, match="set it to None"):
        rule_for(make_group(kind, 16, 64))


def test_refuses_an_empty_block() -> None:
    """A block of no tokens is refused."""
    with pytest.raises(IncompatibleError, match="at least one token"):
        rule_for(make_group(AttentionKind.FULL, 0))
