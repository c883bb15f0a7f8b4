"""Runs: every page once, joined where it can be, cut where it must be."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from page_rig import Rig, job, pairings, rigs

from kvcellar.device.driver import Runs
from kvcellar.device.pages import build_tables
from kvcellar.device.runs import cut_runs, num_bytes_of, runs_of
from kvcellar.transfer.jobs import Direction


def runs(*triples: tuple[int, int, int]) -> Runs:
    table = np.array(triples, dtype=np.int64).reshape(-1, 3)
    return Runs(table[:, 0], table[:, 1], table[:, 2])


def bytes_moved(found: Runs) -> dict[int, int]:
    """Source address of every destination byte; each may be written once."""
    moved: dict[int, int] = {}
    for to, start, size in zip(
        found.destinations.tolist(),
        found.sources.tolist(),
        found.sizes.tolist(),
        strict=True,
    ):
        assert size > 0
        new = {to + i: start + i for i in range(size)}
        assert moved.keys().isdisjoint(new)
        moved |= new
    return moved


@given(rig=rigs, data=st.data())
def test_runs_move_the_bytes_that_the_loop_moves(rig: Rig, data: st.DataObject) -> None:
    """The table of addresses says what the CPU device's loop does, byte for byte."""
    position = data.draw(st.integers(0, len(rig.layout.groups) - 1))
    pairs = data.draw(pairings(rig, position))
    one = job(Direction.STORE, (position, [d for d, _ in pairs], [h for _, h in pairs]))
    tables = build_tables(
        rig.layout,
        rig.geometry,
        rig.regions(rig.cache),
        num_blocks=rig.num_blocks,
        host_address=rig.arena.ctypes.data,
    )[Direction.STORE]
    moved = bytes_moved(runs_of(tables, one))
    expected = rig.arena.copy()
    for to, start in moved.items():
        at = to - rig.arena.ctypes.data
        expected[at] = rig.cache[start - rig.cache.ctypes.data]
    assert num_bytes_of(tables, one) == len(moved) == rig.device.copy(one)
    assert expected.tobytes() == rig.arena.tobytes()


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.sets(st.integers(0, 60), max_size=12),
    st.booleans(),
)
def test_cut_runs_cross_no_border_and_move_the_same_bytes(
    sizes: list[int], inside: set[int], is_store: bool
) -> None:
    """Whatever the borders: the same bytes, and each run between two of them."""
    borders = np.array(sorted(inside), dtype=np.int64)
    starts = np.cumsum([0, *sizes])[:-1]
    host_first = runs(
        *(
            (int(at), 1000 + int(at), size)
            for at, size in zip(starts, sizes, strict=True)
        )
    )
    whole = host_first
    if not is_store:
        whole = Runs(host_first.sources, host_first.destinations, host_first.sizes)
    host = whole.destinations if is_store else whole.sources
    cut, cut_host = cut_runs(whole, host, borders)
    assert bytes_moved(whole) == bytes_moved(cut)
    expected_host = cut.destinations if is_store else cut.sources
    assert expected_host.tolist() == cut_host.tolist()
    for at, size in zip(cut_host.tolist(), cut.sizes.tolist(), strict=True):
        assert not any(at < border < at + size for border in inside)


def test_runs_that_cross_nothing_are_left_alone() -> None:
    """A border at a run's first byte or behind its last cuts nothing."""
    whole = runs((8, 100, 8), (16, 300, 8))
    borders = np.array([8, 16, 24], dtype=np.int64)
    cut, _ = cut_runs(whole, whole.destinations, borders)
    assert whole is cut
