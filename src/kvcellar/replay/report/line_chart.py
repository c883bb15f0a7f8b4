"""A chart of curves against memory, as SVG."""

from collections.abc import Sequence
from dataclasses import dataclass

from kvcellar.replay.report.scales import Scale
from kvcellar.replay.report.svg import element, path_through, text_in

_WIDTH, _HEIGHT = 520.0, 310.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 26.0, 44.0, 46.0
_POINT_RADIUS = 4.0


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a curve, and what is shown over it."""

    x: float
    y: float
    hint: str


@dataclass(frozen=True, slots=True)
class Curve:
    """Points from left to right.

    Attributes:
        colour: number of its colour in the page's style; None for a reference line.
        is_dashed: drawn with gaps.
        is_hollow: points are rings.
    """

    name: str
    points: tuple[Point, ...]
    colour: int | None
    is_dashed: bool = False
    is_hollow: bool = False


@dataclass(frozen=True, slots=True)
class Axes:
    """Both scales, and what they show."""

    x: Scale
    y: Scale
    x_label: str
    y_label: str


def line_chart(title: str, axes: Axes, curves: Sequence[Curve]) -> str:
    """Draw it; every point tells its value when the pointer rests on it."""
    parts = [_grid(axes), *(_curve(axes, curve) for curve in curves)]
    heading = element("text", text_in(title), x=_LEFT, y=14.0, class_="chart-title")
    unit = element("text", text_in(axes.y_label), x=_LEFT, y=31.0, class_="axis-label")
    return element(
        "svg",
        heading,
        unit,
        *parts,
        viewBox=f"0 0 {_WIDTH:.0f} {_HEIGHT:.0f}",
        role="img",
        aria_label=f"{title}: {axes.y_label} against {axes.x_label}",
    )


def _x(place: float) -> float:
    return _LEFT + place * (_WIDTH - _LEFT - _RIGHT)


def _y(place: float) -> float:
    return _HEIGHT - _BOTTOM - place * (_HEIGHT - _TOP - _BOTTOM)


def _grid(axes: Axes) -> str:
    parts = []
    for tick in axes.y.ticks:
        y = _y(tick.place)
        parts.append(element("line", x1=_x(0.0), x2=_x(1.0), y1=y, y2=y, class_="grid"))
        parts.append(
            element("text", text_in(tick.label), x=_LEFT - 8, y=y + 4, class_="tick-y")
        )
    for tick in axes.x.ticks:
        x = _x(tick.place)
        parts.append(
            element(
                "text",
                text_in(tick.label),
                x=x,
                y=_HEIGHT - _BOTTOM + 18,
                class_="tick-x",
            )
        )
    x_label = element(
        "text",
        text_in(axes.x_label),
        x=_x(0.5),
        y=_HEIGHT - 8,
        class_="axis-label middle",
    )
    return element("g", *parts, x_label)


def _curve(axes: Axes, curve: Curve) -> str:
    places = [(_x(axes.x.place(p.x)), _y(axes.y.place(p.y))) for p in curve.points]
    if not places:
        return ""
    style = "ref" if curve.colour is None else f"c{curve.colour}"
    line_class = f"curve {style}{' dashed' if curve.is_dashed else ''}"
    parts = [element("path", d=path_through(places), class_=line_class)]
    if curve.colour is not None:
        point_class = f"point {style}{' hollow' if curve.is_hollow else ''}"
        for (x, y), point in zip(places, curve.points, strict=True):
            hint = element("title", text_in(point.hint))
            parts.append(
                element("circle", hint, cx=x, cy=y, r=_POINT_RADIUS, class_=point_class)
            )
    return element("g", *parts)
