"""Prefix ids and their runs."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcellar.replay.readers.ids import pack, to_id, unpack

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.one_of(st.integers(0, 6), INT64)))
def test_packing_loses_nothing(numbers):
    """Any ids come back, neighbours, repetitions and the ends of the range too."""
    assert array("q", numbers) == unpack(pack(array("q", numbers)))


@given(st.lists(st.tuples(INT64.filter(lambda n: n < 2**62), st.integers(1, 40))))
def test_packing_runs_loses_nothing(runs):
    """Rows of neighbours come back whatever follows on what."""
    ids = array("q", [n for start, count in runs for n in range(start, start + count)])
    assert ids == unpack(pack(ids))


def test_a_long_run_is_kept_in_little():
    """A thousand neighbours take two numbers."""
    assert 2 == pack(array("q", range(1000))).size


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (5, 5),
        (-5, -5),
        (2**63, -(2**63)),
        (2**64 - 1, -1),
        (2**64, None),
        ("ff", 255),
        ("0xff", 255),
        ("a" * 48 + "0" * 15 + "1", 1),
        ("f" * 16, -1),
        ("xyz", None),
        ("", None),
        (True, None),
        (1.0, None),
        (None, None),
    ],
)
def test_ids_are_signed_64_bit_numbers_or_nothing(value, number):
    """Unsigned hashes keep their bits, hexadecimal ones their last 64."""
    assert number == to_id(value)
