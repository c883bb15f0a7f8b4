"""A new prompt is weighed against what is held, and keeps resume points where its
parts fare differently."""

import pytest
from full_device import FullDevice
from small_engine import CHUNK, GROUPS, SmallEngine, keys, used_twice

from kvcellar.core import events
from kvcellar.reasons import MissReason

MODES = ["eager", "lazy"]


@pytest.mark.parametrize("name", GROUPS)
def test_a_prompt_that_is_turned_away_is_outranked_and_comes_in_the_second_time(name):
    """And is found the third time."""
    engine = used_twice(name)
    for found, lacking, held in (
        (0, {MissReason.NEVER_SEEN: 4}, "abcd"),
        (0, {MissReason.OUTRANKED: 4}, "wxyz"),
        (4, {}, "wxyz"),
    ):
        assert found == engine.serve("wxyz", handed_over=(4 * CHUNK,))
        assert (lacking, [held]) == (engine.lacking, engine.held)


@pytest.mark.parametrize(
    ("wishes", "held"),
    [
        ({}, "abcd"),
        ({"tags": ("a",)}, "abcd"),
        ({"keep_seconds": 9.0}, "wxyz"),
        ({"keep_after_arrival_seconds": 9.0}, "wxyz"),
        ({"tenant": "t"}, "wxyz"),
        ({"priority": 1}, "wxyz"),
        ({"priority": -1}, "abcd"),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_what_its_user_keeps_or_a_tenant_pays_for_is_not_weighed(mode, wishes, held):
    """A higher priority is, in a class of its own."""
    engine = used_twice(mode=mode, lease_share=1.0, tenant_share=1.0)
    engine.serve("wxyz", **wishes)
    engine.lose("wxyz")
    assert [held] == engine.held


def test_what_is_of_higher_priority_stays():
    """Though the newcomer is worth as much as what was used as often."""
    engine = SmallEngine()
    engine.serve("abcd", priority=1)
    for _ in range(2):
        engine.serve("wxyz")
        assert ["abcd"] == engine.held


@pytest.mark.parametrize(
    ("wishes", "held"),
    [
        ({"skip_store": True}, ["abcd"]),
        ({"max_store_tokens": CHUNK}, ["abc", "w"]),
        ({}, ["wxyz"]),
    ],
)
def test_nothing_goes_for_what_is_not_wanted_of_a_prompt(wishes, held):
    """All that is held is worth less than what comes, being older."""
    engine = SmallEngine()
    engine.serve("abcd")
    engine.serve("wxyz", **wishes)
    assert held == engine.held


@pytest.mark.parametrize("name", ["chunks", "windows"])
def test_a_prompt_that_is_cut_off_can_be_resumed_at_the_cut(name):
    """Room for two more chunks with what they take besides, of four."""
    engine = used_twice(name, 6, 2)
    assert 0 == engine.serve("mnop")
    assert ["abcd", "mn"] == engine.held
    assert 2 == engine.serve("mnop")
    assert {MissReason.OUTRANKED: 2} == engine.lacking


def test_a_prompt_with_a_state_is_cut_off_nowhere():
    """The engine sets none aside there."""
    engine = used_twice("states", 6, 2)
    engine.serve("mnop", handed_over=(2 * CHUNK, 4 * CHUNK))
    assert ["abcd"] == engine.held


def test_what_second_touch_admits_of_a_prompt_can_be_resumed_at_its_end():
    """Two prompts have shared two chunks; the third finds them."""
    options = {"eviction_policy": "lru", "admission": "second-touch"}
    engine = SmallEngine("windows", 9, 9, **options)
    assert [0, 0, 2] == [engine.serve(text) for text in ("ab", "abcd", "abxy")]


def test_an_answer_is_not_stored_behind_a_cut():
    """Its chunks are outranked as well."""
    engine = used_twice(num_chunks=5)
    name, hashes, device = "r", keys("wxyz++"), FullDevice()
    engine.handle(events.LookUp(name, hashes[:4], 4 * CHUNK + 1, 0))
    for first, end in ((0, 4), (4, 6)):
        tokens = (hashes[:end], 4 * CHUNK + 1, first * CHUNK, end * CHUNK)
        engine.handle(events.TokensComputed(name, *tokens, device))
    engine.handle(events.RequestFinished(name))
    assert ["abcd", "w"] == engine.held


@pytest.mark.parametrize("policy", ["lru", "lru-2", "lrfu", "s3-fifo", "adaptive"])
@pytest.mark.parametrize("mode", MODES)
def test_other_orders_let_everything_in(mode, policy):
    """`adaptive` too while it follows LRU."""
    engine = used_twice(mode=mode, eviction_policy=policy)
    engine.serve("wxyz")
    engine.lose("wxyz")
    assert "wxyz" in engine.held


RETURNS = [
    ("windows", {}, 4),
    ("windows", {"eviction_policy": "lrfu"}, 4),
    ("windows", {"eviction_policy": "lru"}, 0),
    ("windows", {"superseded_first": True}, 0),
    ("windows", {"placement": "turn-end"}, 0),
    ("windows", {"mode": "lazy"}, 0),
    ("states", {}, 0),
    ("chunks", {"eviction_policy": "lru"}, 4),
]


@pytest.mark.parametrize(("name", "options", "found"), RETURNS)
def test_a_prompt_that_returns_can_be_resumed_where_it_was_known_up_to(
    name, options, found
):
    """Not where such a resume point would be the first thing to go, or is not wanted,
    nor where the engine sets no state aside."""
    engine = SmallEngine(name, 20, 20, **options)
    for text in ("abcd", "abcdxy"):
        engine.evict_all()
        engine.serve(text, handed_over=(len(text) * CHUNK,))
        engine.lose(text)
    assert ["abcdxy"] == engine.held
    assert found == engine.serve("abcdmn")


def test_what_was_turned_away_is_known_as_well():
    """It leaves a resume point at its end when it comes in with more behind it."""
    engine = used_twice("windows", 6, 3, placement="junctions")
    engine.serve("mnop" + "qr")
    engine.evict_all()
    engine.serve("mnop" + "st")
    assert 4 == engine.serve("mnop" + "uv")
