"""The report as one HTML page that needs nothing else."""

from collections.abc import Sequence

from kvcellar.replay.report.bars import (
    EVICTED_CHECKPOINTS,
    EVICTED_CHUNKS,
    SOURCES,
    checkpoint_chart,
    chunk_chart,
    source_chart,
)
from kvcellar.replay.report.columns import COLUMNS, Row
from kvcellar.replay.report.curves import Family, Figure, charts_of, family_of
from kvcellar.replay.report.legend import curve_legend, part_legend
from kvcellar.replay.report.page_style import style_sheet
from kvcellar.replay.report.page_table import meanings, table_of
from kvcellar.replay.report.report import Report
from kvcellar.replay.report.scales import Scale, linear_scale, value_scale
from kvcellar.replay.report.svg import element, text_in
from kvcellar.replay.report.words import (
    is_native,
    number,
    percent_text,
    seconds_text,
    size_text,
    trace_text,
)

_REFERENCES = (
    ("ceiling_hit_ratio", "what an earlier request had: no cache finds more"),
    (
        "offline_hit_ratio",
        "all of the trace known: no order of eviction finds more in as many bytes",
    ),
)
_NATIVE_EVICTIONS = (
    " Of vLLM's own connectors only the numbers are known; the table has them."
)
_GIB = 1 / 2**30

_HITS = Figure(
    "hit_ratio",
    "prompt tokens found, %",
    lambda ratio: f"{percent_text(ratio)} %",
    100.0,
    _REFERENCES,
)
_WAITS = (
    Figure("ttft_p50_seconds", "half wait no longer, s", seconds_text),
    Figure("ttft_p99_seconds", "99 % wait no longer, s", seconds_text),
)
_STORED = Figure("stored_bytes", "written to host memory, GiB", size_text, _GIB)
_LOADED = Figure("loaded_bytes", "read from host memory, GiB", size_text, _GIB)


def page_of(report: Report) -> str:
    """The whole page; the same report gives the same text."""
    title = text_in(_title(report))
    head = element(
        "head",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        element("title", title),
        element("style", style_sheet()),
    )
    body = element("body", "\n".join(_body(report)))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _title(report: Report) -> str:
    return f"{report.facts['trace']['name']} on {report.facts['model']['name']}"


def _body(report: Report) -> list[str]:
    family = family_of(report.rows)
    return [
        element("h1", text_in(_title(report))),
        element("p", text_in(_subtitle(report)), class_="soft"),
        *(element("p", text_in(remark), class_="remark") for remark in report.remarks),
        *_hit_section(family),
        *([] if report.is_timeless else _wait_section(family)),
        *_source_section(report.rows),
        *_traffic_section(family),
        *_eviction_section(report.rows),
        *_section("All figures", "The same as in the CSV and JSON files."),
        table_of(report.rows, COLUMNS),
        *_section("What the figures stand on", ""),
        element("ul", *(element("li", text_in(s)) for s in report.assumptions)),
        *_section("What each figure means", ""),
        meanings(COLUMNS),
    ]


def _subtitle(report: Report) -> str:
    trace, model = report.facts["trace"], report.facts["model"]
    return (
        f"Trace read as {trace_text(trace)}; it lasts {trace['span_seconds']:,.0f} s. "
        f"{len(report.rows)} configurations of {model['tensor_parallel']} GPU(s); "
        f"cache dtype {model['cache_dtype']}, chunks of {model['chunk_tokens']} tokens."
    )


def _section(heading: str, text: str) -> list[str]:
    parts = [element("h2", text_in(heading))]
    return [*parts, element("p", text_in(text), class_="soft")] if text else parts


def _hit_section(family: Family) -> list[str]:
    return [
        *_section(
            "Hit ratio",
            "Share of the prompt tokens that need not be computed, found on the device "
            "or in host memory.",
        ),
        curve_legend(family, [name for _, name in _REFERENCES]),
        _side_by_side(charts_of(family, _HITS, _linear)),
    ]


def _wait_section(family: Family) -> list[str]:
    parts = _section(
        "Time to first token",
        "From arrival to the first token: waiting, loading and computing the prompt.",
    )
    parts.append(curve_legend(family))
    parts += [_side_by_side(charts_of(family, figure, _wide)) for figure in _WAITS]
    return parts


def _source_section(rows: Sequence[Row]) -> list[str]:
    return [
        *_section(
            "Where prompt tokens came from, and why the others were missed",
            "Coloured misses could have been hits with more memory or earlier stores; "
            "grey ones could not.",
        ),
        part_legend(SOURCES),
        element("div", source_chart(rows), class_="bars"),
    ]


def _traffic_section(family: Family) -> list[str]:
    return [
        *_section("Bytes copied", "Between all GPUs and host memory, over the trace."),
        curve_legend(family),
        _side_by_side(charts_of(family, _STORED, _linear)),
        _side_by_side(charts_of(family, _LOADED, _linear)),
    ]


def _eviction_section(all_rows: Sequence[Row]) -> list[str]:
    rows = [row for row in all_rows if not is_native(row)]
    parts = _section(
        "What was evicted from host memory",
        "Grey is what no prompt could resume at any more, such as the chunks that led "
        "to a checkpoint just evicted; it goes first."
        + _NATIVE_EVICTIONS
        * (len(rows) < len(all_rows)),
    )
    if any(number(row, "evicted_chunks") for row in rows):
        parts.append(part_legend(EVICTED_CHUNKS))
        parts.append(element("div", chunk_chart(rows), class_="bars"))
    else:
        parts.append(element("p", "No chunk was evicted."))
    if any(number(row, "evicted_checkpoints") for row in rows):
        parts.append(part_legend(EVICTED_CHECKPOINTS))
        parts.append(element("div", checkpoint_chart(rows), class_="bars"))
    return parts


def _side_by_side(charts: Sequence[str]) -> str:
    return element("div", *charts, class_="charts")


def _wide(values: Sequence[float]) -> Scale:
    return value_scale(values, lambda value: f"{value:,.6g}")


def _linear(values: Sequence[float]) -> Scale:
    return linear_scale(max(values), lambda value: f"{value:,.6g}")
