"""Lines of styled text, one terminal cell for each character.

A style is a name; what colour it has is decided where it is shown, if it has any.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Span(NamedTuple):
    """Text in one style; ``""`` is plain."""

    text: str
    style: str = ""


Line = tuple[Span, ...]

BLANK: Line = ()
GAP = "  "


def line(*parts: Span | str) -> Line:
    """A line of spans; strings are plain."""
    return tuple(Span(p) if isinstance(p, str) else p for p in parts)


def length(text: Line) -> int:
    """Cells that a line takes."""
    return sum(len(span.text) for span in text)


def plain(text: Line) -> str:
    """The line without its styles."""
    return "".join(span.text for span in text)


def fit(text: Line, width: int) -> Line:
    """The line in exactly ``width`` cells: filled up, or cut with an ellipsis."""
    missing = width - length(text)
    if missing >= 0:
        return (*text, Span(" " * missing)) if missing else text
    kept: list[Span] = []
    room = max(width - 1, 0)
    for span in text:
        kept.append(Span(span.text[:room], span.style))
        room -= len(kept[-1].text)
    return (*(s for s in kept if s.text), Span("…"[:width], "dim"))


def spread(left: Line, right: Line, width: int) -> Line:
    """Both at the ends of one line; without room for both, only the left one."""
    gap = width - length(left) - length(right)
    if gap < 1:
        return fit(left, width)
    return (*left, Span(" " * gap), *right)


def as_fits(pieces: Sequence[Line], width: int) -> Line:
    """As many pieces as fit, with gaps between them."""
    taken: Line = ()
    for piece in pieces:
        longer = (*taken, Span(GAP), *piece) if taken else piece
        if length(longer) > width and taken:
            break
        taken = longer
    return fit(taken, width)


def restyled(text: Line, style: str) -> Line:
    """The same words, all in one style."""
    return (Span(plain(text), style),)
