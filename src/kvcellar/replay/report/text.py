"""The report as text for a terminal of 80 columns.

It does not ask how wide the terminal is, so that a pipe gets the same.
"""

import textwrap
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kvcellar.replay.report.columns import Row
from kvcellar.replay.report.naming import in_common, names_of, numbers_of
from kvcellar.replay.report.report import Report
from kvcellar.replay.report.text_table import TextColumn, table_lines, width_of
from kvcellar.replay.report.words import (
    number,
    percent_text,
    plain_text,
    seconds_text,
    size_text,
    trace_text,
)

NOTE = "note: "  # before each remark
MOST_COLUMNS = 80
_NOTHING = "-"


class _Figure(NamedTuple):
    heading: str
    read: Callable[[Row], str]


def _plain(heading: str, name: str) -> _Figure:
    return _Figure(heading, lambda row: plain_text(row[name]))


def _size(heading: str, name: str) -> _Figure:
    return _Figure(heading, lambda row: size_text(number(row, name)))


def _percent(heading: str, name: str) -> _Figure:
    """A share of the prompts; nothing where none was served."""

    def read(row: Row) -> str:
        is_known = number(row, "prompt_tokens") > 0
        return percent_text(number(row, name)) if is_known else _NOTHING

    return _Figure(heading, read)


def _share(heading: str, name: str) -> _Figure:
    """A number of tokens as a share of the prompts."""

    def read(row: Row) -> str:
        total = number(row, "prompt_tokens")
        return percent_text(number(row, name) / total) if total else _NOTHING

    return _Figure(heading, read)


def _seconds(heading: str, name: str) -> _Figure:
    def read(row: Row) -> str:
        value = row[name]
        if not isinstance(value, float) or not number(row, "prompt_tokens"):
            return _NOTHING
        return seconds_text(value)

    return _Figure(heading, read)


class _Table(NamedTuple):
    title: str
    figures: tuple[_Figure, ...]


_HITS = _Table(
    "prompt tokens found, % (bound: no order of eviction finds more in as many bytes; "
    "ceiling: no cache finds more)",
    (
        _percent("device", "device_hit_ratio"),
        _percent("host", "host_hit_ratio"),
        _percent("found", "hit_ratio"),
        _percent("bound", "offline_hit_ratio"),
        _percent("ceiling", "ceiling_hit_ratio"),
    ),
)
_TIMES = _Table(
    "time to first token, s; GPU seconds busy with prompts, and saved by hits",
    (
        _seconds("p50", "ttft_p50_seconds"),
        _seconds("p90", "ttft_p90_seconds"),
        _seconds("p99", "ttft_p99_seconds"),
        _seconds("busy", "busy_gpu_seconds"),
        _seconds("saved", "saved_gpu_seconds"),
    ),
)
_WHY = _Table(
    "prompt tokens computed, % (new: nobody had them; tail: behind the last boundary; "
    "work: another request was at them; store: their copy was under way; ckpt: no "
    "checkpoint to resume from; gone: evicted, or never stored)",
    (
        _share("new", "missed_never_seen_tokens"),
        _share("tail", "missed_partial_tokens"),
        _share("work", "missed_in_progress_tokens"),
        _share("store", "missed_storing_tokens"),
        _share("ckpt", "missed_no_checkpoint_tokens"),
        _share("gone", "missed_evicted_tokens"),
    ),
)
_COPIED = _Table(
    "copied: device to host, host to device",
    (_size("stored", "stored_bytes"), _size("loaded", "loaded_bytes")),
)
_EVICTED = _Table(
    "evicted from host memory (dead: chunks behind their path's last checkpoint; "
    "superseded: checkpoints with a deeper one on their path)",
    (
        _plain("chunks", "evicted_chunks"),
        _plain("dead", "dead_chunks"),
        _plain("ckpts", "evicted_checkpoints"),
        _plain("superseded", "superseded_checkpoints"),
    ),
)


def text_of(report: Report) -> str:
    """All tables, and what to know about them; no table is wider than 80 columns."""
    rows = report.rows
    times = () if report.is_timeless else (_TIMES,)
    tables = [
        (table.title, [_column(one, rows) for one in table.figures])
        for table in (_HITS, *times, _WHY, _COPIED, _EVICTED)
    ]
    names = names_of(rows)
    lines = _heading(report)
    if any(width_of([*names, *columns]) > MOST_COLUMNS for _, columns in tables):
        numbers = numbers_of(rows)
        lines += ["", "configurations", *table_lines([numbers, *names])]
        names = [numbers]
    for title, columns in tables:
        lines += ["", *_wrapped(title), *table_lines([*names, *columns])]
    if report.remarks:
        lines += ["", *(f"{NOTE}{remark}" for remark in report.remarks)]
    return "\n".join(lines)


def _heading(report: Report) -> list[str]:
    trace, model = report.facts["trace"], report.facts["model"]
    shared = in_common(report.rows)
    return [
        f"kvcellar replay: {trace['name']} on {model['name']}",
        *_wrapped(f"trace read as {trace_text(trace)}"),
        *(_wrapped(f"everywhere: {shared}") if shared else ()),
    ]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text,
        MOST_COLUMNS,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _column(figure: _Figure, rows: Sequence[Row]) -> TextColumn:
    return TextColumn(figure.heading, tuple(map(figure.read, rows)))
