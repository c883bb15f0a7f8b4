"""The report as text for a terminal."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kvcellar.replay.report.columns import Row
from kvcellar.replay.report.report import Report
from kvcellar.replay.report.words import (
    is_native,
    memory_text,
    number,
    percent_text,
    plain_text,
    seconds_text,
    size_text,
    trace_text,
)

NOTE = "note: "  # before each remark


class _TextColumn(NamedTuple):
    heading: str
    read: Callable[[Row], str]
    is_text: bool = False


def _plain(heading: str, name: str) -> _TextColumn:
    return _TextColumn(heading, lambda row: plain_text(row[name]))


def _name(heading: str, name: str) -> _TextColumn:
    return _TextColumn(heading, lambda row: plain_text(row[name]), is_text=True)


def _memory(heading: str, name: str) -> _TextColumn:
    return _TextColumn(heading, lambda row: memory_text(number(row, name)))


def _size(heading: str, name: str) -> _TextColumn:
    return _TextColumn(heading, lambda row: size_text(number(row, name)))


def _percent(heading: str, name: str) -> _TextColumn:
    return _TextColumn(heading, lambda row: percent_text(number(row, name)))


def _share(heading: str, name: str) -> _TextColumn:
    """A number of tokens as a share of the prompts."""

    def read(row: Row) -> str:
        total = number(row, "prompt_tokens")
        return percent_text(number(row, name) / total if total else 0.0)

    return _TextColumn(heading, read)


def _seconds(heading: str, name: str) -> _TextColumn:
    def read(row: Row) -> str:
        value = row[name]
        return seconds_text(value if isinstance(value, float) else None)

    return _TextColumn(heading, read)


_HITS = (
    _percent("device", "device_hit_ratio"),
    _percent("host", "host_hit_ratio"),
    _percent("found", "hit_ratio"),
    _percent("bound", "offline_hit_ratio"),
    _percent("ceiling", "ceiling_hit_ratio"),
)
_TIMES = (
    _seconds("p50", "ttft_p50_seconds"),
    _seconds("p90", "ttft_p90_seconds"),
    _seconds("p99", "ttft_p99_seconds"),
    _seconds("GPU s", "busy_gpu_seconds"),
    _seconds("saved", "saved_gpu_seconds"),
)
_WHY = (
    _share("new", "missed_never_seen_tokens"),
    _share("partial", "missed_partial_tokens"),
    _share("in work", "missed_in_progress_tokens"),
    _share("storing", "missed_storing_tokens"),
    _share("no ckpt", "missed_no_checkpoint_tokens"),
    _share("evicted", "missed_evicted_tokens"),
)
_MOVED = (
    _size("stored", "stored_bytes"),
    _size("loaded", "loaded_bytes"),
    _plain("chunks", "evicted_chunks"),
    _plain("dead", "dead_chunks"),
    _plain("ckpts", "evicted_checkpoints"),
    _plain("superseded", "superseded_checkpoints"),
)


def text_of(report: Report) -> str:
    """All tables, and what to know about them."""
    waiting = () if report.is_timeless else _TIMES
    title = "prompt tokens found, %"
    if waiting:
        title += "; time to first token, s; GPU seconds busy and saved"
    lines = [
        _heading(report),
        *_table(report, title, (*_HITS, *waiting)),
        *_table(report, "prompt tokens computed, by reason, % of prompts", _WHY),
        *_table(report, "copied; evicted from host memory", _MOVED),
    ]
    lines += [f"{NOTE}{remark}" for remark in report.remarks]
    return "\n".join(lines)


def _heading(report: Report) -> str:
    trace, model = report.facts["trace"], report.facts["model"]
    return (
        f"kvcellar replay: {trace['name']} on {model['name']}\n"
        f"trace read as {trace_text(trace)}"
    )


def _table(report: Report, title: str, columns: Sequence[_TextColumn]) -> list[str]:
    columns = (*_naming_columns(report.rows), *columns)
    cells = [[column.read(row) for column in columns] for row in report.rows]
    headings = [column.heading for column in columns]
    widths = [max(map(len, texts)) for texts in zip(headings, *cells, strict=True)]

    def line(texts: Sequence[str]) -> str:
        padded = [
            text.ljust(width) if column.is_text else text.rjust(width)
            for text, width, column in zip(texts, widths, columns, strict=True)
        ]
        return "  ".join(padded).rstrip()

    return ["", title, line(headings), *map(line, cells)]


def _naming_columns(rows: Sequence[Row]) -> tuple[_TextColumn, ...]:
    columns = [
        _memory("device mem", "device_memory_bytes"),
        _memory("host mem", "host_memory_bytes"),
        _name("policy", "policy"),
        _name("mode", "mode"),
    ]
    for name in ("admission", "placement"):
        if any(row[name] is not None for row in rows):
            columns.insert(3, _name(name, name))
    if any(map(is_native, rows)):
        columns.insert(2, _name("system", "system"))
    return tuple(columns)
