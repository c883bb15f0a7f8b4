"""Ranks that are threads of one process, for tests of what ranks tell each other."""

import pickle
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from kvcellar.integrations.vllm.exchange import values_under

T = TypeVar("T")

_WAIT_SECONDS = 60.0


class LocalExchange:
    """One rank's end; ``gather`` waits until every rank's thread has called it.

    Values are pickled on the way, as between processes.

    Args:
        rank: its number.
        board: what is handed in, by rank; shared by all.
        barrier: where all ranks wait for each other; shared by all.
    """

    def __init__(
        self, rank: int, board: list[bytes], barrier: threading.Barrier
    ) -> None:
        self.rank = rank
        self.num_ranks = len(board)
        self._board = board
        self._barrier = barrier

    def gather(self, name: str, value: T) -> list[T]:
        """See ``Exchange``.

        Raises:
            threading.BrokenBarrierError: a rank has not come.
        """
        self._board[self.rank] = pickle.dumps((name, value))
        self._barrier.wait(_WAIT_SECONDS)
        found = [pickle.loads(packed) for packed in self._board]
        self._barrier.wait(_WAIT_SECONDS)
        return values_under(name, found)


def local_exchanges(num_ranks: int) -> list[LocalExchange]:
    """One end for each rank."""
    board, barrier = [b""] * num_ranks, threading.Barrier(num_ranks)
    return [LocalExchange(rank, board, barrier) for rank in range(num_ranks)]


def run_together(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Run each call in a thread of its own; the first one that raised raises here."""
    if len(calls) == 1:
        return [calls[0]()]
    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(call) for call in calls]
    return [future.result() for future in futures]
