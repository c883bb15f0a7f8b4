"""Copies between device and host, by size of a page."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvcellar.device.trial import Trial, TrialShape, open_trial
from kvcellar.transfer.jobs import Direction

CACHE_BYTES = 128 * 2**20  # far beyond any processor's own cache
NUM_ROUNDS = 7


@dataclass(frozen=True, slots=True)
class CopySpeed:
    """Random blocks, many at a time, with nothing else going on.

    Attributes:
        page_bytes: of one block in one layer; the pieces that are copied.
        load_bytes_per_second: host to device.
        store_bytes_per_second: device to host.
    """

    page_bytes: int
    load_bytes_per_second: float
    store_bytes_per_second: float


@dataclass(frozen=True, slots=True)
class CopySpeeds:
    """All sizes on one device.

    Attributes:
        pin_bytes_per_second: locking host memory for the device; None if it is not.
    """

    device_name: str
    sizes: tuple[CopySpeed, ...]
    pin_bytes_per_second: float | None

    def of(self, page_bytes: int) -> CopySpeed:
        """The speeds of a size that was measured."""
        return next(size for size in self.sizes if size.page_bytes == page_bytes)


def measure_copies(
    kind: str, sizes: Sequence[int], on_size: Callable[[int], None]
) -> CopySpeeds:
    """Measure every size, ascending.

    Args:
        kind: ``"cpu"`` or ``"cuda"``.
        sizes: bytes of a page; each once.
        on_size: told of each size before it is measured.

    Raises:
        ConfigError: there is no such device, or not the memory.
    """
    speeds = []
    for page_bytes in sizes:
        on_size(page_bytes)
        with open_trial(kind, TrialShape(page_bytes, CACHE_BYTES)) as trial:
            loaded, stored = (
                bytes_per_second(trial, direction)
                for direction in (Direction.LOAD, Direction.STORE)
            )
        speeds.append(CopySpeed(page_bytes, loaded, stored))
    pinned = None
    if trial.pin_seconds:
        pinned = trial.pinned_bytes / trial.pin_seconds
    return CopySpeeds(trial.name, tuple(speeds), pinned)


def bytes_per_second(
    trial: Trial,
    direction: Direction,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """The median over some rounds; the first warms up."""
    found = []
    for seed in range(NUM_ROUNDS + 1):
        job = trial.job(direction, seed)
        started = clock()
        num_bytes = trial.device.copy(job, trial.device.fence())
        found.append(num_bytes / (clock() - started))
    return statistics.median(found[1:])
