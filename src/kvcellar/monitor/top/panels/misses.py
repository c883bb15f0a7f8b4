"""Why prompts miss: computed tokens by reason."""

from kvcellar.monitor.numbers import count, percent
from kvcellar.monitor.reason_words import MOST_CHARACTERS
from kvcellar.monitor.top.bars import bar
from kvcellar.monitor.top.box import Panel
from kvcellar.monitor.top.spans import Line, Span, line
from kvcellar.monitor.view import MissRow, View

_FIGURES = 12  # " 100%  9,999"


def misses_panel(view: View, width: int, height: int) -> Panel:
    """One bar for each reason; what does not fit is one last bar."""
    rows = list(view.misses)
    if len(rows) > height:
        rest = rows[height - 1 :]
        tokens, share = sum(r.tokens for r in rest), sum(r.share for r in rest)
        rows[height - 1 :] = [MissRow(f"{len(rest)} other reasons", tokens, share)]
    lines = [_row(row, width) for row in rows] or [
        line(Span("nothing was computed", "dim"))
    ]
    computed = sum(row.tokens for row in view.misses)
    return Panel(
        title="Why tokens were computed",
        figure=f"{count(computed)}",
        lines=lines,
    )


def _row(row: MissRow, width: int) -> Line:
    room = max(width - MOST_CHARACTERS - 1 - _FIGURES, 0)
    return line(
        f"{row.words:<{MOST_CHARACTERS}} ",
        *bar(row.share, room, "miss"),
        Span(f" {percent(row.share):>4}", "value"),
        Span(f" {count(row.tokens):>6}", "dim"),
    )
