"""Engines behind one server, side by side."""

from kvcellar.monitor.numbers import count, percent
from kvcellar.monitor.top.box import Panel
from kvcellar.monitor.top.spans import Line, Span, line
from kvcellar.monitor.view import EngineRow, View

_HEAD = f"{'engine':<8}{'served':>7}{'tokens/s':>10}{'host':>6}{'requests':>10}"


def engines_panel(view: View, width: int, height: int) -> Panel:
    """A table, one row for each engine."""
    lines = [line(Span(_HEAD[:width], "dim")), *(_row(row) for row in view.engines)]
    return Panel(title="Engines", figure=f"{len(view.engines)}", lines=lines[:height])


def _row(row: EngineRow) -> Line:
    if row.is_missing:
        return line(f"{row.engine:<8}", Span("no longer answers", "bad"))
    return line(
        f"{row.engine:<8}",
        Span(f"{percent(row.served_share):>7}", "value"),
        f"{count(row.tokens_per_second):>10}{percent(row.used_share):>6}"
        f"{count(row.num_requests):>10}",
    )
