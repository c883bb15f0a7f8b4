"""The planner under random workloads: nothing wrong is ever loaded."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import LAYOUTS

from kvcellar.config import Settings
from kvcellar.index.checks import check_index
from kvcellar.layout.host import plan_geometry
from kvcellar.testing.fake_engine import FakeEngine

MEMORY = {"ample": 400, "tight": 24, "tiny": 9}  # in units of the largest cells


def make_engine(name, memory="ample", **options):
    layout = LAYOUTS[name]
    largest = max(layout.cell_bytes(p) for p in range(len(layout.groups)))
    host_bytes = MEMORY[memory] * largest * len(layout.groups)
    geometry = plan_geometry(layout, host_bytes)
    return FakeEngine(layout, geometry, Settings(**options))


class Workload:
    """Random prompts that share prefixes; any order of engine events."""

    def __init__(self, engine, rng):
        self.engine = engine
        self.rng = rng
        self.counter = 0
        self.history = [[]]
        self.length = 4 * engine.layout.chunk_tokens

    def step(self):
        engine, rng = self.engine, self.rng
        ready = [r for r in engine.requests.values() if not r.is_loading]
        roll = rng.random()
        if roll < 0.25 or not engine.requests:
            self._start()
        elif roll < 0.60 and ready:
            engine.compute(rng.choice(ready), rng.randint(1, self.length))
        elif roll < 0.75 and ready:
            self._decode(rng.choice(ready))
        elif roll < 0.90:
            self._finish(rng.choice(list(engine.requests.values())))
        elif roll < 0.91:
            engine.reset()
            for request in ready:
                self._finish(request)
        engine.run_jobs(rng.choice([0, 0, 1, 2, None]))

    def _start(self):
        rng = self.rng
        base = rng.choice(self.history)
        shared = base[: rng.randint(0, len(base))]
        new = [rng.randint(0, 3) for _ in range(rng.randint(1, self.length))]
        tokens = (shared + new)[: 6 * self.length]
        self.counter += 1
        self.engine.start(f"r{self.counter}", tokens, accept=rng.random() < 0.9)

    def _decode(self, request):
        if request.num_computed < len(request.tokens):
            self.engine.compute(request, len(request.tokens))
        for _ in range(self.rng.randint(1, self.length)):
            self.engine.decode(request, self.rng.randint(0, 3))

    def _finish(self, request):
        self.history.append(list(request.tokens))
        del self.history[:-12]
        self.engine.finish(request)


def assert_nothing_leaks(engine):
    for request in list(engine.requests.values()):
        engine.finish(request)
    engine.run_jobs()
    index = engine.offloader.index
    assert [] == [n for n in index.nodes.values() if n.pins]
    assert (0, 0, 0) == (index.root.pins, len(index.detached), len(engine.queue))
    assert {} == engine.offloader.records == engine.offloader.jobs
    check_index(index)
    assert engine.reset()
    assert 0 == engine.offloader.slabs.used_bytes


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_loaded_block_holds_its_prefix(name, memory):
    """Whatever the order of events, loads bring the right bytes and nothing leaks."""
    for seed in range(12):
        engine = make_engine(name, memory)
        workload = Workload(engine, random.Random(seed))
        for _ in range(150):
            workload.step()
            check_index(engine.offloader.index)
        assert_nothing_leaks(engine)


@pytest.mark.parametrize("failing", ["store", "load", "move"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_failed_copies_are_never_served(name, failing):
    """A failed store, load or move ends as a miss; later jobs are served right."""
    for seed in range(6):
        rng = random.Random(seed)
        engine = make_engine(name, "tight")
        workload = Workload(engine, rng)
        for _ in range(120):
            engine.failing = {failing} if rng.random() < 0.3 else set()
            workload.step()
            check_index(engine.offloader.index)
        engine.failing = set()
        assert_nothing_leaks(engine)


@pytest.mark.parametrize("name", LAYOUTS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_what_is_stored_can_be_hit(name, data):
    """With room for all, a prompt comes back up to its last boundary, and a longer one
    with it as prefix comes back as far."""
    engine = make_engine(name)
    chunk = engine.layout.chunk_tokens
    tokens = data.draw(
        st.lists(st.integers(0, 3), min_size=1, max_size=5 * chunk), label="tokens"
    )
    request = engine.start("first", list(tokens))
    while request.num_computed < len(tokens):
        engine.compute(request, data.draw(st.integers(1, 3 * chunk), label="step"))
    engine.finish(request)
    engine.run_jobs()
    again = engine.start("again", list(tokens))
    assert (len(tokens) - 1) // chunk * chunk == again.num_computed
    engine.run_jobs()
    longer = engine.start("longer", [*tokens, 9])
    assert len(tokens) // chunk * chunk == longer.num_computed
    engine.run_jobs()
    assert_nothing_leaks(engine)


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_third_of_a_common_prefix_hits_the_junction(name):
    """Where a second prompt leaves a known path a checkpoint is kept for the third."""
    engine = make_engine(name)
    chunk = engine.layout.chunk_tokens
    common = [1] * (3 * chunk + 1)
    for number, expected in enumerate((None, None, 3 * chunk)):
        request = engine.start(f"r{number}", [*common, *[number + 2] * (2 * chunk)])
        if expected is not None:
            assert expected == request.num_computed
        engine.run_jobs()
        engine.compute(request, 100 * chunk)
        engine.finish(request)
        engine.run_jobs()
