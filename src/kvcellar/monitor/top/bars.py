"""Bars: parts of a whole side by side, and one value as a length.

With colours the parts are solid; without, each has a shade of its own, so a picture in
a log says the same.
"""

from collections.abc import Sequence

from kvcellar.monitor.top.spans import Line, Span

_EIGHTHS = " ▏▎▍▌▋▊▉█"
SHADES = {
    "device": "█",
    "host": "▓",
    "computed": "░",
    "chunks": "█",
    "checkpoints": "▓",
    "free": "·",
}
_OPEN = ("computed", "free")  # what is not there, or was not served: never solid


def mark(style: str, *, has_colour: bool) -> Span:
    """One cell that stands for a part in a legend."""
    return Span(_glyph(style, has_colour=has_colour), style)


def stacked(
    parts: Sequence[tuple[str, float]], width: int, *, has_colour: bool
) -> Line:
    """A bar of ``width`` cells, cut by the parts' sizes; blank if all are nothing.

    Every part that is there has a cell if there is room for all.

    Args:
        parts: style and size of each, from the left.
        width: in cells.
        has_colour: whether styles will be told apart by colour.
    """
    cells = cells_of([size for _, size in parts], width)
    if not any(cells):
        return (Span(" " * width),)
    pairs = zip(parts, cells, strict=True)
    return tuple(
        Span(_glyph(style, has_colour=has_colour) * number, style)
        for (style, _), number in pairs
        if number
    )


def cells_of(sizes: Sequence[float], width: int) -> list[int]:
    """Whole cells by size, adding up to ``width``; largest remainders first."""
    total = sum(sizes)
    if total <= 0 or width <= 0:
        return [0] * len(sizes)
    exact = [size * width / total for size in sizes]
    cells = [int(value) for value in exact]
    by_remainder = sorted(range(len(sizes)), key=lambda i: cells[i] - exact[i])
    for at in by_remainder[: width - sum(cells)]:
        cells[at] += 1
    for at, size in enumerate(sizes):
        largest = max(range(len(cells)), key=cells.__getitem__)
        if size > 0 and not cells[at] and cells[largest] > 1:
            cells[at], cells[largest] = 1, cells[largest] - 1
    return cells


def bar(share: float, width: int, style: str) -> Line:
    """A length of at most ``width`` cells, in eighths of a cell."""
    eighths = round(max(min(share, 1.0), 0.0) * width * 8)
    if share > 0:
        eighths = max(eighths, 1)
    whole, rest = divmod(eighths, 8)
    text = "█" * whole + (_EIGHTHS[rest] if rest else "")
    return (Span(text, style), Span(" " * (width - len(text))))


def _glyph(style: str, *, has_colour: bool) -> str:
    return "█" if has_colour and style not in _OPEN else SHADES[style]
