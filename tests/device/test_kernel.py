"""The copy loop: which pieces it moves, and which back end is chosen."""

import ctypes
import importlib
import logging
from collections.abc import Iterator

import numpy as np
import pytest

from kvcellar.device import kernel as kernel_module
from kvcellar.device.kernel import Kernel, best_kernel, compile_kernel, python_kernel

ONE_SLAB = 2**62


@pytest.fixture(params=["compiled", "python"])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    if request.param == "python":
        return python_kernel()
    pytest.importorskip("numba")
    return compile_kernel()


def numbers(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_only_the_named_pages_of_the_named_rows_are_copied(kernel: Kernel) -> None:
    """Two spans: rows 0 and 1 for two numbers, row 2 for another; the rest stays."""
    source = np.arange(100, dtype=np.uint8)
    target = np.full(100, 255, dtype=np.uint8)
    to, start = int(target.ctypes.data), int(source.ctypes.data)
    rows = np.array(
        [
            (to + base, 1, ONE_SLAB, 0, 10, 0, start + base, 1, ONE_SLAB, 0, 10, 0, 2)
            for base in (0, 4, 8)
        ]
    )
    spans = np.array([(0, 2, 0, 2), (2, 3, 2, 3)])
    kernel.copy_pages(rows, spans, numbers(1, 2, 5), numbers(3, 9, 0))
    expected = np.full(100, 255, dtype=np.uint8)
    expected[[10, 11, 14, 15]] = [30, 31, 34, 35]
    expected[[20, 21, 24, 25]] = [90, 91, 94, 95]
    expected[[58, 59]] = [8, 9]
    assert expected.tolist() == target.tolist()


def test_cells_in_slabs_are_found(kernel: Kernel) -> None:
    """With 3 blocks per cell, 2 cells per slab, number 8 is slab 1, cell 0, place 2."""
    source = np.arange(4, dtype=np.uint8)
    target = np.zeros(64, dtype=np.uint8)
    to, start = int(target.ctypes.data), int(source.ctypes.data)
    rows = np.array([(to, 3, 2, 32, 13, 4, start, 1, ONE_SLAB, 0, 4, 0, 4)])
    kernel.copy_pages(rows, np.array([(0, 1, 0, 1)]), numbers(8), numbers(0))
    expected = np.zeros(64, dtype=np.uint8)
    expected[40:44] = [0, 1, 2, 3]
    assert expected.tolist() == target.tolist()


def test_pages_that_touch_on_both_sides_move_in_one_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four touching pages and one far away are two calls; a gap on one side splits."""
    calls: list[tuple[int, int, int]] = []
    monkeypatch.setattr(ctypes, "memmove", lambda *call: calls.append(call))
    kernel = python_kernel()
    side, padded = (1, ONE_SLAB, 0, 8, 0), (1, ONE_SLAB, 0, 9, 0)
    destinations, sources = numbers(2, 3, 4, 5, 9), numbers(0, 1, 2, 3, 4)
    span = np.array([(0, 1, 0, 5)])
    rows = np.array([(1000, *side, 5000, *side, 8)])
    kernel.copy_pages(rows, span, destinations, sources)
    assert [(1016, 5000, 32), (1072, 5032, 8)] == calls
    calls.clear()
    rows = np.array([(1000, *side, 5000, *padded, 8)])
    kernel.copy_pages(rows, span, destinations, sources)
    assert [8] * 5 == [num_bytes for _, _, num_bytes in calls]


def test_numbers_are_appended_and_checked(kernel: Kernel) -> None:
    """In-range numbers are put in place; the first one outside is answered by False."""
    target = np.zeros(5, dtype=np.int64)
    assert kernel.append(numbers(0, 9), 10, target, 2)
    assert [0, 0, 0, 9, 0] == target.tolist()
    assert not kernel.append(numbers(0, 10), 10, target, 0)
    assert not kernel.append(numbers(-1), 10, target, 0)
    assert kernel.append(numbers(), 0, target, 5)


def test_read_only_and_strided_numbers_are_taken(kernel: Kernel) -> None:
    """Numbers that came over a wire are read-only, and slices are not contiguous."""
    target = np.zeros(2, dtype=np.int64)
    wire = np.frombuffer(numbers(4, 5).tobytes(), dtype=np.int64)
    assert kernel.append(wire, 10, target, 0)
    assert [4, 5] == target.tolist()
    assert kernel.append(numbers(1, 2, 3)[::2], 10, target, 0)
    assert [1, 3] == target.tolist()


@pytest.fixture
def fresh_choice() -> Iterator[None]:
    best_kernel.cache_clear()
    yield
    best_kernel.cache_clear()


@pytest.mark.usefixtures("fresh_choice")
def test_compiled_loop_is_chosen_where_it_works(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With numba there, machine code is used and nothing is logged."""
    pytest.importorskip("numba")
    with caplog.at_level(logging.WARNING):
        assert hasattr(best_kernel().copy_pages, "nopython_signatures")
    assert [] == caplog.messages


@pytest.mark.usefixtures("fresh_choice")
def test_without_numba_the_python_loop_serves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A missing compiler is a warning with the reason, not a crash."""

    def refuse(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", refuse)
    assert not hasattr(best_kernel().copy_pages, "nopython_signatures")
    assert "No module named 'numba'" in caplog.text


@pytest.mark.usefixtures("fresh_choice")
def test_compiler_that_writes_wrong_bytes_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The proof at start catches a loop that does nothing."""
    idle = Kernel(lambda *_: None, lambda *_: True)
    monkeypatch.setattr(kernel_module, "compile_kernel", lambda: idle)
    assert best_kernel() is not idle
    assert "wrong bytes" in caplog.text
