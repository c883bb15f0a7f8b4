"""From a job's numbers to the copies that carry it out: addresses, joined and cut.

    pages    [p0][p1][p2]   [p7]     four pages of a group, by the formula in pages.py
    joined   [p0  p1  p2]   [p7]     pages that touch on both sides become one run
    cut      [p0  p|1 p2]   [p7]     no run crosses a border of registered memory

A block-outermost cache has one page per block, so that consecutive blocks become one
run; in other layouts a run is as long as the engine's and the host's pages allow.
"""

from collections.abc import Sequence

import numpy as np

from kvcellar.device.driver import Addresses, Runs
from kvcellar.device.numbers import checked_numbers
from kvcellar.device.pages import NUM_SIDE_COLUMNS, DirectionTables, Table
from kvcellar.transfer.jobs import BlockNumbers, CopyJob


def runs_of(tables: DirectionTables, job: CopyJob) -> Runs:
    """All of a job's copies as joined runs.

    Raises:
        InvariantError: lists of unequal length, or a number that is out of range.
    """
    parts = []
    for copy in job.copies:
        destinations, sources = checked_numbers(tables, copy, job.direction)
        first, end = tables.first_row[copy.position : copy.position + 2]
        if len(sources) and first < end:
            parts.append(_pages(tables.rows[first:end], destinations, sources))
    return _joined(_concatenated(parts))


def num_bytes_of(tables: DirectionTables, job: CopyJob) -> int:
    """Bytes that a job moves."""
    return sum(
        len(copy.host_blocks) * tables.bytes_per_number[copy.position]
        for copy in job.copies
    )


def cut_runs(runs: Runs, host: Addresses, borders: Addresses) -> tuple[Runs, Addresses]:
    """Cut runs at borders in host memory.

    Args:
        host: **[n]** the host side of each run; its sources or its destinations.
        borders: **[m]** addresses in ascending order that no run may cross.

    Returns:
        The runs, and the host side of each.
    """
    pieces = np.searchsorted(borders, host, side="right")
    last_pieces = np.searchsorted(borders, host + runs.sizes - 1, side="right")
    crossing = np.flatnonzero(pieces != last_pieces)
    if not len(crossing):
        return runs, host
    kept = np.ones(len(runs), dtype=bool)
    kept[crossing] = False
    parts, hosts = [runs.take(kept)], [host[kept]]
    for index in crossing.tolist():
        inside = borders[pieces[index] : last_pieces[index]] - host[index]
        starts = np.concatenate(([0], inside))
        sizes = np.diff(np.concatenate((starts, [runs.sizes[index]])))
        to, start = runs.destinations[index], runs.sources[index]
        parts.append(Runs(to + starts, start + starts, sizes))
        hosts.append(host[index] + starts)
    return _concatenated(parts), np.concatenate(hosts)


def _pages(rows: Table, destinations: BlockNumbers, sources: BlockNumbers) -> Runs:
    to = _addresses(rows[:, :NUM_SIDE_COLUMNS], destinations)
    start = _addresses(rows[:, NUM_SIDE_COLUMNS:-1], sources)
    sizes = np.repeat(rows[:, -1], len(sources))
    return Runs(to.ravel(), start.ravel(), sizes)


def _addresses(sides: Table, numbers: BlockNumbers) -> Table:
    """The formula at the head of ``pages.py``, **[num_rows, n]**."""
    per_cell, cells_per_slab = sides[0, 1], sides[0, 2]  # of the group, in all its rows
    cells, places = np.divmod(numbers, per_cell)
    slabs, slots = np.divmod(cells, cells_per_slab)
    bases, slab_bytes, cell_bytes, place_bytes = sides[:, (0, 3, 4, 5), None].transpose(
        1, 0, 2
    )
    addresses = bases + slabs * slab_bytes + slots * cell_bytes + places * place_bytes
    return np.asarray(addresses, dtype=np.int64)


def _joined(runs: Runs) -> Runs:
    """Join neighbours in the list that touch on both sides."""
    if len(runs) < 2:
        return runs
    touches = np.ones(len(runs) - 1, dtype=bool)
    for side in (runs.destinations, runs.sources):
        touches &= side[:-1] + runs.sizes[:-1] == side[1:]
    begins = np.concatenate(([0], np.flatnonzero(~touches) + 1))
    sizes = np.add.reduceat(runs.sizes, begins)
    return Runs(runs.destinations[begins], runs.sources[begins], sizes)


def _concatenated(parts: Sequence[Runs]) -> Runs:
    empty = np.empty(0, dtype=np.int64)
    return Runs(
        np.concatenate([empty, *(part.destinations for part in parts)]),
        np.concatenate([empty, *(part.sources for part in parts)]),
        np.concatenate([empty, *(part.sizes for part in parts)]),
    )
