"""Figures as people read them."""

from collections.abc import Mapping
from typing import Any

from kvcellar.replay.grid_choice import NATIVES
from kvcellar.replay.report.columns import Row, Value

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP = 1024
_LEAST_FOUR_DIGITS = 999.5  # as three digits it would be written with an exponent


def size_text(num_bytes: float) -> str:
    """Bytes with a unit, four significant digits at most."""
    unit = unit_of(num_bytes)
    return f"{in_unit(num_bytes, unit)} {unit}"


def unit_of(num_bytes: float) -> str:
    """The largest unit of which there is at least one."""
    power = 0
    while num_bytes >= _STEP ** (power + 1) and power < len(_UNITS) - 1:
        power += 1
    return _UNITS[power]


def in_unit(num_bytes: float, unit: str) -> str:
    """A number of units, without the unit's name."""
    value = num_bytes / _STEP ** _UNITS.index(unit)
    is_whole = value >= _LEAST_FOUR_DIGITS or value % 1 == 0
    return f"{value:,.0f}" if is_whole else f"{value:.3g}"


def trace_text(trace: Mapping[str, Any]) -> str:
    """What was read, from the report's facts: format, requests, records left out."""
    first = "first " if trace["limit"] else ""
    skipped = trace["num_skipped"]
    return (
        f"{trace['format']}, {first}{counted(trace['num_requests'], 'request')} with "
        f"{trace['prompt_tokens']:,} prompt tokens"
        + (f", {counted(skipped, 'record')} skipped" if skipped else "")
    )


def counted(number: int, noun: str) -> str:
    """How many there are of what has a plain plural."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def percent_text(ratio: float) -> str:
    """A share as a percentage."""
    return f"{100 * ratio:.1f}"


def seconds_text(seconds: float | None) -> str:
    """Seconds, three significant digits below a hundred; a dash for none."""
    if seconds is None:
        return "-"
    digits = 3 if seconds < 1 else 2 if seconds < 10 else 1 if seconds < 100 else 0
    return f"{seconds:,.{digits}f}"


def plain_text(value: Value) -> str:
    """Any figure as it stands, with separators."""
    if value is None:
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def memory_text(num_bytes: float) -> str:
    """A size of memory, or that there is none."""
    return size_text(num_bytes) if num_bytes else "none"


def number(row: Row, name: str) -> float:
    """A figure that is always there."""
    value = row[name]
    assert isinstance(value, int | float), name
    return float(value)


def is_native(row: Row) -> bool:
    """Whether one of vLLM's own connectors runs host memory."""
    return row["system"] in NATIVES


def choice_text(row: Row) -> str:
    """How host memory is run; empty where there is none."""
    if is_native(row):
        return f"vLLM's {row['system']}"
    parts = (row["policy"], row["placement"], row["admission"], row["mode"])
    return ", ".join(str(part) for part in parts if part is not None)


def label_of(row: Row) -> str:
    """A configuration in words."""
    device = memory_text(number(row, "device_memory_bytes"))
    host = memory_text(number(row, "host_memory_bytes"))
    choice = choice_text(row)
    return f"device {device}, host {host}{', ' if choice else ''}{choice}"
