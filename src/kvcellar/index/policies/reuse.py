"""How soon what was used so often, so deep in a prompt, is used again.

Runs of chunks are sorted into classes by their uses and their depth, and each class
counts, over the time since the last use, how long runs waited and how many of them
were used then. From the two follows what a byte earns that is kept on.
Source of the idea: Beckmann et al., LHD: Improving cache hit rate by maximizing hit
density, NSDI 2018. Uses that the device serves earn nothing here.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kvcellar.index.evictable import GHOSTS_PER_NODE
from kvcellar.index.policies.keyed import KeyedPolicy
from kvcellar.index.policies.lru import lru_key
from kvcellar.index.policies.policy import MEMORY_PROMPTS
from kvcellar.index.policies.runs import Run, find

Floats = NDArray[np.float64]

USE_BANDS = 4  # used once, twice, three times, more often
DEPTH_BANDS = 16  # by powers of two, in keys
NUM_AGES = 16  # one an octave, up to 18 hours; what is older counts as of that age
EDGES: Floats = np.exp2(np.arange(NUM_AGES + 1, dtype=np.float64)) - 1.0  # seconds
WIDTHS: Floats = np.diff(EDGES)
UPPER_EDGES: list[float] = [*EDGES[1:-1].tolist(), math.inf]

RANKED_EVERY = 50  # prompts between two looks at the figures
LEAST_FOLLOWED = 2**16  # chunks: a small cache must know of uses that come late, too
PRIOR_USES = 3.0  # a class is believed as much as its elders after so many uses


def class_of(num_uses: int, depth: int) -> int:
    """Class of what was used so often and ends so many keys from the root."""
    uses = min(max(num_uses, 1), USE_BANDS) - 1
    return uses * DEPTH_BANDS + min(max(depth, 1).bit_length(), DEPTH_BANDS) - 1


def age_band(seconds: float) -> int:
    """Band of a time since the last use."""
    if seconds <= 0.0:
        return 0
    return min((int(seconds) + 1).bit_length(), NUM_AGES) - 1


class _Noted:
    """What came since the last look at the figures: single additions take long.

    Attributes:
        uses: class, age band, and whether it counts.
        waited: class, and seconds.
        waiting: class, epoch, and how many more wait.
    """

    def __init__(self) -> None:
        self.uses: list[tuple[int, int, int]] = []
        self.waited: list[tuple[int, float]] = []
        self.waiting: list[tuple[int, int, int]] = []


class ReuseTimes:
    """Learns from every prompt.

    Args:
        most_chunks: chunks that are followed; the longest unused are given up.

    Attributes:
        density: what room earns that is kept on, by class and age band.
        now: when the latest prompt came, in seconds.
        num_prompts: that have come.
    """

    def __init__(self, most_chunks: int) -> None:
        num_classes = USE_BANDS * DEPTH_BANDS
        self.density: list[list[float]] = [[0.0] * NUM_AGES] * num_classes
        self.now = 0.0
        self._most_chunks = most_chunks
        self._num_chunks = 0
        self.num_prompts = 0
        self._root = Run([], None)
        self._leaves: KeyedPolicy[Run] = KeyedPolicy(lru_key)
        self._uses = np.zeros((num_classes, NUM_AGES))
        self._waited = np.zeros((num_classes, NUM_AGES))  # seconds
        # Runs that still wait, by class and by when they were used: an epoch each.
        self._waiting = np.zeros((num_classes, 1))
        self._epoch_starts = [0.0]
        self._first_epoch = 0
        self._noted = _Noted()

    @classmethod
    def of_cache(cls, num_chunks: int) -> "ReuseTimes":
        """For a cache that has room for so many."""
        return cls(max(GHOSTS_PER_NODE * num_chunks, LEAST_FOLLOWED))

    def observe(self, keys: Sequence[bytes], num_local: int, now: float) -> float:
        """A prompt has come.

        Args:
            keys: one per chunk.
            num_local: chunks that the device itself holds.

        Returns:
            When the part of it that is known was used before; ``now`` if none is.
        """
        self.now = now
        end = self._known_end(keys)
        last_use = end.last_use if end.keys else now
        for run in end.path():
            self._used_again(run, now, is_earned=run.depth > num_local)
        if end.depth < len(keys):
            self._leaves.remove(end)
            end = end.append(list(keys[end.depth :]))
            self._num_chunks += len(end.keys)
            self._used(end, now)
        if end.keys and not end.children:
            self._leaves.add(end)
        while self._num_chunks > self._most_chunks and self._give_up(now):
            pass
        self.num_prompts += 1
        if self.num_prompts % RANKED_EVERY == 0:
            self._rank(now)
        return last_use

    # -- following -----------------------------------------------------------------

    def _known_end(self, keys: Sequence[bytes]) -> Run:
        run, num_shared = find(self._root, keys)
        if num_shared == len(run.keys):
            return run
        upper = run.split(num_shared)
        # Both parts have waited since the same use; the upper as a run of its own.
        upper.last_use, upper.num_uses, upper.epoch = (
            run.last_use,
            run.num_uses,
            run.epoch,
        )
        number = class_of(upper.num_uses, upper.depth)
        self._noted.waiting.append((number, upper.epoch - self._first_epoch, 1))
        return upper

    def _used_again(self, run: Run, now: float, *, is_earned: bool) -> None:
        number = class_of(run.num_uses, run.depth)
        self._noted.uses.append((number, age_band(now - run.last_use), is_earned))
        self._end_wait(run, now)
        self._used(run, now)

    def _used(self, run: Run, now: float) -> None:
        run.last_use = now
        run.num_uses += 1
        epoch = len(self._epoch_starts) - 1
        run.epoch = self._first_epoch + epoch
        number = class_of(run.num_uses, run.depth)
        self._noted.waiting.append((number, epoch, 1))

    def _end_wait(self, run: Run, now: float) -> None:
        number = class_of(run.num_uses, run.depth)
        self._noted.waited.append((number, now - run.last_use))
        self._noted.waiting.append((number, run.epoch - self._first_epoch, -1))

    def _give_up(self, now: float) -> bool:
        leaf = self._leaves.victim()
        if leaf is None:
            return False
        self._leaves.remove(leaf)
        self._end_wait(leaf, now)
        self._num_chunks -= len(leaf.keys)
        parent = leaf.drop()
        if parent.keys and not parent.children:
            self._leaves.add(parent)
        return True

    # -- ranking -------------------------------------------------------------------

    def _enter_noted(self) -> None:
        """Add up what was noted, in the order in which it came."""
        noted, self._noted = self._noted, _Noted()
        _add_all(self._uses, noted.uses)
        _add_all(self._waiting, noted.waiting)
        seconds = np.array([seconds for _, seconds in noted.waited])
        rows = _time_in_bands(seconds[:, np.newaxis])
        for (number, _), row in zip(noted.waited, rows, strict=True):
            self._waited[number] += row

    def _rank(self, now: float) -> None:
        self._enter_noted()
        ages = now - np.asarray(self._epoch_starts)
        waited = self._waited + self._waiting @ _time_in_bands(ages[:, np.newaxis])
        self.density = _densities(_use_rates(self._uses, waited)).tolist()
        fade = 1.0 - RANKED_EVERY / MEMORY_PROMPTS
        self._uses *= fade
        self._waited *= fade
        self._begin_epoch(now)

    def _begin_epoch(self, now: float) -> None:
        """Forget epochs in which nothing waits any more, from the first on."""
        (busy,) = self._waiting.sum(axis=0).nonzero()
        first = int(busy[0]) if len(busy) else len(self._epoch_starts)
        self._first_epoch += first
        self._epoch_starts = [*self._epoch_starts[first:], now]
        new = np.zeros((len(self._waiting), 1))
        self._waiting = np.concatenate((self._waiting[:, first:], new), axis=1)


def _add_all(totals: Floats, noted: Sequence[tuple[int, int, int]]) -> None:
    """Add to ``totals``, a whole array: row, column, and what to add there."""
    rows, columns, added = np.array(noted, dtype=np.int64).reshape(-1, 3).T
    places = rows * totals.shape[1] + columns
    np.add.at(totals.reshape(-1), places, added.astype(np.float64))


def _time_in_bands(ages: float | Floats) -> Floats:
    """Seconds that a wait of that length spends in each band of ages."""
    inside: Floats = np.minimum(np.maximum(ages - EDGES[:-1], 0.0), WIDTHS)
    return inside


def _use_rates(uses: Floats, waited: Floats) -> Floats:
    """Uses per second and run, by class and age.

    A class that has seen little is taken to be like all depths of the same uses, and
    those like everything.
    """
    all_rates = uses.sum(axis=0) / np.maximum(waited.sum(axis=0), 1.0)
    shape = (USE_BANDS, DEPTH_BANDS, NUM_AGES)
    by_uses, waited_by_uses = (a.reshape(shape).sum(axis=1) for a in (uses, waited))
    rates = _pooled(by_uses, waited_by_uses, all_rates[np.newaxis])
    elders = np.repeat(rates, DEPTH_BANDS, axis=0)
    return _pooled(uses, waited, elders)


def _pooled(uses: Floats, waited: Floats, elders: Floats) -> Floats:
    prior_seconds = PRIOR_USES / np.maximum(elders, 1e-9)
    rates: Floats = (uses + PRIOR_USES) / (waited + prior_seconds)
    return rates


def _densities(rates: Floats) -> Floats:
    """Uses per second of room, if a run of that age is kept for the best time to come.

    Kept over a band, a run is used with probability ``1 - exp(-rate * width)`` and
    takes room until then. Longer and longer stays are tried; the best one counts.
    """
    used = 1.0 - np.exp(-rates * WIDTHS)
    # Ages by class: what is left of the ages after a stay is then one piece of memory.
    used, seconds = used.T.copy(), (used / rates).T.copy()
    unused = 1.0 - used
    best = np.zeros_like(used)
    alive, gain, cost = (np.full_like(used, start) for start in (1.0, 0.0, 0.0))
    for stay in range(NUM_AGES):
        num_ages = NUM_AGES - stay  # behind the last band there is nothing
        alive, gain, cost = alive[:num_ages], gain[:num_ages], cost[:num_ages]
        gain += alive * used[stay:]
        cost += alive * seconds[stay:]
        alive *= unused[stay:]
        np.maximum(best[:num_ages], gain / cost, out=best[:num_ages])
    return best.T
