"""The race hunt: clean on a right device, and it notices a wrong one."""

import pytest

from kvcellar.testing.fake_driver import COMPUTE, RANDOM, FakeDriver
from kvcellar.testing.gpu.faults import ForwardingDriver, Hasty, Unfenced, Unordered
from kvcellar.testing.gpu.hunt import Hunt, HuntFigures
from kvcellar.testing.gpu.machine import FakeMachine
from kvcellar.testing.gpu.rig import Rig, Shape

HASTES = (
    frozenset({RANDOM}),
    frozenset(),
    frozenset({COMPUTE}),
    frozenset({COMPUTE, "store"}),
    frozenset({COMPUTE, "load"}),
    frozenset({"store", "load"}),
)
SHAPE = Shape(groups=((4, 2), (5,)), num_blocks=10, blocks_per_chunk=2, host_cells=12)


def hunt(
    eager: frozenset[str],
    seed: int,
    fault: type[ForwardingDriver] | None = None,
    *,
    is_pinned: bool = True,
) -> HuntFigures:
    machine = FakeMachine(SHAPE.num_words, FakeDriver(eager, seed=seed, patience=12))
    driver = fault(machine.driver) if fault is not None else None
    rig = Rig(machine, SHAPE, driver=driver, is_pinned=is_pinned, piece_bytes=4096)
    try:
        return Hunt(rig, seed).run(300)
    finally:
        rig.close()


@pytest.mark.parametrize("is_pinned", [True, False])
@pytest.mark.parametrize("eager", HASTES, ids=lambda names: "+".join(sorted(names)))
def test_no_interleaving_gives_a_wrong_byte(
    eager: frozenset[str], *, is_pinned: bool
) -> None:
    """Three hundred random steps, every block and cell compared again and again."""
    figures = hunt(eager, seed=len(eager), is_pinned=is_pinned)
    assert (300, 0, 0) == (figures.num_steps, figures.num_wrong, figures.num_failed)
    assert figures.num_jobs > 100
    assert figures.num_compared > 100


@pytest.mark.parametrize("fault", [Unfenced, Unordered, Hasty])
def test_every_planted_fault_is_found(fault: type[ForwardingDriver]) -> None:
    """On some device a driver that forgets one thing gives wrong bytes."""
    assert any(hunt(eager, 1, fault).num_wrong for eager in HASTES)
