"""The joint rules against the brute-force oracle."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kvcellar.attention import reference
from kvcellar.attention.hybrid import HybridRules
from kvcellar.layout.groups import (
    AttentionKind,
    CacheLayout,
    GroupLayout,
    make_layout,
)

NUM_TOKENS = 96
Resident = frozenset[tuple[int, int]]


def layout_of(*groups: tuple[AttentionKind, int, int | None]) -> CacheLayout:
    made = tuple(
        GroupLayout(i, kind, block, 100, 128, 1, span)
        for i, (kind, block, span) in enumerate(groups)
    )
    largest = max(block for _, block, _ in groups)
    return make_layout(
        made,
        hash_block_tokens=1,
        alignment_tokens=largest,
        scheduler_block_tokens=largest,
    )


@st.composite
def layouts(draw: st.DrawFn) -> CacheLayout:
    kinds = draw(st.lists(st.sampled_from(AttentionKind), min_size=1, max_size=4))
    groups: list[tuple[AttentionKind, int, int | None]] = []
    for kind in kinds:
        spanned = kind in (AttentionKind.WINDOW, AttentionKind.CHUNKED)
        span = draw(st.integers(1, 40)) if spanned else None
        groups.append((kind, draw(st.sampled_from((1, 2, 4, 8))), span))
    return layout_of(*groups)


@st.composite
def resident_sets(draw: st.DrawFn, layout: CacheLayout) -> Resident:
    every = [
        (position, block)
        for position, group in enumerate(layout.groups)
        for block in range(NUM_TOKENS // group.tokens_per_block)
    ]
    missing = draw(st.sets(st.sampled_from(every), max_size=12))
    return frozenset(every) - missing


@settings(max_examples=200, deadline=None)
@given(st.data(), layouts(), st.integers(0, NUM_TOKENS))
def test_longest_hit_equals_brute_force(
    data: st.DataObject, layout: CacheLayout, num_tokens: int
) -> None:
    """For any layout, resident set and limit the fast search finds the oracle's hit."""
    held = data.draw(resident_sets(layout))
    limit = data.draw(st.none() | st.integers(0, NUM_TOKENS))

    def has_block(position: int, block: int) -> bool:
        return (position, block) in held

    expected = reference.longest_hit(layout, num_tokens, has_block, limit)
    assert HybridRules(layout).longest_hit(num_tokens, has_block, limit) == expected


@settings(max_examples=60, deadline=None)
@given(st.data(), layouts())
def test_more_blocks_never_shorten_the_hit(
    data: st.DataObject, layout: CacheLayout
) -> None:
    """Adding a block to what is held leaves the hit the same or longer."""
    held = data.draw(resident_sets(layout))
    dropped = (
        st.sets(st.sampled_from(sorted(held)), max_size=5) if held else st.just(held)
    )
    fewer = held - data.draw(dropped)
    rules = HybridRules(layout)
    short = rules.longest_hit(NUM_TOKENS, lambda p, b: (p, b) in fewer)
    assert short <= rules.longest_hit(NUM_TOKENS, lambda p, b: (p, b) in held)


@given(layouts(), st.integers(0, 12))
def test_checkpoint_blocks_are_what_the_oracle_reads(
    layout: CacheLayout, index: int
) -> None:
    """A checkpoint is exactly the blocks its groups read; empty ones are left out."""
    boundary = index * layout.chunk_tokens
    rules = HybridRules(layout)
    expected = {
        position: blocks
        for position in layout.checkpoint_positions
        if (blocks := reference.blocks_read(layout.groups[position], boundary))
    }
    found = {p: frozenset(blocks) for p, blocks in rules.checkpoint_blocks(boundary)}
    assert expected == found
    assert bool(expected) == rules.needs_checkpoint(boundary)


def test_full_attention_never_needs_a_checkpoint() -> None:
    """A model with append-only groups only resumes from its chunks."""
    rules = HybridRules(layout_of((AttentionKind.FULL, 16, None)))
    assert [False] * 8 == [rules.needs_checkpoint(16 * i) for i in range(8)]


def test_local_chunks_need_none_where_a_new_one_begins() -> None:
    """Llama 4: boundaries that the local chunk divides need no checkpoint."""
    layout = layout_of((AttentionKind.FULL, 16, None), (AttentionKind.CHUNKED, 16, 64))
    rules = HybridRules(layout)
    needing = [b for b in range(0, 200, 16) if rules.needs_checkpoint(b)]
    assert [b for b in range(0, 200, 16) if b % 64] == needing
    assert ((1, range(8, 11)),) == rules.checkpoint_blocks(176)


def test_prompt_of_exactly_a_boundary_resumes_one_boundary_earlier() -> None:
    """The last token is always computed, so b tokens never hit at b."""
    rules = HybridRules(layout_of((AttentionKind.STATE, 8, None)))
    assert [16, 24] == [rules.longest_hit(n, lambda p, b: True) for n in (24, 25)]


def test_each_block_is_probed_about_once() -> None:
    """A useless window costs one probe per chunk, not one per block of the window."""
    layout = layout_of((AttentionKind.FULL, 1, None), (AttentionKind.WINDOW, 1, 512))
    probes = 0

    def has_block(position: int, block: int) -> bool:
        nonlocal probes
        probes += 1
        return position == 0 or block % 256 != 0

    assert 0 == HybridRules(layout).longest_hit(4097, has_block)
    assert probes <= 2 * 4096
