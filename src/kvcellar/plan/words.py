"""Figures as operators read them."""

from kvcellar.config import UNIT_BYTES
from kvcellar.layout.units import BINARY_UNITS, format_bytes

_FEW_UNITS = 8  # from here on, rounding up to a whole unit costs little


def size(num_bytes: float) -> str:
    """Bytes with a unit; without decimals where they say nothing."""
    return format_bytes(num_bytes).replace(".00 ", " ")


def option_size(num_bytes: int) -> str:
    """Bytes as an option takes them, exactly, in the unit that says it shortest."""
    exact = [
        (num_bytes // scale, unit)
        for unit, scale in UNIT_BYTES.items()
        if num_bytes >= scale > 1 and num_bytes % scale == 0
    ]
    number, unit = min(exact, key=lambda pair: pair[0], default=(num_bytes, ""))
    return f"{number}{unit}"


def rounded_up(num_bytes: int) -> int:
    """At least so many bytes, with few digits."""
    for _, scale in BINARY_UNITS:
        if num_bytes >= _FEW_UNITS * scale:
            return -(-num_bytes // scale) * scale
    return num_bytes


def count(number: int, noun: str) -> str:
    """``1 rank`` or ``8 ranks``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Two or three digits, in the unit that suits."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            value = seconds / scale
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    return "0 ms" if seconds == 0 else f"{seconds / 1e-6:.2g} us"
