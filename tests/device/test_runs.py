"""Runs of addresses, and the loop that copies them."""

import importlib
import logging
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcellar.device import memcpy
from kvcellar.device.runs import Runs, concatenate, merged, overlaps_itself


def runs_of(*triples: tuple[int, int, int]) -> Runs:
    columns = np.array(triples, dtype=np.int64).reshape(-1, 3).T
    return Runs(*(np.ascontiguousarray(column) for column in columns))


def triples_of(runs: Runs) -> list[tuple[int, int, int]]:
    columns = (runs.destinations, runs.sources, runs.lengths)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_runs_that_touch_on_both_sides_are_joined() -> None:
    """Neighbours in both memories become one run, others stay."""
    runs = runs_of(
        (0, 100, 10), (10, 110, 10), (20, 120, 5), (25, 200, 5), (90, 205, 5)
    )
    assert [(0, 100, 25), (25, 200, 5), (90, 205, 5)] == triples_of(merged(runs))


@pytest.mark.parametrize("triples", [[], [(5, 6, 7)]])
def test_short_lists_stay_as_they_are(triples: list[tuple[int, int, int]]) -> None:
    """Nothing to join in a list of none or one."""
    assert triples == triples_of(merged(runs_of(*triples)))


def test_concatenation_keeps_the_order() -> None:
    """Parts follow each other; no part gives an empty list."""
    both = concatenate([runs_of((1, 2, 3)), runs_of((4, 5, 6))])
    assert ([(1, 2, 3), (4, 5, 6)], 9) == (triples_of(both), both.num_bytes)
    assert ([], 0) == (triples_of(concatenate([])), concatenate([]).num_bytes)


spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1)


@given(pairs=spans, length=st.integers(1, 9))
def test_overlap_is_found_exactly(pairs: list[tuple[int, int]], length: int) -> None:
    """The vectorised check agrees with sets of bytes."""
    runs = runs_of(*((to, start, length) for to, start in pairs))
    written = {to + i for to, _ in pairs for i in range(length)}
    read = {start + i for _, start in pairs for i in range(length)}
    assert bool(written & read) == overlaps_itself(runs)


@pytest.fixture(params=["compiled", "python"])
def copy_runs(request: pytest.FixtureRequest) -> memcpy.CopyRuns:
    if request.param == "python":
        return memcpy.copy_runs_in_python
    pytest.importorskip("numba")
    return memcpy.compile_copy_runs()


def test_copy_loop_moves_the_named_bytes_only(copy_runs: memcpy.CopyRuns) -> None:
    """Both loops copy each run and leave every other byte alone."""
    source = np.arange(100, dtype=np.uint8)
    target = np.full(100, 255, dtype=np.uint8)
    runs = runs_of((10, 20, 5), (50, 0, 0), (90, 99, 1))
    copy_runs(
        runs.destinations + target.ctypes.data,
        runs.sources + source.ctypes.data,
        runs.lengths,
    )
    expected = np.full(100, 255, dtype=np.uint8)
    expected[10:15] = [20, 21, 22, 23, 24]
    expected[90] = 99
    assert expected.tolist() == target.tolist()


@pytest.fixture
def fresh_choice() -> Iterator[None]:
    memcpy.copy_runs_function.cache_clear()
    yield
    memcpy.copy_runs_function.cache_clear()


@pytest.mark.usefixtures("fresh_choice")
def test_compiled_loop_is_chosen_where_it_works(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With numba there, no warning and not the Python loop."""
    pytest.importorskip("numba")
    with caplog.at_level(logging.WARNING):
        assert memcpy.copy_runs_function() is not memcpy.copy_runs_in_python
    assert [] == caplog.messages


@pytest.mark.usefixtures("fresh_choice")
def test_without_numba_the_python_loop_serves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A missing compiler is a warning with the reason, not a crash."""

    def refuse(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", refuse)
    assert memcpy.copy_runs_in_python is memcpy.copy_runs_function()
    assert "No module named 'numba'" in caplog.text


@pytest.mark.usefixtures("fresh_choice")
def test_compiler_that_writes_wrong_bytes_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The proof at start catches a loop that does nothing."""
    monkeypatch.setattr(memcpy, "compile_copy_runs", lambda: lambda *_: None)
    assert memcpy.copy_runs_in_python is memcpy.copy_runs_function()
    assert "wrong bytes" in caplog.text
