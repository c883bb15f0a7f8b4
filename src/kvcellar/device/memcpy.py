"""Copying many runs in one call that lets other Python threads run meanwhile.

The model's Python code runs in the same process. A call per page would take the
interpreter lock back after every few microseconds of copying, to the harm of both
sides; one call per job takes it once. No library function takes a list of (destination,
source, length) and runs at memory speed, so one is compiled: a loop around the C
library's ``memcpy``, by numba, which vLLM itself requires. Where numba is missing the
same loop runs in Python. ``benchmarks/copies.py`` measures both.
"""

import ctypes
import functools
import importlib
import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from kvcellar.device.runs import Addresses

logger = logging.getLogger(__name__)

CopyRuns = Callable[[Addresses, Addresses, Addresses], None]

_SIGNATURE = "void(int64[::1], int64[::1], int64[::1])"


@functools.cache
def copy_runs_function() -> CopyRuns:
    """Return the fastest ``copy(destinations, sources, lengths)`` this process has.

    The first call takes under a second, to compile. The function must be given
    contiguous int64 arrays of valid addresses; it checks nothing.
    """
    try:
        compiled = compile_copy_runs()
        _prove(compiled)
    except Exception as cause:  # noqa: BLE001 - whatever the compiler's trouble is
        logger.warning(
            "copies to host memory will slow the model down, because numba cannot be "
            "used (%s); install the numba that vLLM asks for",
            cause,
        )
        return copy_runs_in_python
    return compiled


def copy_runs_in_python(
    destinations: Addresses, sources: Addresses, lengths: Addresses
) -> None:
    """Copy each run with one call; the interpreter lock is taken between calls."""
    runs = zip(destinations.tolist(), sources.tolist(), lengths.tolist(), strict=True)
    for destination, source, length in runs:
        ctypes.memmove(destination, source, length)


def compile_copy_runs() -> CopyRuns:
    """Compile the loop to machine code that holds no interpreter lock.

    Raises:
        Exception: numba is missing or cannot compile here.
    """
    numba: Any = importlib.import_module("numba")
    memcpy = ctypes.CDLL(None).memcpy
    memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    memcpy.restype = ctypes.c_void_p

    def copy_runs(
        destinations: Addresses, sources: Addresses, lengths: Addresses
    ) -> None:
        for i in range(lengths.size):
            memcpy(destinations[i], sources[i], lengths[i])

    compiled: CopyRuns = numba.njit(_SIGNATURE, nogil=True)(copy_runs)
    return compiled


def _prove(copy_runs: CopyRuns) -> None:
    """Copy a few bytes, so that a broken compiler shows here and not in a prompt."""
    source = np.arange(1, 33, dtype=np.uint8)
    target = np.zeros_like(source)
    starts = np.array([0, 16], dtype=np.int64)
    copy_runs(
        starts + target.ctypes.data,
        starts + source.ctypes.data,
        np.array([16, 16], dtype=np.int64),
    )
    if not np.array_equal(source, target):
        raise RuntimeError("the compiled copy loop wrote wrong bytes")
