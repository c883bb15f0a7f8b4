"""Is it working: where prompt tokens came from, now and over time."""

from kvcellar.monitor.numbers import count, percent, span
from kvcellar.monitor.top.bars import mark, stacked
from kvcellar.monitor.top.box import Panel
from kvcellar.monitor.top.chart import load_line, share_chart
from kvcellar.monitor.top.spans import Line, Span, as_fits, line
from kvcellar.monitor.view import SOURCES, View

_NEARLY = 0.9  # of a window; then it is called whole
_BESIDE_CHART = 3  # the bar, its legend, and the load
_WORDS = {"device": "device", "host": "host memory", "computed": "computed"}


def sources_panel(view: View, width: int, height: int, *, has_colour: bool) -> Panel:
    """The share served as a bar, then slot by slot."""
    rows = max(height - _BESIDE_CHART, 0)
    slots = view.slots[-width:]
    chart = share_chart(slots, rows, has_colour=has_colour) if rows else []
    before = span(len(slots) * view.slot_seconds)
    return Panel(
        title=f"Prompt tokens, {window_words(view)}",
        figure=f"{count(view.tokens_per_second)} tokens/s · "
        f"{count(view.requests_per_second)} requests/s",
        lines=(
            _bar(view, width, has_colour=has_colour),
            _legend(view, width, has_colour=has_colour),
            *chart,
            load_line(slots),
        ),
        below=(f"{before} ago", "lowest row: load, now"),
    )


def window_words(view: View) -> str:
    """What rates and shares are taken over."""
    if view.wished_seconds is None:
        return "since start"
    wished = span(view.wished_seconds)
    if view.window_seconds >= _NEARLY * view.wished_seconds:
        return f"last {wished}"
    return f"last {span(view.window_seconds)} (of {wished})"


def _bar(view: View, width: int, *, has_colour: bool) -> Line:
    sources = view.sources
    if not sources.total:
        return line(Span("no prompt began to run in this time", "dim"))
    head = f"{percent(sources.served_share)} served  "
    parts = [(source, sources.share(source)) for source in SOURCES]
    bar = stacked(parts, max(width - len(head), 0), has_colour=has_colour)
    return (Span(head, "value"), *bar)


def _legend(view: View, width: int, *, has_colour: bool) -> Line:
    pieces = []
    for source in SOURCES:
        tokens, share = getattr(view.sources, source), view.sources.share(source)
        pieces.append(
            line(
                mark(source, has_colour=has_colour),
                f" {_WORDS[source]} ",
                Span(percent(share), "value"),
                Span(f" {count(tokens)}", "dim"),
            )
        )
    return as_fits(pieces, width)
