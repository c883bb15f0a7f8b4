"""The ordering rules of design.md, section 8, on a device that is late or early."""

import itertools

import pytest

from kvcellar.testing.fake_driver import COMPUTE, RANDOM, FakeDriver
from kvcellar.testing.gpu.machine import FakeMachine
from kvcellar.testing.gpu.ordering import PLAYS, Play, play
from kvcellar.testing.gpu.rig import Shape

STREAMS = (COMPUTE, "store", "load")
HASTES = [
    frozenset(names)
    for count in range(len(STREAMS) + 1)
    for names in itertools.combinations(STREAMS, count)
]
SHAPES = (
    Shape(),
    Shape(blocks_per_chunk=3),
    Shape(groups=((8, 4), (3,)), is_block_outermost=True),
)
EACH_PLAY = pytest.mark.parametrize("chosen", PLAYS, ids=lambda p: p.rule)


def is_right(
    chosen: Play, eager: frozenset[str], *, is_faulty: bool, seed: int = 0
) -> bool:
    """Play one rule on every shape."""
    return all(
        play(
            chosen,
            FakeMachine(shape.num_words, FakeDriver(eager, seed=seed)),
            shape,
            is_faulty=is_faulty,
        )
        for shape in SHAPES
    )


@EACH_PLAY
@pytest.mark.parametrize("eager", HASTES, ids=lambda names: "+".join(sorted(names)))
def test_rule_holds_however_late_each_stream_is(
    chosen: Play, eager: frozenset[str]
) -> None:
    """Whichever streams run early and whichever late, every byte is right."""
    assert is_right(chosen, eager, is_faulty=False)


@EACH_PLAY
def test_rule_holds_in_random_interleavings(chosen: Play) -> None:
    """Twenty seeded interleavings, and every byte is right."""
    for seed in range(20):
        assert is_right(chosen, frozenset({RANDOM}), is_faulty=False, seed=seed)


@EACH_PLAY
def test_rule_is_noticed_when_removed(chosen: Play) -> None:
    """A driver that forgets what the rule needs gives wrong bytes somewhere."""
    assert not all(is_right(chosen, eager, is_faulty=True) for eager in HASTES)
