"""All checks of one accelerator, one after the other, as plain figures.

A check that can fail says so in ``failures``; the others only measure.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from kvcellar.testing.gpu.faults import ForwardingDriver, Hasty, Unfenced, Unordered
from kvcellar.testing.gpu.hunt import Hunt, HuntFigures
from kvcellar.testing.gpu.machine import Machine
from kvcellar.testing.gpu.ordering import PLAYS, Play, play
from kvcellar.testing.gpu.pinning_speed import pinning_speed
from kvcellar.testing.gpu.rig import Rig, Shape
from kvcellar.testing.gpu.shapes import MODELS, PAGE_BYTES, model_shape, page_shape
from kvcellar.testing.gpu.speed import copy_speeds, overlap

SECTIONS = ("ordering", "hunt", "pinning", "copies", "overlap")


@dataclass(frozen=True)
class Sizes:
    """How much is done.

    Attributes:
        cache_bytes: of each measured cache, and of host memory for it.
        ordering: the cache of the ordering plays.
        hunting: the cache of the race hunt.
        batches: blocks per job.
        timed_bytes: about as many are copied in one measurement.
        num_rounds: repetitions of the overlap measurement.
        hunt_steps: steps of each hunt.
        hunt_seeds: hunts on the right driver.
        pinned_bytes: of the mapping whose pinning is timed.
        num_attempts: how often a planted fault may go unnoticed.
    """

    cache_bytes: int
    ordering: Shape
    hunting: Shape
    batches: tuple[int, ...]
    timed_bytes: int
    num_rounds: int
    hunt_steps: int
    hunt_seeds: int
    pinned_bytes: int
    num_attempts: int

    @property
    def num_words(self) -> int:
        """Words of a cache that is large enough for every check."""
        shapes = [self.ordering, self.hunting, *(s for _, s in self.measured())]
        return max(shape.num_words for shape in shapes)

    @property
    def longest_span(self) -> int:
        """Words of the longest page that a check fills or compares."""
        shapes = (self.ordering, self.hunting)
        return max(sum(pages) for shape in shapes for pages in shape.groups)

    def measured(self) -> Iterator[tuple[str, Shape]]:
        """Name and shape of every cache whose copies are timed."""
        for name in MODELS:
            yield name, model_shape(name, self.cache_bytes)
        for page_bytes in PAGE_BYTES:
            name = f"{page_bytes // 2**10} KiB pages"
            yield name, page_shape(page_bytes, self.cache_bytes)


REAL = Sizes(
    cache_bytes=2 * 2**30,
    ordering=Shape(((2**16,) * 4, (2**17,)), num_blocks=48, host_cells=64),
    hunting=Shape(
        ((2**13, 2**12), (2**13,)), num_blocks=64, blocks_per_chunk=2, host_cells=64
    ),
    batches=(4, 32, 256),
    timed_bytes=2**30,
    num_rounds=7,
    hunt_steps=3000,
    hunt_seeds=8,
    pinned_bytes=8 * 2**30,
    num_attempts=5,
)
"""For a GPU: minutes, and a few GiB on either side."""

TINY = Sizes(
    cache_bytes=2**20,
    ordering=Shape(),
    hunting=Shape(((4, 2), (5,)), num_blocks=10, blocks_per_chunk=2, host_cells=12),
    batches=(2,),
    timed_bytes=2**20,
    num_rounds=1,
    hunt_steps=200,
    hunt_seeds=2,
    pinned_bytes=2**20,
    num_attempts=20,
)
"""For the fake: does everything run? The figures mean nothing."""


@dataclass
class Report:
    """What the checks found.

    Attributes:
        failures: a sentence for each check that failed.
        sections: figures by section.
    """

    failures: list[str] = field(default_factory=list)
    sections: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


class Checks:
    """The sections, each a method that yields rows.

    Args:
        make_machine: an accelerator for one check: a new one, or the same.
        node: memory node near it, if that is known.
    """

    def __init__(
        self, make_machine: Callable[[], Machine], sizes: Sizes, node: int | None
    ) -> None:
        self._make_machine = make_machine
        self._sizes = sizes
        self._node = node
        self.report = Report()

    def run(self, section: str) -> None:
        """Run one section of ``SECTIONS`` into the report."""
        rows = self.report.sections.setdefault(section, [])
        rows.extend(getattr(self, f"_{section}")())

    def _ordering(self) -> Iterator[dict[str, Any]]:
        for chosen in PLAYS:
            is_right = all(self._plays(chosen, 3, is_faulty=False))
            is_noticed = not all(
                self._plays(chosen, self._sizes.num_attempts, is_faulty=True)
            )
            if not is_right:
                self.report.failures.append(f"wrong bytes: {chosen.rule}")
            if not is_noticed:
                self.report.failures.append(
                    f"not noticed without it: {chosen.rule} ({chosen.fault.__name__})"
                )
            yield {
                "rule": chosen.rule,
                "is_right": is_right,
                "fault": chosen.fault.__name__,
                "is_noticed": is_noticed,
            }

    def _plays(self, chosen: Play, count: int, *, is_faulty: bool) -> Iterator[bool]:
        for _ in range(count):
            machine = self._make_machine()
            yield play(chosen, machine, self._sizes.ordering, is_faulty=is_faulty)

    def _hunt(self) -> Iterator[dict[str, Any]]:
        for seed in range(self._sizes.hunt_seeds):
            figures = self._hunted(seed, None)
            if figures.num_wrong or figures.num_failed:
                self.report.failures.append(f"race hunt {seed}: {figures}")
            yield {"fault": "", "seed": seed, **asdict(figures)}
        for fault in (Unfenced, Unordered, Hasty):
            all_figures = HuntFigures()
            for seed in range(self._sizes.num_attempts):
                all_figures = self._hunted(seed, fault)
                if all_figures.num_wrong:
                    break
            else:
                self.report.failures.append(f"race hunt missed {fault.__name__}")
            yield {"fault": fault.__name__, "seed": seed, **asdict(all_figures)}

    def _hunted(self, seed: int, fault: type[ForwardingDriver] | None) -> HuntFigures:
        machine = self._make_machine()
        driver = fault(machine.driver) if fault is not None else None
        rig = Rig(machine, self._sizes.hunting, driver=driver)
        try:
            return Hunt(rig, seed).run(self._sizes.hunt_steps)
        finally:
            rig.close()

    def _pinning(self) -> Iterator[dict[str, Any]]:
        yield asdict(
            pinning_speed(self._make_machine(), self._sizes.pinned_bytes, self._node)
        )

    def _copies(self) -> Iterator[dict[str, Any]]:
        for name, shape in self._sizes.measured():
            rig = Rig(self._make_machine(), shape, piece_bytes=2**36)
            try:
                for row in copy_speeds(
                    name, rig, self._sizes.batches, self._sizes.timed_bytes
                ):
                    yield {**asdict(row), "share": row.share}
            finally:
                rig.close()

    def _overlap(self) -> Iterator[dict[str, Any]]:
        for name, shape in self._sizes.measured():
            rig = Rig(self._make_machine(), shape, piece_bytes=2**36)
            try:
                found = overlap(rig, self._sizes.num_rounds)
                yield {"cache": name, **asdict(found), "slowdown": found.slowdown}
            finally:
                rig.close()
