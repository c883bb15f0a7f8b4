"""A reader sees one state, or none."""

import threading

import pytest

from kvcellar.status.rates import RateWindow
from kvcellar.status.steady import read_steadily


class Pair:
    """Two numbers that are always equal between changes."""

    def __init__(self):
        self.number = self.left = self.right = 0

    def change(self):
        self.number += 1
        self.left += 1
        self.right += 1
        self.number += 1


def test_a_change_between_two_looks_is_noticed():
    """What was read while something changed is thrown away and read again."""
    pair, seen = Pair(), []

    def read():
        left = pair.left
        if not seen:
            pair.change()
        seen.append((left, pair.right))
        return seen[-1]

    assert (1, 1) == read_steadily(lambda: pair.number, read, wait=lambda _: None)
    assert [(0, 1), (1, 1)] == seen


def test_a_change_under_way_is_waited_for():
    """Nothing is read while the number is odd."""
    numbers = iter([1, 1, 2, 2])
    waits = []
    assert "seen" == read_steadily(
        lambda: next(numbers), lambda: "seen", wait=waits.append
    )
    assert 2 == len(waits)


def test_what_never_holds_still_is_not_seen():
    """The reader gives up."""
    numbers = iter(range(0, 100, 2))
    result = read_steadily(
        lambda: next(numbers), lambda: 1, most_tries=5, wait=lambda _: None
    )
    assert result is None


def test_errors_of_a_torn_state_are_forgiven_and_others_are_not():
    """A dictionary that changed size is read again; a plain bug is raised."""
    pair = Pair()

    def torn():
        if pair.left < 3:
            pair.change()
            raise RuntimeError("changed size during iteration")
        return pair.left

    assert 3 == read_steadily(lambda: pair.number, torn, wait=lambda _: None)
    with pytest.raises(KeyError):
        read_steadily(lambda: pair.number, lambda: {}["bug"], wait=lambda _: None)


def test_a_busy_writer_in_another_thread_never_tears_a_read():
    """Ten thousand changes in one thread, and every pair seen is equal."""
    pair, stop = Pair(), threading.Event()

    def write():
        for _ in range(10_000):
            pair.change()
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    pairs = []
    while not stop.is_set():
        pairs.append(
            read_steadily(lambda: pair.number, lambda: (pair.left, pair.right))
        )
    writer.join()
    pairs.append(read_steadily(lambda: pair.number, lambda: (pair.left, pair.right)))
    assert all(one is None or one[0] == one[1] for one in pairs)
    assert (10_000, 10_000) == pairs[-1]


def test_rates_are_over_the_window():
    """Growth per second since the oldest moment inside the window."""
    rates = RateWindow(10)
    assert {"a": 0.0} == rates.per_second(5, {"a": 9})
    for second in range(31):
        rates.note(second, {"a": 2 * second})
    assert {"a": 2.0, "b": 0.5} == rates.per_second(30, {"a": 60, "b": 5})
    assert {"a": 4.0} == rates.per_second(30, {"a": 80})


def test_moments_are_kept_for_a_while():
    """Oldest first, in seconds since the start; one before those that are kept."""
    rates = RateWindow(10, 20)
    for second in range(100, 131):
        rates.note(second, {"a": second})
    history = rates.history(100)
    assert [10.0 + n for n in range(21)] == [m["uptime_seconds"] for m in history]
    assert {"a": 130} == history[-1]["totals"]
