"""The whole picture: a heading, what it means, and the panels."""

from collections.abc import Callable

from kvcellar.monitor.numbers import span
from kvcellar.monitor.top.arrange import Place, Row, arrange, chart_width
from kvcellar.monitor.top.box import FRAME, Panel, framed
from kvcellar.monitor.top.panels.copies import copies_panel
from kvcellar.monitor.top.panels.engines import engines_panel
from kvcellar.monitor.top.panels.memory import memory_panel
from kvcellar.monitor.top.panels.misses import misses_panel
from kvcellar.monitor.top.panels.prefixes import prefixes_panel
from kvcellar.monitor.top.panels.sources import sources_panel
from kvcellar.monitor.top.spans import (
    GAP,
    Line,
    Span,
    as_fits,
    fit,
    length,
    line,
    restyled,
    spread,
)
from kvcellar.monitor.view import Level, Server, View

LEAST_WIDTH, LEAST_HEIGHT = 40, 8
_TALL = 30  # from here on there is room for more remarks than one
_MOST_REMARKS = 3
_MARKS = {Level.GOOD: "✓", Level.NOTE: "i", Level.WARNING: "!"}

_Draw = Callable[[View, int, int], Panel]
_PANELS: dict[str, _Draw] = {
    "copies": copies_panel,
    "engines": engines_panel,
    "misses": misses_panel,
    "prefixes": prefixes_panel,
}
_SHADED = {"sources": sources_panel, "memory": memory_panel}


def draw(
    view: View, width: int, height: int, *, has_colour: bool, state: str = ""
) -> list[Line]:
    """The picture in exactly ``height`` lines of ``width`` cells.

    Args:
        view: what is shown.
        width: of the terminal.
        height: lines that are there for it.
        has_colour: whether parts of bars are told apart by colour.
        state: a word such as ``paused``, shown at the upper right.
    """
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        words = f"too small: {LEAST_WIDTH}x{LEAST_HEIGHT} is the least"
        return [fit(line(words), width), *[fit((), width)] * (height - 1)]
    head = [_heading(view, width, state), *_remarks(view, width, height)]
    rows = arrange(width, height - len(head), len(view.engines))
    body = [
        text for row in rows for text in _draw_row(view, row, has_colour=has_colour)
    ]
    lines = [*head, *body]
    lines += [fit((), width)] * (height - len(lines))
    if view.silence:
        lines = [lines[0], *(restyled(text, "stale") for text in lines[1:])]
    return lines


def num_slots(width: int) -> int:
    """Columns of the picture over time in a terminal of that width."""
    return chart_width(max(width, LEAST_WIDTH)) - FRAME - 2


def _heading(view: View, width: int, state: str) -> Line:
    server = view.server
    left = as_fits(_titles(server, width - len(state) - 4), width - len(state) - 4)
    if view.silence:
        words = line(Span(f"! {view.silence}", "bad"))
        return fit((*line(Span("kvcellar top  ", "brand")), *words), width)
    dot = Span("● " if state.startswith("every") else "", "good")
    trimmed = (*left[:-1], Span(left[-1].text.rstrip(), left[-1].style))
    return spread(trimmed, (dot, Span(state, "dim")), width)


def _titles(server: Server, width: int) -> list[Line]:
    """What the heading says, the most needed first.

    Whose figures these are stands before the model, whose name may be long: a path
    that does not fit is its last folder.
    """
    brand = Span("kvcellar top", "brand")
    engines = ""
    if server.engine is not None:
        engines = f"engine {server.engine} alone"
    elif server.num_engines > 1:
        engines = f"{server.num_engines} engines"
    used = length((brand, Span(GAP), Span(engines), Span(GAP)))
    fits = used + length(line(server.model)) <= width
    model = server.model if fits else server.model.rstrip("/").rpartition("/")[2]
    others = (engines, model, server.setting, f"up {span(server.uptime_seconds)}")
    styles = ("dim", "value", "dim", "dim")
    pairs = zip(others, styles, strict=True)
    return [line(brand), *(line(Span(text, style)) for text, style in pairs if text)]


def _remarks(view: View, width: int, height: int) -> list[Line]:
    number = _MOST_REMARKS if height >= _TALL else 1
    return [
        fit(line(Span(f"{_MARKS[r.level]} ", r.level), Span(r.text, r.level)), width)
        for r in view.remarks[:number]
    ]


def _draw_row(view: View, row: Row, *, has_colour: bool) -> list[Line]:
    columns = [
        [
            text
            for place in column
            for text in framed(
                _panel(view, place, has_colour=has_colour), place.width, place.height
            )
        ]
        for column in row
    ]
    return [
        tuple(one for part in parts for one in part)
        for parts in zip(*columns, strict=True)
    ]


def _panel(view: View, place: Place, *, has_colour: bool) -> Panel:
    width, height = place.width - FRAME - 2, place.height - FRAME
    shaded = _SHADED.get(place.name)
    if shaded is not None:
        return shaded(view, width, height, has_colour=has_colour)
    return _PANELS[place.name](view, width, height)
