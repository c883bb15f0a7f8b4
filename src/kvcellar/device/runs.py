"""Runs: (destination, source, length) triples of absolute addresses, and what to do.

A job names thousands of small pages. All arithmetic on them is vectorised, so that the
cost per page is nanoseconds and not Python statements.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Addresses = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Runs:
    """Three contiguous arrays of equal length, **[num_runs]**; lengths in bytes."""

    destinations: Addresses
    sources: Addresses
    lengths: Addresses

    @property
    def num_bytes(self) -> int:
        """Bytes of all runs."""
        return int(self.lengths.sum())


def concatenate(parts: Sequence[Runs]) -> Runs:
    """One list of runs from several, in order."""
    if not parts:
        empty = np.empty(0, dtype=np.int64)
        return Runs(empty, empty, empty)
    return Runs(
        np.concatenate([part.destinations for part in parts]),
        np.concatenate([part.sources for part in parts]),
        np.concatenate([part.lengths for part in parts]),
    )


def merged(runs: Runs) -> Runs:
    """Join each run with the next where they touch on both sides."""
    destinations, sources, lengths = runs.destinations, runs.sources, runs.lengths
    if len(lengths) < 2:
        return runs
    is_joined = (destinations[1:] == destinations[:-1] + lengths[:-1]) & (
        sources[1:] == sources[:-1] + lengths[:-1]
    )
    starts = np.concatenate(([0], np.flatnonzero(~is_joined) + 1))
    return Runs(destinations[starts], sources[starts], np.add.reduceat(lengths, starts))


def overlaps_itself(runs: Runs) -> bool:
    """Whether some byte is both read and written, so that the order would matter."""
    order = np.argsort(runs.destinations)
    starts = runs.destinations[order]
    ends = starts + runs.lengths[order]
    after = np.searchsorted(starts, runs.sources, side="right")
    reaches_back = (after > 0) & (ends[after - 1] > runs.sources)
    is_reached = after < len(starts)
    next_starts = starts[np.minimum(after, len(starts) - 1)]
    reaches_on = is_reached & (next_starts < runs.sources + runs.lengths)
    return bool((reaches_back | reaches_on).any())
