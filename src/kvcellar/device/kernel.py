"""The loop that moves the pages, in one call that lets other Python threads run.

The model's Python code runs in the same process. Whenever this thread gives the
interpreter lock up and wants it back, it may wait for milliseconds, hundreds of times
longer than a page takes to copy. So a whole job, address arithmetic included, must be a
single call without the lock. No library function does that at memory speed; this loop
around the C library's ``memcpy`` is compiled by numba, which vLLM itself requires.
Where numba is missing the same lines run as Python. ``benchmarks/copies.py`` measures
both.

Pages go block by block, a block's regions in the order of the host cell, so that the
host side is one ascending sweep per cell.
"""

import ctypes
import functools
import importlib
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kvcellar.device.pages import NUM_SIDE_COLUMNS, Table

logger = logging.getLogger(__name__)

Numbers = npt.NDArray[np.int64]
_Compile = Callable[[Any], Any]


class Kernel(NamedTuple):
    """The two functions of one back end.

    Attributes:
        copy_pages: ``(rows, spans, destinations, sources) -> None`` copies, for each
            span ``[first_row, end_row, first_number, end_number]``, the pages of the
            numbers in each of the rows, and joins pages that touch on both sides. It
            checks nothing.
        append: ``(numbers, bound, target, at) -> bool`` puts a group's numbers into
            the job's; False if one is not in ``[0, bound)``. It keeps the lock, since
            it is over before another thread could take it.
    """

    copy_pages: Callable[[Table, Table, Numbers, Numbers], None]
    append: Callable[[Numbers, int, Numbers, int], bool]


@functools.cache
def best_kernel() -> Kernel:
    """Return the compiled kernel or, with a warning, the same in Python.

    The first call compiles, which takes about a second.
    """
    try:
        kernel = compile_kernel()
        _prove(kernel)
    except Exception as cause:  # noqa: BLE001 - whatever the compiler's trouble is
        logger.warning(
            "copies to and from host memory will be slow and hold the model up, "
            "because numba cannot be used (%s); install the numba that vLLM asks for",
            cause,
        )
        return python_kernel()
    return kernel


def python_kernel() -> Kernel:
    """The kernel as plain Python: the reference, and the fallback."""
    return _make_kernel(ctypes.memmove, lambda function: function)


def compile_kernel() -> Kernel:
    """The kernel as machine code.

    Raises:
        Exception: numba is missing or cannot compile here.
    """
    numba: Any = importlib.import_module("numba")
    memcpy = ctypes.CDLL(None).memcpy
    memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    memcpy.restype = ctypes.c_void_p
    inline = numba.njit(error_model="numpy")
    kernel = _make_kernel(memcpy, inline)
    int64 = numba.types.int64
    table, numbers = int64[:, ::1], int64[::1]
    given = numba.types.Array(int64, 1, "A", readonly=True)  # from any planner
    compile_copy = numba.njit(
        numba.types.void(table, table, numbers, numbers),
        nogil=True,
        error_model="numpy",
    )
    compile_append = numba.njit(numba.types.boolean(given, int64, numbers, int64))
    return Kernel(compile_copy(kernel.copy_pages), compile_append(kernel.append))


def _make_kernel(
    memcpy: Callable[[int, int, int], object], compile_inner: _Compile
) -> Kernel:
    """Build the functions around ``memcpy``; numba compiles these very lines."""
    copy_run = compile_inner(_make_copy_run(memcpy, compile_inner(_address)))

    def copy_pages(
        rows: Table, spans: Table, destinations: Numbers, sources: Numbers
    ) -> None:
        for s in range(len(spans)):
            first, last = spans[s, 2], spans[s, 3]
            while first < last:
                end = first + 1
                while (
                    end < last
                    and destinations[end] == destinations[end - 1] + 1
                    and sources[end] == sources[end - 1] + 1
                ):
                    end += 1
                for row in range(spans[s, 0], spans[s, 1]):
                    copy_run(
                        rows[row], destinations[first], sources[first], end - first
                    )
                first = end

    return Kernel(copy_pages, _append)


def _make_copy_run(memcpy: Callable[[int, int, int], object], address: Any) -> Any:
    def copy_run(row: Numbers, destination: int, source: int, count: int) -> None:
        """Copy the pages of consecutive numbers; touching pages in one piece."""
        page_bytes = int(row[2 * NUM_SIDE_COLUMNS])
        run_to, run_from, run_bytes = 0, 0, 0
        for i in range(count):
            to = address(row[:NUM_SIDE_COLUMNS], destination + i)
            start = address(row[NUM_SIDE_COLUMNS:], source + i)
            if i and to == run_to + run_bytes and start == run_from + run_bytes:
                run_bytes += page_bytes
                continue
            if i:
                memcpy(run_to, run_from, run_bytes)
            run_to, run_from, run_bytes = to, start, page_bytes
        memcpy(run_to, run_from, run_bytes)

    return copy_run


def _address(side: Numbers, number: int) -> int:
    """The formula at the head of ``pages.py``."""
    cell, place = number // side[1], number % side[1]
    slab, slot = cell // side[2], cell % side[2]
    return int(side[0] + slab * side[3] + slot * side[4] + place * side[5])


def _append(numbers: Numbers, bound: int, target: Numbers, at: int) -> bool:
    for i in range(len(numbers)):
        if numbers[i] < 0 or numbers[i] >= bound:
            return False
        target[at + i] = numbers[i]
    return True


def _prove(kernel: Kernel) -> None:
    """Copy a few bytes, so that a broken compiler shows here and not in a prompt."""
    source = np.arange(1, 33, dtype=np.uint8)
    target = np.zeros_like(source)
    sides = [(int(a.ctypes.data), 1, 2**62, 0, 8, 0) for a in (target, source)]
    rows = np.array([[*sides[0], *sides[1], 8]], dtype=np.int64)
    numbers = np.zeros(4, dtype=np.int64)
    is_in_range = kernel.append(np.array([2, 0, 1, 3]), 4, numbers, 0)
    kernel.copy_pages(rows, np.array([[0, 1, 0, 4]]), numbers, numbers)
    if not is_in_range or not np.array_equal(source, target):
        raise RuntimeError("the compiled copy loop wrote wrong bytes")
