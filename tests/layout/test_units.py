"""Sizes as people read them."""

import pytest

from kvcellar.layout.units import format_bytes


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1536 * 1024, "1.50 MiB"),
        (2**30, "1.00 GiB"),
        (3 * 2**40, "3.00 TiB"),
    ],
)
def test_size_is_written_in_the_largest_fitting_unit(num_bytes: int, text: str) -> None:
    """Two decimals, binary units, plain bytes below one KiB."""
    assert text == format_bytes(num_bytes)
