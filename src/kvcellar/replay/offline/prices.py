"""Chunks and checkpoints: how much can be found, by putting a price on memory.

Let memory cost something between any two requests. A prompt pays for what it finds,
from its last use to now, and resumes where tokens found less price paid is the most:

    gain = sum over its runs of  num_chunks x (unit - chunk_bytes x price of the time)
           - the same for the windows at the place where it resumes

What all prompts gain together, and what all of memory would cost, is never less than
what can be found without prices, since whatever fits pays for no more than all of
memory. So *any* prices give an upper bound, and a search for good ones may stop at any
time. This is the Lagrangian dual of the interval problem. PFOO-U (Berger, Beckmann and
Harchol-Balter, Practical bounds on optimal caching with variable object sizes,
SIGMETRICS 2018) is the case of one price for all times; the search starts there.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvcellar.replay.offline.sizes import LeastSizes
from kvcellar.replay.offline.uses import Numbers, Uses

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Tails:
    """Windows at the ends of runs, [num_terms] each.

    Attributes:
        resumed: run at whose end a prompt resumes.
        read: run in which some of the windows' bytes lie.
        num_bytes: so many.
    """

    resumed: Numbers
    read: Numbers
    num_bytes: Floats


class PricedUses:
    """What prompts gain and take at given prices.

    A prompt need only be looked at where its runs end: inside a run each chunk more
    costs the same, and windows cost less and less more, so the best place is an end.

    Args:
        uses: of the trace; at least one.
        unit: tokens of a chunk.
        num_bytes: of memory.

    Attributes:
        highest_price: at which nothing is worth keeping from one request to the next.
    """

    def __init__(
        self, uses: Uses, sizes: LeastSizes, unit: int, num_bytes: int
    ) -> None:
        self._uses = uses
        self._unit = float(unit)
        self._num_bytes = float(num_bytes)
        self._chunk_bytes = float(sizes.chunk_bytes)
        self._num_chunks = uses.num_chunks.astype(np.float64)
        is_first = np.append(True, uses.later[1:] != uses.later[:-1])
        self._starts = np.flatnonzero(is_first)
        self._prompt = np.cumsum(is_first) - 1
        self._tails = _tails_of(uses, is_first, sizes)
        most = float(np.bincount(self._prompt, self._num_chunks).max())
        # Per chunk, or where chunks take no bytes for the state of a whole prompt.
        least_bytes = self._chunk_bytes or sum(sizes.tail_bytes) / most
        self.highest_price = self._unit / least_bytes

    def at(self, prices: Floats) -> tuple[float, Floats]:
        """The bound at some prices, and how to change them.

        Args:
            prices: tokens per byte from each request to the next, [num_requests].

        Returns:
            Tokens that at most can be found, and bytes left free after each request.
        """
        until = np.append(0.0, np.cumsum(prices))
        paid = until[self._uses.later] - until[self._uses.earlier]  # per byte
        chunks = self._num_chunks * (self._unit - self._chunk_bytes * paid)
        gained = np.cumsum(chunks)
        gained -= np.append(0.0, gained[self._starts[1:] - 1])[self._prompt]
        tails, num_runs = self._tails, len(paid)
        costs = tails.num_bytes * paid[tails.read]
        gained -= np.bincount(tails.resumed, costs, num_runs)
        best = np.maximum(np.maximum.reduceat(gained, self._starts), 0.0)
        bound = float(self._num_bytes * until[-1] + np.cumsum(best)[-1])
        return bound, self._num_bytes - self._taken(gained, best)

    def _taken(self, gained: Floats, best: Floats) -> Floats:
        """Bytes in use after each request if every prompt resumes where it is best."""
        num_runs, uses = len(gained), self._uses
        ends = np.flatnonzero((gained == best[self._prompt]) & (gained > 0.0))
        last = np.full(len(self._starts), -1)
        last[self._prompt[ends]] = ends
        is_found = np.arange(num_runs) <= last[self._prompt]
        taken = np.where(is_found, self._num_chunks * self._chunk_bytes, 0.0)
        tails = self._tails
        is_read = tails.resumed == last[self._prompt[tails.resumed]]
        taken += np.bincount(tails.read[is_read], tails.num_bytes[is_read], num_runs)
        num_requests = uses.num_requests
        change = np.bincount(uses.earlier, taken, num_requests)
        change -= np.bincount(uses.later, taken, num_requests)
        return np.cumsum(change)


def _tails_of(uses: Uses, is_first: npt.NDArray[np.bool_], sizes: LeastSizes) -> _Tails:
    """Lay the windows that resuming at each run's end reads over the runs before it."""
    resumed, read, num_bytes = [], [], []
    lengths, firsts = uses.num_chunks.tolist(), is_first.tolist()
    for run in range(len(lengths) if sizes.tail_bytes else 0):
        left, inside = sizes.tail_bytes, run
        while left:
            here, left = left[: lengths[inside]], left[lengths[inside] :]
            resumed.append(run)
            read.append(inside)
            num_bytes.append(float(sum(here)))
            if firsts[inside]:
                break
            inside -= 1
    return _Tails(
        np.array(resumed, np.int64), np.array(read, np.int64), np.array(num_bytes)
    )
