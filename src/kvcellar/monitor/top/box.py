"""A frame around lines, with words in its edges."""

from collections.abc import Sequence
from dataclasses import dataclass

from kvcellar.monitor.top.spans import BLANK, Line, Span, fit, length

FRAME = 2  # lines above and below, cells left and right
_MARGIN = 4  # cells of an edge that hold no words


@dataclass(frozen=True, slots=True)
class Panel:
    """What a frame is put around.

    Attributes:
        title: in its upper edge, to the left.
        figure: in its upper edge, to the right.
        lines: inside; more than there is room for are left out.
        below: words in its lower edge, left and right.
    """

    title: str
    lines: Sequence[Line]
    figure: str = ""
    below: tuple[str, str] = ("", "")


def framed(panel: Panel, width: int, height: int) -> list[Line]:
    """The panel in exactly ``height`` lines of ``width`` cells."""
    inner = width - FRAME - 2
    shown = list(panel.lines[: height - FRAME])
    shown += [BLANK] * (height - FRAME - len(shown))
    below_left, below_right = panel.below
    side, right = Span("│ ", "frame"), Span(" │", "frame")
    return [
        _edge("╭╮", _words(panel.title, "title"), _words(panel.figure, "value"), width),
        *((side, *fit(text, inner), right) for text in shown),
        _edge("╰╯", _words(below_left, "dim"), _words(below_right, "dim"), width),
    ]


def _words(text: str, style: str) -> Line:
    return (Span(f" {text} ", style),) if text else ()


def _edge(corners: str, left: Line, right: Line, width: int) -> Line:
    room = width - _MARGIN
    if length(left) + length(right) > room:
        right = ()
    if length(left) > room:
        left = fit(left, room)
    line = "─" * (room - length(left) - length(right))
    return (
        Span(f"{corners[0]}─", "frame"),
        *left,
        Span(line, "frame"),
        *right,
        Span(f"─{corners[1]}", "frame"),
    )
