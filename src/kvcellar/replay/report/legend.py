"""Legends: what colours, dashes and rings stand for."""

from collections.abc import Iterable, Sequence

from kvcellar.replay.report.bars import Part
from kvcellar.replay.report.curves import Family
from kvcellar.replay.report.svg import element, text_in


def curve_legend(family: Family, references: Sequence[str] = ()) -> str:
    """One entry per curve; empty where there is only one and nothing to tell apart."""
    entries = []
    for choice in family.choices:
        colour, is_dashed, is_hollow = family.style_of(choice)
        line = element(
            "path",
            d="M0 7 L34 7",
            class_=f"curve c{colour}{' dashed' if is_dashed else ''}",
        )
        ring = f"point c{colour}{' hollow' if is_hollow else ''}"
        dot = element("circle", cx=17, cy=7, r=4, class_=ring)
        entries.append((line + dot, choice or "device alone"))
    for number, name in enumerate(references):
        style = f"curve ref{' dashed' if number else ''}"
        entries.append((element("path", d="M0 7 L34 7", class_=style), name))
    return _legend(entries)


def part_legend(parts: Iterable[Part]) -> str:
    """One entry per colour of the bars."""
    entries = []
    for part in parts:
        square = element(
            "rect", x=10, y=0, width=14, height=14, class_=f"piece {part.style}"
        )
        entries.append((square, part.name))
    return _legend(entries)


def _legend(entries: Iterable[tuple[str, str]]) -> str:
    items = [
        element("li", element("svg", mark, viewBox="0 0 34 14"), text_in(name))
        for mark, name in entries
    ]
    return element("ul", *items, class_="legend")
