"""Where prompt tokens came from, and what was evicted: bars of every configuration."""

from collections.abc import Sequence
from typing import NamedTuple

from kvcellar.replay.grid_misses import MEANINGS, Reason
from kvcellar.replay.report.bar_chart import Bar, Piece, bar_chart
from kvcellar.replay.report.columns import Row
from kvcellar.replay.report.scales import linear_scale
from kvcellar.replay.report.words import label_of, number


class Part(NamedTuple):
    """A colour of a bar: its class in the page's style, and what it stands for."""

    style: str
    name: str


SOURCES = (
    Part("device", "found on the device"),
    Part("host", "loaded from host memory"),
    *(Part(reason.value, MEANINGS[reason]) for reason in Reason),
)
EVICTED_CHUNKS = (
    Part("alive", "chunks that a prompt could have resumed"),
    Part("dead", "chunks behind their path's last checkpoint"),
)
EVICTED_CHECKPOINTS = (
    Part("alive", "checkpoints that went with their chunk"),
    Part("superseded", "checkpoints that a deeper one had replaced"),
)


def source_chart(rows: Sequence[Row]) -> str:
    """Shares of the prompt tokens."""
    names = ["device_tokens", "host_tokens"]
    names += [f"missed_{reason}_tokens" for reason in Reason]
    bars = []
    for row in rows:
        total = number(row, "prompt_tokens") or 1.0
        sizes = [100 * number(row, name) / total for name in names]
        hints = [f"{size:.1f} %" for size in sizes]
        bars.append(_bar(row, SOURCES, sizes, hints))
    scale = linear_scale(100.0, lambda value: f"{value:.0f}")
    return bar_chart("where prompt tokens came from", scale, "% of prompt tokens", bars)


def chunk_chart(rows: Sequence[Row]) -> str:
    """Chunks evicted from host memory."""
    return _evictions(rows, EVICTED_CHUNKS, "evicted_chunks", "dead_chunks")


def checkpoint_chart(rows: Sequence[Row]) -> str:
    """Checkpoints evicted from host memory."""
    names = ("evicted_checkpoints", "superseded_checkpoints")
    return _evictions(rows, EVICTED_CHECKPOINTS, *names)


def _evictions(
    rows: Sequence[Row], parts: Sequence[Part], all_name: str, special_name: str
) -> str:
    """Bars of a number of which some are special."""
    bars = []
    for row in rows:
        special = number(row, special_name)
        sizes = [number(row, all_name) - special, special]
        bars.append(_bar(row, parts, sizes, [f"{size:,.0f}" for size in sizes]))
    highest = max((number(row, all_name) for row in rows), default=0.0)
    scale = linear_scale(highest, lambda value: f"{value:,.0f}")
    what = all_name.replace("_", " ")
    return bar_chart(what, scale, what, bars)


def _bar(
    row: Row, parts: Sequence[Part], sizes: Sequence[float], hints: Sequence[str]
) -> Bar:
    pieces = tuple(
        Piece(size, part.style, f"{part.name}: {hint}")
        for part, size, hint in zip(parts, sizes, hints, strict=True)
    )
    return Bar(label_of(row), pieces)
