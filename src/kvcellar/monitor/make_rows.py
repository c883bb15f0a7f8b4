"""The rows of a view's tables."""

from collections.abc import Mapping, Sequence

from kvcellar.monitor.engine_answer import clean, number
from kvcellar.monitor.follow import Followed, Follower
from kvcellar.monitor.history import Growth
from kvcellar.monitor.reason_words import words
from kvcellar.monitor.view import CopyRow, EngineRow, MissRow, PrefixRow, Sources

MISSED = "missed_tokens_"
_DIRECTIONS = ("store", "load", "move")
_TOKENS = ("prompt_tokens_device", "prompt_tokens_host", "prompt_tokens_computed")


def copies(shown: Sequence[Followed], grown: Sequence[Growth]) -> tuple[CopyRow, ...]:
    """One row for each direction; moves only where there were any."""
    rows = [_copy_row(shown, grown, direction) for direction in _DIRECTIONS]
    return tuple(
        row
        for row in rows
        if row.direction != "move" or row.num_ended or row.num_under_way
    )


def _copy_row(
    shown: Sequence[Followed], grown: Sequence[Growth], direction: str
) -> CopyRow:
    ended = sum(one.get(f"{direction}_jobs") for one in grown)
    seconds = sum(one.get(f"{direction}_seconds") for one in grown)
    return CopyRow(
        direction=direction,
        num_under_way=sum(
            one.answer.number("copies", direction, "jobs") for one in shown
        ),
        bytes_per_second=sum(one.per_second(f"{direction}_bytes") for one in grown),
        num_ended=ended,
        seconds_each=seconds / ended if ended else None,
        num_failed=sum(one.get(f"failed_{direction}_jobs") for one in grown),
    )


def misses(grown: Sequence[Growth]) -> tuple[MissRow, ...]:
    """Reasons, the one that cost most first."""
    tokens: dict[str, float] = {}
    for one in grown:
        for name, value in one.totals.items():
            if name.startswith(MISSED) and value > 0:
                reason = name.removeprefix(MISSED)
                tokens[reason] = tokens.get(reason, 0.0) + value
    total = sum(tokens.values())
    ordered = sorted(tokens.items(), key=lambda one: (-one[1], one[0]))
    return tuple(
        MissRow(clean(words(reason)), value, value / total) for reason, value in ordered
    )


def prefixes(shown: Sequence[Followed]) -> tuple[PrefixRow, ...]:
    """What serves most of late, engines added up, the heaviest first."""
    added: dict[str, dict[str, float]] = {}
    for one in shown:
        for raw in one.answer.rows("prefixes"):
            row = added.setdefault(clean(str(raw.get("key", ""))), {"tokens": 0.0})
            for name in ("requests", "served_tokens", "host_tokens", "weight"):
                row[name] = row.get(name, 0.0) + number(raw.get(name))
            row["tokens"] = number(raw.get("tokens"))
    ordered = sorted(added.items(), key=lambda one: -one[1]["weight"])
    return tuple(_prefix_row(key, row) for key, row in ordered)


def _prefix_row(key: str, row: Mapping[str, float]) -> PrefixRow:
    served = row["served_tokens"]
    return PrefixRow(
        key=key,
        tokens=row["tokens"],
        num_requests=row["requests"],
        served_tokens=served,
        host_share=row["host_tokens"] / served if served else 0.0,
    )


def engine_rows(
    follower: Follower, window_seconds: float | None
) -> tuple[EngineRow, ...]:
    """One row for each engine; none if there is only one."""
    if len(follower.engines) == 1:
        return ()
    return tuple(
        _engine_row(engine, one, one.history.window(window_seconds))
        for engine, one in sorted(follower.engines.items())
    )


def _engine_row(engine: int, one: Followed, grown: Growth) -> EngineRow:
    capacity = one.answer.number("tiers", "host", "capacity_bytes")
    used = one.answer.number("tiers", "host", "used_bytes")
    return EngineRow(
        engine=engine,
        is_missing=one.is_missing,
        served_share=Sources(*(grown.get(name) for name in _TOKENS)).served_share,
        tokens_per_second=sum(grown.per_second(name) for name in _TOKENS),
        used_share=used / capacity if capacity else 0.0,
        num_requests=one.answer.number("num_requests"),
    )
