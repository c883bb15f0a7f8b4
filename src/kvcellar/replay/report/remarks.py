"""What a reader should know before believing the figures."""

from collections.abc import Sequence

from kvcellar.replay.report.columns import Row
from kvcellar.replay.report.setting import Setting
from kvcellar.replay.report.words import counted, number

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
    if num == 0:
        return ""
    return f"{counted(num, 'record')} of the trace could not be read, and left out."


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
        f"The prompts need more time than the trace lasts{_where(num_over, rows)}, up "
        f"to {max(busy):.1f} times as much, so waiting times measure the backlog; try "
        f"--speed {speed:.2g}, more GPUs, or measured speeds."
    )


def _too_long(rows: Sequence[Row]) -> str:
    """A device that is too small for some requests, or for all."""
    most = max(int(number(row, "num_too_long")) for row in rows)
    if most == 0:
        return ""
    num_empty = sum(number(row, "num_requests") == 0 for row in rows)
    if num_empty:
        return (
            f"No request fits the device cache{_where(num_empty, rows)}, so there is "
            "nothing to tell; give more device memory."
        )
    return (
        f"Up to {counted(most, 'request')} are larger than the device cache, and left "
        "out of their configuration; compare configurations with care."
    )


def _without_room(rows: Sequence[Row]) -> str:
    most = max(int(number(row, "stores_without_room")) for row in rows)
    if most == 0:
        return ""
    return (
        f"Up to {counted(most, 'store')} found all of host memory in use, by requests "
        "that run or by copies under way."
    )


def _where(num_rows: int, rows: Sequence[Row]) -> str:
    """In how many configurations; nothing where it is all."""
    is_all = num_rows == len(rows)
    return "" if is_all else f" in {num_rows} of {len(rows)} configurations"
