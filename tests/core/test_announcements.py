"""What followers are told is what the planner could load, at every moment."""

import random

import pytest
from layouts import LAYOUTS
from planner_workload import MEMORY, Workload, assert_nothing_leaks, make_engine

from kvcellar.core import events
from kvcellar.index.states import State
from kvcellar.testing.fake_engine import FakeEngine


class Followed(FakeEngine):
    """Every request brings a description of its content along."""

    def __post_init__(self):
        super().__post_init__()
        self.announcements = self.offloader.announce()
        self.believed = set()

    def start(self, request_id, tokens, **options):
        self._handle(events.Arrived(request_id, content=object()))
        return super().start(request_id, tokens, **options)

    def listen(self):
        """Believe what was told; nothing twice, and nothing taken back untold."""
        for stored, removed in self.announcements.take():
            for cell in stored:
                assert cell not in self.believed
                self.believed.add(cell)
            for cell in removed:
                self.believed.remove(cell)

    def cells(self, *, only_ready):
        index = self.offloader.index
        for node in (*index.nodes.values(), *index.detached):
            if not only_ready or node.state is State.READY:
                yield from node.cells
            checkpoint = node.checkpoint
            if checkpoint and (not only_ready or checkpoint.state is State.READY):
                yield from checkpoint.cells


@pytest.mark.parametrize("failing", [None, "store", "move"])
@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("name", LAYOUTS)
def test_followers_believe_what_can_be_loaded(name, memory, failing):
    """All that is loadable was told; all that is believed has its bytes still."""
    for seed in range(3):
        rng = random.Random(seed)
        engine = make_engine(name, memory, Followed)
        workload = Workload(engine, rng)
        for _ in range(120):
            engine.failing = {failing} if failing and rng.random() < 0.2 else set()
            workload.step()
            engine.listen()
            ready = set(engine.cells(only_ready=True))
            there = set(engine.cells(only_ready=False))
            assert all(cell.notice for cell in there)
            assert ready <= engine.believed <= there
        engine.failing = set()
        assert_nothing_leaks(engine)
        engine.listen()
        assert set() == engine.believed
