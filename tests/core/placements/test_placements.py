"""Which boundaries get a checkpoint under each set of rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layouts import FULL, STATE, WINDOW, group, layout_of

from kvcellar.attention.hybrid import HybridRules
from kvcellar.config import (
    DEFAULT_SPACED_SHARE,
    PLACEMENTS,
    Settings,
    settings_from_extra_config,
)
from kvcellar.core.placement import Placement
from kvcellar.core.placements.fixed import fixed_interval
from kvcellar.core.placements.geometric import geometric
from kvcellar.core.placements.prompt_end import prompt_ends
from kvcellar.core.placements.sets import RULE_SETS
from kvcellar.core.placements.turn_end import turn_ends
from kvcellar.core.record import RequestRecord
from kvcellar.errors import ConfigError
from kvcellar.index.node import Node

CHUNK = 32
WINDOWS = layout_of(
    group(0, FULL, CHUNK), group(1, WINDOW, CHUNK, 64), hash_tokens=32, alignment=32
)
ENDS = [1280]  # a prompt of 1,300 tokens: its last boundary
TURN = [1536]  # 300 tokens are decoded, every 256th boundary is kept


def kept(name, *, layout=WINDOWS, handed_over=()):
    """Boundaries of a prompt with a junction and a long answer, in one step."""
    rules = HybridRules(layout)
    placement = Placement.for_rules(rules, Settings(placement=name))
    root = Node(b"", None, (), needs_checkpoint=False)
    inside = placement.spaced(320, 1300)
    record = RequestRecord(
        "r", root, root, junction=320, inside=inside, placed_through=319
    )
    return placement.due(record, 1300, 1600, handed_over)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("prompt-end", ENDS),
        ("turn-end", [*ENDS, *TURN]),
        ("junctions", [320, *ENDS, *TURN]),
        # A quarter of 30 chunks pays for three checkpoints of two blocks each.
        ("fixed", [320, 544, 800, 1024, *ENDS, *TURN]),
        ("geometric", [320, 800, 1024 + 32, 1152 + 32, *ENDS, *TURN]),
    ],
)
def test_each_set_keeps_exactly_its_boundaries(name, expected):
    """The end of the prompt always; the others add to it one rule after another."""
    assert expected == kept(name)


def test_every_name_that_is_accepted_has_its_rules():
    """What the settings allow and what placement knows are the same names."""
    assert set(PLACEMENTS) == set(RULE_SETS)
    assert "geometric" == Settings().placement
    with pytest.raises(ConfigError, match="placement='all'"):
        settings_from_extra_config({"placement": "all"})


@pytest.mark.parametrize("name", PLACEMENTS)
def test_what_the_engine_hands_over_is_kept_under_all(name):
    """Recurrent state can be had in no other way."""
    state = layout_of(
        group(0, FULL, CHUNK), group(1, STATE, CHUNK), hash_tokens=32, alignment=32
    )
    assert {640, 1280} <= set(kept(name, layout=state, handed_over=(640, 641)))


@pytest.mark.parametrize("name", ["fixed", "geometric"])
def test_no_budget_leaves_nothing_inside_a_prefill(name):
    """Then both are what ``junctions`` is."""
    settings = Settings(placement=name, spaced_checkpoint_share=0.0)
    placement = Placement.for_rules(HybridRules(WINDOWS), settings)
    assert () == placement.spaced(0, 100_000)
    assert DEFAULT_SPACED_SHARE > 0


def test_fixed_cuts_a_prefill_into_equal_pieces():
    """Rounded down to whole chunks; as many as there is room for."""
    assert (256, 512, 768) == fixed_interval(0, 1024, CHUNK, 3)
    assert (480,) == fixed_interval(0, 992, CHUNK, 1)
    assert (32, 64) == fixed_interval(0, 96, CHUNK, 50)
    assert () == fixed_interval(0, 32, CHUNK, 50)
    assert () == fixed_interval(0, 992, CHUNK, 0)
    # What was loaded ends inside a chunk where the device held more than a chunk.
    assert (1024,) == fixed_interval(1000, 1088, CHUNK, 9)


def test_prompt_ends_and_turn_ends():
    """On a boundary a prompt keeps two; decoded boundaries lie beyond the prompt."""
    assert (992, 992, 992) == prompt_ends(1000, CHUNK, 0)
    assert (960, 960, 992) == prompt_ends(992, CHUNK, 32)
    assert [1280, 1536] == list(turn_ends(1024, 1536, 256))
    assert [] == list(turn_ends(1024, 1279, 256))


@given(
    first=st.integers(0, 400),
    num_chunks=st.integers(0, 200),
    most=st.integers(0, 30),
    spacing=st.sampled_from([fixed_interval, geometric]),
)
def test_spacing_stays_inside_the_prefill_and_its_number(
    first, num_chunks, most, spacing
):
    """Whole chunks, ascending, none twice, none at the ends."""
    last = num_chunks * CHUNK
    boundaries = spacing(first, last, CHUNK, most)
    assert len(boundaries) <= most
    assert list(boundaries) == sorted(set(boundaries))
    assert all(first < b < last and b % CHUNK == 0 for b in boundaries)
