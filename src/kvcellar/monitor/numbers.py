"""Figures in a few characters, for panels that are narrow."""

import math

_COUNTS = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))
_SIZES = (
    (2**50, "PiB"),
    (2**40, "TiB"),
    (2**30, "GiB"),
    (2**20, "MiB"),
    (2**10, "KiB"),
)
_SPANS = ((172_800, 86_400, "d"), (7_200, 3_600, "h"), (120, 60, "min"))
_EXACT = 10_000  # smaller counts are written out
_THREE_DIGITS = 99.95


def count(number: float) -> str:
    """A count: ``9,999``, then ``12.3k`` and so on; fractions below ten."""
    if number < 1 and number:
        return "<0.1" if number < 0.05 else f"{number:.1f}"
    if number < _EXACT:
        is_fraction = number < 10 and number != int(number)
        return f"{number:.1f}" if is_fraction else f"{round(number):,}"
    return _scaled(number, _COUNTS, "")


def size(num_bytes: float) -> str:
    """A number of bytes in three digits: ``0 B``, ``1.25 GiB``, ``125 MiB``."""
    if num_bytes < _SIZES[-1][0]:
        return f"{num_bytes:.0f} B"
    return _scaled(num_bytes, _SIZES, " ")


def percent(share: float) -> str:
    """A share; what is not quite nothing or all is not called so."""
    if 0 < share < 0.01:
        return "<1%"
    if 0.99 < share < 1:
        return "99%"
    return f"{100 * share:.0f}%"


def seconds(number: float) -> str:
    """The time that something takes: ``12 us``, ``3.2 ms``, ``1.5 s``, ``4 min``."""
    for scale, unit in ((1e-3, "us"), (1.0, "ms")):
        if number < scale:
            value = number / scale * 1000
            return (
                f"{value:.1f} {unit}"
                if 0 < value < _THREE_DIGITS
                else f"{value:.0f} {unit}"
            )
    return f"{number:.1f} s" if number < 10 else span(number)


def span(number: float) -> str:
    """A span of time in its largest fitting unit: ``45 s``, ``12 min``, ``3 d``."""
    for limit, scale, unit in _SPANS:
        if number >= limit:
            return f"{number / scale:.0f} {unit}"
    return f"{number:.0f} s"


def _scaled(number: float, scales: tuple[tuple[int, str], ...], gap: str) -> str:
    """Three digits in the largest unit that keeps the figure at 1 or above."""
    for scale, unit in scales:
        value = number / scale
        if value >= 1:
            digits = max(0, 2 - math.floor(math.log10(value) + 1e-9))
            return f"{value:.{digits}f}{gap}{unit}"
    return f"{number:.0f}"
