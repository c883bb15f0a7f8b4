"""What a reader should know before believing the figures."""

from collections.abc import Sequence

from kvcellar.replay.report.columns import Row
from kvcellar.replay.report.setting import Setting
from kvcellar.replay.report.words import number

_MANY_SAME_STAMPS = 0.2
_BEARABLE_SHARE = 0.9  # of the time, in which a server computes prompts


def remarks_of(setting: Setting, rows: Sequence[Row]) -> tuple[str, ...]:
    """Sentences, each about something that was found."""
    found = (
        _skipped(setting),
        _same_stamps(setting),
        _overload(setting, rows),
        _too_long(rows),
        _without_room(rows),
    )
    return tuple(remark for remark in found if remark)


def _skipped(setting: Setting) -> str:
    num = setting.facts.num_skipped
    return f"{num:,} records of the trace could not be read and are left out." * (
        num > 0
    )


def _same_stamps(setting: Setting) -> str:
    facts = setting.facts
    if setting.costs.is_timeless or facts.num_requests == 0:
        return ""
    if facts.span_seconds == 0 and facts.num_requests > 1:
        return (
            "All requests arrive at the same moment, as in a trace without times, so "
            "waiting times measure the backlog; --jitter SECONDS spreads them over so "
            "long, and --no-time leaves times out."
        )
    share = facts.num_same_stamp / facts.num_requests
    if share < _MANY_SAME_STAMPS:
        return ""
    return (
        f"{share:.0%} of the requests arrive at the very moment of the one before, in "
        "bursts that may be an artefact of coarse time stamps; --jitter SECONDS "
        "spreads them."
    )


def _overload(setting: Setting, rows: Sequence[Row]) -> str:
    """Where prompts take longer to compute than to arrive, TTFT is a backlog."""
    span = setting.facts.span_seconds
    if setting.costs.is_timeless or span == 0:
        return ""
    busy = [number(row, "busy_gpu_seconds") / setting.num_gpus / span for row in rows]
    num_over = sum(share > 1 for share in busy)
    if num_over == 0:
        return ""
    speed = setting.speed * _BEARABLE_SHARE / max(busy)
    return (
        f"{num_over} of {len(rows)} configurations need more time for the prompts than "
        f"the trace lasts (up to {max(busy):.1f} times), so waiting times there "
        f"measure the backlog; try --speed {speed:.2g}, more GPUs, or measured speeds."
    )


def _too_long(rows: Sequence[Row]) -> str:
    most = max(number(row, "num_too_long") for row in rows)
    if most == 0:
        return ""
    return (
        f"Up to {most:,.0f} requests are larger than the device cache and are left out "
        "of their configuration; compare configurations with care."
    )


def _without_room(rows: Sequence[Row]) -> str:
    most = max(number(row, "stores_without_room") for row in rows)
    if most == 0:
        return ""
    return (
        f"Up to {most:,.0f} stores found all of host memory in use, by requests that "
        "run or by copies under way."
    )
