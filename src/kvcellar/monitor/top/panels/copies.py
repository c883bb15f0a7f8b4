"""Are copies slow: by direction, and whether loading is worth it."""

from kvcellar.monitor.numbers import count, seconds, size
from kvcellar.monitor.top.box import Panel
from kvcellar.monitor.top.spans import Line, Span, as_fits, line
from kvcellar.monitor.view import CopyRow, Loading, View

_HEAD = f"{'':<5}{'per second':>11}{'each':>8}{'now':>5}{'failed':>7}"


def copies_panel(view: View, width: int, height: int) -> Panel:
    """A table, then the choice between loading and computing."""
    lines = [line(Span(_HEAD, "dim")), *(_row(row) for row in view.copies)]
    lines += _loading(view.loading, width)
    return Panel(title="Copies", lines=lines[:height])


def _row(row: CopyRow) -> Line:
    each = "-" if row.seconds_each is None else seconds(row.seconds_each)
    is_idle = not row.num_ended and not row.num_under_way
    return line(
        f"{row.direction:<5}",
        Span(f"{size(row.bytes_per_second):>11}", "dim" if is_idle else "value"),
        f"{each:>8}{count(row.num_under_way):>5}",
        Span(f"{count(row.num_failed):>7}", "bad" if row.num_failed else "dim"),
    )


def _loading(loading: Loading, width: int) -> list[Line]:
    lines = [
        as_fits(
            [
                line("loaded ", Span(count(loading.num_loaded), "value")),
                line(
                    "cheaper to compute ", Span(count(loading.num_too_cheap), "value")
                ),
                line("too short ", Span(count(loading.num_too_short), "value")),
            ],
            width,
        )
    ]
    if loading.saved_seconds:
        saved = seconds(loading.saved_seconds)
        lines.append(line("saved about ", Span(saved, "good"), " of prefill"))
    if loading.bytes_per_second:
        speed = f"{size(loading.bytes_per_second)}/s load"
        prefill = f"{count(loading.prefill_tokens_per_second)} tokens/s prefill"
        lines.append(
            as_fits([line(Span(speed, "dim")), line(Span(prefill, "dim"))], width)
        )
    return lines
