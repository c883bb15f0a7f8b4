"""Stacked horizontal bars, one per configuration, as SVG."""

from collections.abc import Sequence
from dataclasses import dataclass

from kvcellar.replay.report.scales import Scale
from kvcellar.replay.report.svg import element, text_in

_WIDTH, _ROW, _BAR = 1080.0, 24.0, 16.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 330.0, 24.0, 8.0, 40.0
_GAP = 1.0  # between two pieces of a bar


@dataclass(frozen=True, slots=True)
class Piece:
    """One part of a bar; ``style`` is a class of the page's style."""

    size: float
    style: str
    hint: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One configuration."""

    label: str
    pieces: tuple[Piece, ...]


def bar_chart(title: str, scale: Scale, x_label: str, bars: Sequence[Bar]) -> str:
    """Draw it; every piece tells its value when the pointer rests on it."""
    height = _TOP + _ROW * len(bars) + _BOTTOM
    rows = [_row(scale, bar, _TOP + _ROW * number) for number, bar in enumerate(bars)]
    return element(
        "svg",
        _grid(scale, x_label, height),
        *rows,
        viewBox=f"0 0 {_WIDTH:.0f} {height:.0f}",
        role="img",
        aria_label=title,
    )


def _x(place: float) -> float:
    return _LEFT + place * (_WIDTH - _LEFT - _RIGHT)


def _grid(scale: Scale, x_label: str, height: float) -> str:
    bottom = height - _BOTTOM
    parts = []
    for tick in scale.ticks:
        x = _x(tick.place)
        parts.append(element("line", x1=x, x2=x, y1=_TOP, y2=bottom, class_="grid"))
        parts.append(
            element("text", text_in(tick.label), x=x, y=bottom + 16, class_="tick-x")
        )
    label = element(
        "text", text_in(x_label), x=_x(0.5), y=height - 6, class_="axis-label middle"
    )
    return element("g", *parts, label)


def _row(scale: Scale, bar: Bar, top: float) -> str:
    middle = top + _ROW / 2
    label = element(
        "text", text_in(bar.label), x=_LEFT - 10, y=middle + 4, class_="bar-label"
    )
    parts, done = [], 0.0
    for piece in bar.pieces:
        left, right = _x(scale.place(done)), _x(scale.place(done + piece.size))
        done += piece.size
        if right - left <= 0:
            continue
        width = max(right - left - _GAP, min(right - left, 0.5))
        parts.append(
            element(
                "rect",
                element("title", text_in(piece.hint)),
                x=left,
                y=middle - _BAR / 2,
                width=width,
                height=_BAR,
                class_=f"piece {piece.style}",
            )
        )
    return element("g", label, *parts)
