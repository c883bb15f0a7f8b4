"""Ranks that share an arena, as threads of one process."""

import os
import threading
from collections.abc import Callable
from typing import TypeVar

from kvcellar.transfer.meeting import Meeting

LONG_SECONDS = 30.0  # far above what any step needs; reached only by a bug
T = TypeVar("T")


def meetings(num_ranks: int, timeout_seconds: float = LONG_SECONDS) -> list[Meeting]:
    """One for each rank, joined by pipes."""
    incoming = [{} for _ in range(num_ranks)]
    outgoing = [{} for _ in range(num_ranks)]
    for reader in range(num_ranks):
        for writer in range(num_ranks):
            if reader != writer:
                incoming[reader][writer], outgoing[writer][reader] = os.pipe()
    return [
        Meeting(ins, outs, timeout_seconds)
        for ins, outs in zip(incoming, outgoing, strict=True)
    ]


def in_threads(work: Callable[[int], T], num_ranks: int) -> list[T]:
    """What ``work`` returns for each rank, all at once."""
    results: dict[int, T] = {}

    def run(rank: int) -> None:
        results[rank] = work(rank)

    threads = [threading.Thread(target=run, args=(r,)) for r in range(num_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_SECONDS)
    return [results[rank] for rank in range(num_ranks)]


class ThreadGather:
    """Exchanges between ranks that are threads of one process."""

    def __init__(self, num_ranks: int) -> None:
        self._barrier = threading.Barrier(num_ranks)
        self._given: list[object] = [None] * num_ranks

    def of(self, rank: int) -> Callable[[object], list[object]]:
        """The exchange as one rank sees it."""

        def gather(given: object) -> list[object]:
            self._given[rank] = given
            self._barrier.wait(LONG_SECONDS)
            heard = list(self._given)
            self._barrier.wait(LONG_SECONDS)
            return heard

        return gather
