"""In lazy mode a path is weighed when the device is about to lose it."""

import pytest
from full_device import FullDevice
from small_engine import SmallEngine, used_twice

from kvcellar.reasons import MissReason

CUT = ["chunks", "windows"]


def lazy(*sizes):
    """An engine that holds a prompt of four chunks that was used twice."""
    return used_twice(*sizes, mode="lazy")


def test_what_waits_pushes_nothing_out():
    """Whatever it will be worth."""
    engine = lazy()
    engine.serve("wxyz", priority=9)
    assert ["abcd"] == engine.held


@pytest.mark.parametrize("name", CUT)
def test_what_would_be_the_first_to_go_stays_out_and_comes_in_the_second_time(name):
    """By then it has been used twice, and later."""
    engine = lazy(name)
    for found, lacking, held in (
        (0, {MissReason.NEVER_SEEN: 4}, "abcd"),
        (0, {MissReason.OUTRANKED: 4}, "wxyz"),
        (4, {}, "wxyz"),
    ):
        assert found == engine.serve("wxyz")
        assert lacking == engine.lacking
        engine.lose("wxyz")
        assert [held] == engine.held
        assert not engine.planner._stores.waiting.chunks
    assert 0 == engine.planner.counters.lost_chunks


@pytest.mark.parametrize("name", CUT)
def test_every_prompt_that_ended_on_a_path_while_it_waited_counts(name):
    """Two did; so it is worth what was used twice, but longer ago."""
    engine = lazy(name)
    for _ in range(2):
        engine.serve("wxyz")
    engine.lose("wxyz")
    assert ["wxyz"] == engine.held


@pytest.mark.parametrize("name", CUT)
def test_a_path_is_cut_off_behind_a_prompt_that_ended_on_it(name):
    """Two prompts have used the first half, and one of them all. A use of the part that
    is turned away is one of what is before it."""
    engine = lazy(name, 6, 3)
    engine.serve("wx")
    engine.serve("wxyz")
    engine.lose("wxyz")
    assert ["abcd", "wx"] == engine.held
    assert 2 == engine.index.nodes[b"wx"].num_uses
    assert 2 == engine.serve("wxyz")
    assert {MissReason.OUTRANKED: 2} == engine.lacking


class EmptyDevice(FullDevice):
    """It has lost everything already."""

    def find(self, group_id, block_hash):
        return 0


def test_what_is_turned_away_is_not_lost_as_well():
    """Two of four chunks are let in, and the device has none of them any more."""
    engine = lazy("chunks", 6)
    engine.serve("wxyz")
    engine.lose_blocks([(0, b"wxyz")], EmptyDevice())
    assert ["abcd"] == engine.held
    assert 0 == engine.planner.counters.lost_chunks
    engine.lose_blocks([(0, b"wx")], EmptyDevice())
    assert 1 == engine.planner.counters.lost_chunks


def test_a_use_of_what_is_turned_away_is_one_of_what_it_hangs_on():
    """Whether anything of it comes in or not."""
    engine = lazy()
    engine.serve("abyz")
    engine.lose("abyz")
    assert ["abcd"] == engine.held
    assert 1 == engine.index.nodes[b"ab"].num_uses


@pytest.mark.parametrize(
    ("name", "held"), [("chunks", ["abcd", "wx"]), ("windows", ["abcd"])]
)
def test_a_path_is_cut_off_only_where_a_checkpoint_waits(name, held):
    """Room for half of it, at whose end nobody could resume; chunks suffice alone."""
    engine = lazy(name, 6, 3)
    engine.serve("wxyz")
    engine.lose("wxyz")
    assert held == engine.held


@pytest.mark.parametrize(("num_uses", "held"), [(1, "abcd"), (3, "wxyz")])
def test_one_block_may_take_several_chunks_along(num_uses, held):
    """Two checkpoints share it, and the path to the deeper one passes the other; so it
    has come, or was turned away, when its own turn comes."""
    engine = lazy("wide", 4, 2)
    for _ in range(2):
        engine.serve("abcd")
    for text in ("wxyz", "wxy") * num_uses:
        engine.serve(text)
    engine.lose_blocks([(1, b"wxy")])
    assert [held] == engine.held
    assert not engine.planner._stores.waiting.chunks


def test_what_comes_in_late_was_used_when_it_was_used():
    """Not when the device lost it; of equals what was used since then stays."""
    engine = SmallEngine(num_chunks=8, mode="lazy")
    engine.serve("abcd")
    engine.serve("mnop")
    engine.lose("mnop")
    engine.now += 9.0
    engine.lose("abcd")
    assert 1.0 == engine.index.nodes[b"abcd"].used_at
    assert engine.index.evict_one()
    assert ["abc", "mnop"] == engine.held


def test_every_part_of_a_path_was_used_when_it_was_used():
    """The end's use is the later one here, and then the earlier one."""
    for first, second in (("ab", "abcd"), ("abcd", "ab")):
        engine = SmallEngine(num_chunks=8, mode="lazy")
        engine.serve(first)
        engine.serve(second)
        engine.lose("abcd")
        used = {t: engine.index.nodes[t.encode()].used_at for t in (first, second)}
        assert {first: 1.0, second: 2.0} == used
