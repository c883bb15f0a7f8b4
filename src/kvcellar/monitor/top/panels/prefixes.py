"""Which prefixes are busiest."""

from kvcellar.monitor.numbers import count, percent
from kvcellar.monitor.top.box import Panel
from kvcellar.monitor.top.spans import Line, Span, line
from kvcellar.monitor.view import PrefixRow, View

_KEY = 8
_HEAD = f"{'prefix':<{_KEY}}{'tokens':>8}{'requests':>9}{'served':>8}"
_HOST = f"{'host':>6}"


def prefixes_panel(view: View, width: int, height: int) -> Panel:
    """A table, the busiest first; counted since start."""
    has_host = width >= len(_HEAD) + len(_HOST)
    head = _HEAD + (_HOST if has_host else "")
    lines = [line(Span(head, "dim"))]
    busy = [row for row in view.prefixes if row.num_requests > 1]
    lines += [_row(row, has_host=has_host) for row in busy[: height - 1]]
    if not busy:
        lines = [line(Span("none has served two requests yet", "dim"))]
    return Panel(title="Busiest prefixes", lines=lines)


def _row(row: PrefixRow, *, has_host: bool) -> Line:
    host = f"{percent(row.host_share):>6}" if has_host else ""
    return line(
        Span(f"{row.key[:_KEY]:<{_KEY}}", "key"),
        f"{count(row.tokens):>8}{count(row.num_requests):>9}",
        Span(f"{count(row.served_tokens):>8}", "value"),
        host,
    )
