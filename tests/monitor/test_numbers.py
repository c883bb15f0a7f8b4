"""Figures in a few characters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcellar.monitor.numbers import count, percent, seconds, size, span


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (0.03, "<0.1"),
        (0.5, "0.5"),
        (3.14, "3.1"),
        (42.4, "42"),
        (9999, "9,999"),
        (12_345, "12.3k"),
        (4_560_000, "4.56M"),
        (10**12, "1.00T"),
    ],
)
def test_counts(number, text):
    """Written out as long as they are short."""
    assert text == count(number)


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (64 * 2**30, "64.0 GiB"),
        (125 * 2**20, "125 MiB"),
        (1000 * 2**20, "1000 MiB"),
    ],
)
def test_sizes(num_bytes, text):
    """Three digits and a unit."""
    assert text == size(num_bytes)


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0%"), (0.001, "<1%"), (0.5, "50%"), (0.999, "99%"), (1, "100%")],
)
def test_shares(share, text):
    """Nearly nothing is not nothing, and nearly all is not all."""
    assert text == percent(share)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 us"),
        (12e-6, "12.0 us"),
        (999e-6, "999 us"),
        (3.21e-3, "3.2 ms"),
        (0.25, "250 ms"),
        (1.5, "1.5 s"),
        (45, "45 s"),
        (300, "5 min"),
        (9000, "2 h"),
    ],
)
def test_times(number, text):
    """In the unit that fits."""
    assert text == seconds(number)


def test_spans():
    """Whole, up to days."""
    assert ["59 s", "2 min", "3 h", "3 d"] == [
        span(n) for n in (59, 120, 10_800, 259_200)
    ]


@given(st.floats(0, 1e14))
def test_columns_are_wide_enough(number):
    """No count, size or time is longer than its column in a panel."""
    assert len(count(number)) <= 6
    assert len(size(number)) <= 9
    assert len(seconds(number)) <= 14
