"""Numbers of bytes as users write them."""

import re
from fractions import Fraction

from kvcellar.config.refusal import refusal

UNIT_BYTES = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_UNIT_BY_LOWER = {unit.lower(): unit for unit in UNIT_BYTES}
_NO_MACHINE_HAS_BYTES = 2**60
_BYTES_PATTERN = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)")
_BYTES_HINT = 'a number of bytes such as 8589934592, or "8GiB"'


def parse_bytes(value: object, key: str) -> int:
    """Read a number of bytes: an int, digits, or digits with a unit (``"8GiB"``).

    ``GB`` is 10**9 and ``GiB`` is 2**30. Case and a space before the unit are free;
    a fraction such as ``"1.5GiB"`` is read if it is a whole number of bytes.

    Raises:
        ConfigError: anything else, with the key, the value and what to write.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        num_bytes = value
    elif isinstance(value, str):
        num_bytes = _bytes_of_text(value, key)
    else:
        raise refusal(key, value, f"write {_BYTES_HINT}")
    if num_bytes <= 0:
        raise refusal(key, value, "give a size above zero")
    if num_bytes >= _NO_MACHINE_HAS_BYTES:
        raise refusal(key, value, "give a size that one machine can have")
    return num_bytes


def _bytes_of_text(text: str, key: str) -> int:
    match = _BYTES_PATTERN.fullmatch(text.strip())
    if match is None:
        raise refusal(key, text, f"write {_BYTES_HINT}")
    number, unit = match.groups()
    known = _UNIT_BY_LOWER.get(unit.lower() or "b")
    if known is None:
        raise refusal(key, text, f"use one of the units {', '.join(UNIT_BYTES)}")
    num_bytes = Fraction(number) * UNIT_BYTES[known]
    if num_bytes.denominator != 1:
        raise refusal(key, text, "give a whole number of bytes")
    return int(num_bytes)
