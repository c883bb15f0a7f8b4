"""Playing all cells, on as many processes as there are cores, in a stable order."""

import concurrent.futures
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

from kvcellar.errors import CellarError
from kvcellar.replay.grid_cell import GridCell, Played, play
from kvcellar.replay.trace import Trace

OnProgress = Callable[[int, int], None]
"""Called with requests admitted so far, in all cells, and cells that have ended."""

_POLL_SECONDS = 0.2
_NUM_REQUESTS_PER_REPORT = 64


def default_processes() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_grid(
    trace: Trace,
    cells: Sequence[GridCell],
    num_processes: int,
    on_progress: OnProgress,
) -> list[Played]:
    """Play the trace through every cell.

    The result is in the order of the cells and does not depend on ``num_processes``.

    Raises:
        CellarError: a process was ended from outside.
    """
    num_processes = min(num_processes, len(cells))
    if num_processes <= 1:
        return _run_here(trace, cells, on_progress)
    try:
        return _run_apart(trace, cells, num_processes, on_progress)
    except BrokenProcessPool as error:
        raise CellarError(
            "a process of the replay was ended from outside, perhaps for its memory; "
            "try fewer --processes"
        ) from error


def _run_here(
    trace: Trace, cells: Sequence[GridCell], on_progress: OnProgress
) -> list[Played]:
    played: list[Played] = []
    num_admitted = 0

    def count() -> None:
        nonlocal num_admitted
        num_admitted += 1
        if num_admitted % _NUM_REQUESTS_PER_REPORT == 0:
            on_progress(num_admitted, len(played))

    for cell in cells:
        played.append(play(trace, cell.configuration, count))
        on_progress(num_admitted, len(played))
    return played


# -- in other processes ----------------------------------------------------------------


@dataclass(slots=True)
class _Worker:
    """What a worker process keeps: the trace, and the count shared by all."""

    trace: Trace
    num_admitted: Any  # a synchronised integer; the library has no name for its type
    num_unreported: int = 0

    def count(self) -> None:
        self.num_unreported += 1
        if self.num_unreported == _NUM_REQUESTS_PER_REPORT:
            self.report()

    def report(self) -> None:
        with self.num_admitted.get_lock():
            self.num_admitted.value += self.num_unreported
        self.num_unreported = 0


_workers: list[_Worker] = []  # of this process: none, or one in a worker


def _start_worker(trace: Trace, num_admitted: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    _workers.append(_Worker(trace, num_admitted))


def _play(cell: GridCell) -> Played:
    (worker,) = _workers
    played = play(worker.trace, cell.configuration, worker.count)
    worker.report()
    return played


def _run_apart(
    trace: Trace,
    cells: Sequence[GridCell],
    num_processes: int,
    on_progress: OnProgress,
) -> list[Played]:
    context = multiprocessing.get_context("spawn")
    num_admitted = context.Value("q", 0)
    executor = ProcessPoolExecutor(
        num_processes, context, _start_worker, (trace, num_admitted)
    )
    with executor:
        try:
            futures = [executor.submit(_play, cell) for cell in cells]
            _wait(futures, lambda done: on_progress(num_admitted.value, done))
            return [future.result() for future in futures]
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _wait(futures: Sequence["Future[Played]"], on_done: Callable[[int], None]) -> None:
    """Wait for all, or for the first that fails."""
    pending = set(futures)
    while pending:
        done, pending = concurrent.futures.wait(
            pending, _POLL_SECONDS, concurrent.futures.FIRST_COMPLETED
        )
        for future in done:
            future.result()
        on_done(len(futures) - len(pending))
