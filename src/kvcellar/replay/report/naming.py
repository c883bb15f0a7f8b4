"""What tells configurations apart, and what they have in common.

Only what differs stands in every table; what is the same in all is said once.
"""

from collections.abc import Sequence

from kvcellar.replay.report.columns import Row, Value
from kvcellar.replay.report.text_table import TextColumn, beside
from kvcellar.replay.report.words import (
    in_unit,
    is_native,
    memory_text,
    number,
    plain_text,
    unit_of,
)

_MEMORIES = (("dev", "device_memory_bytes"), ("host", "host_memory_bytes"))
_PARTS = ("policy", "placement", "admission", "mode")
_NOTHING = "-"


def names_of(rows: Sequence[Row]) -> list[TextColumn]:
    """Columns that say which configuration a line is about; none for a single one."""
    memories = [
        _memory(rows, short, name)
        for short, name in _MEMORIES
        if len({row[name] for row in rows}) > 1
    ]
    return memories + _choice(rows)


def numbers_of(rows: Sequence[Row]) -> TextColumn:
    """Numbers instead of names, where these are too wide."""
    return TextColumn("#", tuple(str(number) for number in range(1, len(rows) + 1)))


def in_common(rows: Sequence[Row]) -> str:
    """What all configurations share, in words; empty if they share nothing."""
    said = [
        f"{name.split('_')[0]} memory {memory_text(number(rows[0], name))}"
        for _, name in _MEMORIES
        if len({row[name] for row in rows}) == 1
    ]
    said += [
        f"{part} {next(iter(values))}"
        for part in _PARTS
        if len(values := _values(rows, part)) == 1
    ]
    systems = {row["system"] for row in rows} - {None}
    if len(systems) == 1 and any(map(is_native, rows)):
        said.append(f"vLLM's {next(iter(systems))} connector")
    return ", ".join(said)


def _memory(rows: Sequence[Row], short: str, name: str) -> TextColumn:
    sizes = [number(row, name) for row in rows]
    unit = unit_of(min(filter(None, sizes)))
    cells = tuple(in_unit(size, unit) if size else "none" for size in sizes)
    return TextColumn(f"{short} {unit}", cells)


def _values(rows: Sequence[Row], part: str) -> set[Value]:
    """Those chosen; there are none without host memory, or with vLLM's connectors."""
    return {row[part] for row in rows} - {None}


def _choice(rows: Sequence[Row]) -> list[TextColumn]:
    """How host memory is run, in one column; a native connector spans its parts."""
    columns = [
        TextColumn(part, tuple(plain_text(row[part]) for row in rows), is_text=True)
        for part in _PARTS
        if len(_values(rows, part)) > 1
    ]
    are_apart = len({row["system"] for row in rows} - {None}) > 1
    if not columns and not are_apart:
        return []
    heading = beside(columns, [one.heading for one in columns]) if columns else "system"
    cells = [_choice_of(row, columns, at) for at, row in enumerate(rows)]
    return [TextColumn(heading.rstrip(), tuple(cells), is_text=True)]


def _choice_of(row: Row, columns: Sequence[TextColumn], at: int) -> str:
    if is_native(row):
        return f"vLLM's {row['system']}"
    if row["system"] is None:
        return _NOTHING
    if not columns:
        return str(row["system"])
    return beside(columns, [one.cells[at] for one in columns]).rstrip()
