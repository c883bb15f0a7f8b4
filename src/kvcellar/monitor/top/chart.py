"""Where prompt tokens came from over time: one column for each slot.

A column is full where prompts began to run, cut from below into device, host and
computed; so the blank ones are idle times and the solid part is the hit share.
"""

from collections.abc import Sequence

from kvcellar.monitor.top.bars import SHADES
from kvcellar.monitor.top.spans import Line, Span
from kvcellar.monitor.view import Sources

_EIGHTHS = " ▁▂▃▄▅▆▇█"
_CELL = 8  # eighths
_HALF = 4


def share_chart(
    slots: Sequence[Sources | None], height: int, *, has_colour: bool
) -> list[Line]:
    """``height`` lines, the top one first, as wide as there are slots."""
    columns = [_column(slot, height, has_colour=has_colour) for slot in slots]
    return [
        _merge([column[row] for column in columns]) for row in reversed(range(height))
    ]


def load_line(slots: Sequence[Sources | None]) -> Line:
    """Prompt tokens by slot, as a share of the busiest one's."""
    most = max((slot.total for slot in slots if slot is not None), default=0.0)
    text = ""
    for slot in slots:
        if slot is None or not slot.total:
            text += " "
        else:
            text += _EIGHTHS[max(round(slot.total / most * _CELL), 1)]
    return (Span(text, "load"),)


def _column(slot: Sources | None, height: int, *, has_colour: bool) -> list[Span]:
    """Cells from below."""
    if slot is None or not slot.total:
        bottom = Span("·" if slot is not None else " ", "dim")
        return [bottom, *[Span(" ")] * (height - 1)]
    most = height * _CELL
    device = round(slot.share("device") * most)
    served = round(slot.served_share * most)
    cell = _coloured if has_colour else _shaded
    return [
        cell(*(min(max(end - row * _CELL, 0), _CELL) for end in (device, served)))
        for row in range(height)
    ]


def _coloured(device: int, served: int) -> Span:
    """A cell with so many eighths on the device, and so many served."""
    if not served:
        return Span(SHADES["computed"], "computed")
    if device in (0, served):
        return Span(_EIGHTHS[served], "device" if device else "host")
    return Span(_EIGHTHS[device], "device-on-host")


def _shaded(device: int, served: int) -> Span:
    """The same without colours: what fills most of the cell."""
    if device >= _HALF:
        return Span(SHADES["device"], "device")
    if served >= _HALF:
        return Span(SHADES["host"], "host")
    return Span(SHADES["computed"], "computed")


def _merge(cells: Sequence[Span]) -> Line:
    """Neighbours in the same style become one span."""
    merged: list[Span] = []
    for cell in cells:
        if merged and merged[-1].style == cell.style:
            merged[-1] = Span(merged[-1].text + cell.text, cell.style)
        else:
            merged.append(cell)
    return tuple(merged)
