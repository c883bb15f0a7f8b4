"""Which boundaries get a checkpoint."""

from hypothesis import given
from hypothesis import strategies as st
from layouts import FULL, LAYOUTS, STATE, WINDOW, group, layout_of

from kvcellar.attention.hybrid import HybridRules
from kvcellar.config import Settings
from kvcellar.core.placement import Placement
from kvcellar.core.record import RequestRecord
from kvcellar.index.node import Node

ROOT = Node(b"", None, (), needs_checkpoint=False)


def due(prompt, through, *, after=-1, junction=0, inside=()):
    record = RequestRecord(
        "r", ROOT, ROOT, junction=junction, inside=inside, placed_through=after
    )
    return Placement(32, 64).due(record, prompt, through)


def test_the_end_of_the_prompt_is_kept():
    """The last boundary inside the prompt, and no other of a long prefill."""
    assert [992] == due(1000, 992)
    assert [] == due(1000, 640)


def test_a_prompt_that_ends_on_a_boundary_keeps_two():
    """One for longer prompts, one for a repeat, which recomputes the last token."""
    assert [992, 1024] == due(1024, 1024)


def test_the_junction_is_kept_when_it_is_computed():
    """Not before, and not again once it has had its chance."""
    assert [320] == due(1000, 640, junction=320)
    assert [] == due(1000, 288, junction=320)
    assert [992] == due(1000, 992, junction=320, after=640)


def test_decoding_keeps_boundaries_at_its_spacing():
    """Absolute multiples of the spacing, beyond the prompt only."""
    assert [] == due(1000, 1023, after=992)
    assert [1024] == due(1000, 1024, after=1000)
    assert [1088, 1152] == due(1000, 1152, after=1024)


def test_the_spacing_is_whole_chunks():
    """A spacing that is not a multiple of the chunk is rounded up; default 256."""
    rules = HybridRules(LAYOUTS["deepseek-v4-like"])
    settings = Settings(decode_checkpoint_tokens=65)
    assert 96 == Placement.for_rules(rules, settings).decode_tokens
    assert 256 == Placement.for_rules(rules, Settings()).decode_tokens


def test_one_boundary_earlier_is_kept_where_it_is_cheap():
    """A long window of small blocks shares most of it; one state shares nothing."""
    long_window = layout_of(
        group(0, FULL, 32), group(1, WINDOW, 16, 1024), hash_tokens=16, alignment=32
    )
    state = layout_of(
        group(0, FULL, 32), group(1, STATE, 32), hash_tokens=32, alignment=32
    )
    for layout, expected in ((long_window, 32), (state, 0), (LAYOUTS["full"], 0)):
        placement = Placement.for_rules(HybridRules(layout), Settings())
        assert expected == placement.step_back_tokens
    assert [2048, 2080] == Placement(32, 256, 32).due(
        RequestRecord("r", ROOT, ROOT, placed_through=-1), 2100, 2080
    )


def test_spaced_boundaries_halve_the_way_to_the_end():
    """Half, a quarter, an eighth before the last boundary, down to one chunk."""
    placement = Placement(32, 64, spaced_per_token=1 / 32)
    assert (512, 768, 896, 960, 992) == placement.spaced(0, 1030)
    assert [512, 768] == due(1030, 800, inside=(512, 768, 896, 960, 992))
    # What was loaded is not computed again: only the new part is spaced.
    assert (960, 992) == placement.spaced(896, 1030)
    assert () == placement.spaced(0, 31)
    assert () == placement.spaced(1024, 1030)


def test_the_byte_budget_bounds_how_many_are_spaced():
    """One for so many tokens of the prefill: the first takes the middle."""
    placement = Placement(32, 64, spaced_per_token=1 / 400)
    assert () == placement.spaced(0, 400)
    assert (224,) == placement.spaced(0, 420)
    assert (512, 768) == placement.spaced(0, 1030)
    assert () == Placement(32, 64).spaced(0, 1030)


def test_a_share_of_the_bytes_pays_for_so_many():
    """Chunks of 32 tokens and checkpoints of two blocks of 32, all of one size."""
    layout = layout_of(
        group(0, FULL, 32), group(1, WINDOW, 32, 64), hash_tokens=32, alignment=32
    )
    quarter = Placement.for_rules(
        HybridRules(layout), Settings(spaced_checkpoint_share=0.25)
    )
    # A quarter of 23 chunks pays for two checkpoints, of 24 for three.
    assert (384, 576) == quarter.spaced(0, 24 * 32)[:2]
    assert [2, 3] == [len(quarter.spaced(0, n * 32)) for n in (23, 24)]


@given(
    share=st.floats(0, 5),
    num_tokens=st.integers(0, 5000),
    first=st.integers(0, 5000),
    name=st.sampled_from(sorted(LAYOUTS)),
)
def test_spaced_checkpoints_stay_within_their_share(share, num_tokens, first, name):
    """Whatever the layout: their bytes are at most the share of the chunks' bytes."""
    rules = HybridRules(LAYOUTS[name])
    placement = Placement.for_rules(rules, Settings(spaced_checkpoint_share=share))
    boundaries = placement.spaced(first, num_tokens)
    chunk_bytes = sum(rules.layout.cell_bytes(p) for p in rules.chunk_positions)
    spent = sum(
        len(blocks) * rules.layout.cell_bytes(position)
        for boundary in boundaries
        for position, blocks in rules.checkpoint_blocks(boundary)
    )
    num_new = max(num_tokens - first, 0) / rules.chunk_tokens
    assert spent <= share * chunk_bytes * num_new * (1 + 1e-9)
    assert all(b > first and b % rules.chunk_tokens == 0 for b in boundaries)
    assert len(set(boundaries)) == len(boundaries)


def test_where_states_are_set_aside_nothing_else_is_spaced():
    """The engine hands its own boundaries over; others could not be stored."""
    state = layout_of(
        group(0, FULL, 32), group(1, STATE, 32), hash_tokens=32, alignment=32
    )
    assert 0 == Placement.for_rules(HybridRules(state), Settings()).spaced_per_token


def test_short_prompts_keep_nothing():
    """Below one chunk there is no boundary."""
    assert [] == due(20, 20)
