"""Prefix ids: signed 64-bit numbers, kept as runs of neighbours where that is shorter.

Most traces number their blocks in the order in which they first appear, so that a
prompt is a handful of runs ``start, start + 1, ...``. A day of 85 million ids fits in a
few megabytes that way, and a request's ids are built when the request is asked for.
"""

from array import array
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

IdArray: TypeAlias = "array[int]"
Ids: TypeAlias = NDArray[np.int64]
Packed: TypeAlias = "array[int] | Ids"

MAX_RUN_BLOCKS = 2**24
"""Longest prompt that a file may describe by runs: more is a damaged count."""

FEW_IDS = 128
"""Up to so many, a loop over the runs is faster than operations on whole arrays."""

_HEX_DIGITS = 16
_MODULUS = 2**64
_LIMIT = 2**63


def to_id(value: object) -> int | None:
    """Turn one id of a file into a signed 64-bit number; None if it is not an id.

    Integers up to ``2**64 - 1`` keep their 64 bits. A text is read as hexadecimal
    digits, of which the last 16 count: the hash of a block is long, and 64 bits of it
    tell the blocks of any trace apart.
    """
    if isinstance(value, str):
        try:
            value = int(value[-_HEX_DIGITS:], 16)
        except ValueError:
            return None
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    if not -_LIMIT <= value < _MODULUS:
        return None
    return value - _MODULUS if value >= _LIMIT else value


def id_array(ids: Ids) -> IdArray:
    """Copy ids ``[num_blocks]`` into an array of type code ``q``."""
    out = array("q")
    out.frombytes(np.ascontiguousarray(ids).tobytes())
    return out


def runs_of(ids: Ids) -> Ids:
    """Cut ids ``[num_blocks]`` into runs: starts and counts ``[2, num_runs]``."""
    breaks = np.flatnonzero(ids[1:] != ids[:-1] + 1) + 1
    edges = np.concatenate(([0], breaks, [len(ids)])).astype(np.int64)
    return np.stack((ids[edges[:-1]], np.diff(edges)))


def expand_runs(runs: Ids) -> Ids:
    """Undo `runs_of`."""
    starts, counts = runs
    if len(starts) == 1:
        return np.arange(starts[0], starts[0] + counts[0], dtype=np.int64)
    first = np.cumsum(counts) - counts
    return np.repeat(starts - first, counts) + np.arange(counts.sum(), dtype=np.int64)


def pack(ids: IdArray) -> Packed:
    """Choose the shorter form: the ids themselves, or their runs."""
    if len(ids) < 4:
        return ids
    runs = runs_of(np.frombuffer(ids, dtype=np.int64))
    return runs if runs.size < len(ids) else ids


def unpack(packed: Packed) -> IdArray:
    """Undo `pack`. The result belongs to the trace: it is read, not changed."""
    if isinstance(packed, array):
        return packed
    starts, counts = packed.tolist()
    if sum(counts) > FEW_IDS:
        return id_array(expand_runs(packed))
    out = array("q")
    for start, count in zip(starts, counts, strict=True):
        out.extend(range(start, start + count))
    return out
