"""Random prompts for the planner on the fake engine, in any order of events."""

from layouts import LAYOUTS

from kvcellar.config import Settings
from kvcellar.core.checks import check_ledger
from kvcellar.core.controls import RequestControls
from kvcellar.index.checks import check_index
from kvcellar.layout.host import plan_geometry
from kvcellar.testing.fake_engine import FakeEngine

MEMORY = {"ample": 400, "tight": 24, "tiny": 9}  # in units of the largest cells


def make_engine(name, memory="ample", kind=FakeEngine, **options):
    layout = LAYOUTS[name]
    largest = max(layout.cell_bytes(p) for p in range(len(layout.groups)))
    host_bytes = MEMORY[memory] * largest * len(layout.groups)
    geometry = plan_geometry(layout, host_bytes)
    return kind(layout, geometry, Settings(**options))


class Workload:
    """Random prompts that share prefixes; any order of engine events."""

    def __init__(self, engine, rng, *, has_controls=False):
        self.engine = engine
        self.has_controls = has_controls
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
        options = {}
        if self.has_controls:
            options["controls"] = drawn_controls(rng)
            options["tenant"] = rng.choice([None, "a", "b"])
        self.engine.start(
            f"r{self.counter}", tokens, accept=rng.random() < 0.9, **options
        )

    def _decode(self, request):
        if request.num_computed < len(request.tokens):
            self.engine.compute(request, len(request.tokens))
        for _ in range(self.rng.randint(1, self.length)):
            self.engine.decode(request, self.rng.randint(0, 3))

    def _finish(self, request):
        self.history.append(list(request.tokens))
        del self.history[:-12]
        self.engine.finish(request)


def drawn_controls(rng):
    """Wishes of some request; the fake engine's clock moves a second per event."""
    return RequestControls(
        max_load_tokens=rng.choice([None, None, rng.randint(0, 200)]),
        max_store_tokens=rng.choice([None, None, rng.randint(0, 200)]),
        skip_load=rng.random() < 0.1,
        skip_store=rng.random() < 0.1,
        keep_seconds=rng.choice([0.0, 0.0, rng.uniform(1, 300)]),
        priority=rng.choice([0, 0, rng.randint(-2, 2)]),
    )


def assert_nothing_leaks(engine):
    for request in list(engine.requests.values()):
        engine.finish(request)
    engine.run_jobs()
    index = engine.offloader.index
    assert [] == [n for n in index.nodes.values() if n.pins]
    assert (0, 0, 0) == (index.root.pins, len(index.detached), len(engine.queue))
    assert {} == engine.offloader.records == engine.offloader.jobs
    check_index(index)
    check_ledger(engine.offloader.ledger)
    assert engine.reset()
    assert 0 == engine.offloader.slabs.used_bytes
