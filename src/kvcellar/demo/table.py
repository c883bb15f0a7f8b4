"""The demo's report as text for people."""

from kvcellar.demo.metrics import TokenSources
from kvcellar.demo.report import Percentiles, Report, RunFigures
from kvcellar.demo.script import Kind

_WITHOUT, _WITH = "without kvcellar", "with kvcellar"
_LABEL_WIDTH = 47


def table_of(report: Report) -> str:
    """All figures, in the order a reader asks for them."""
    return "\n".join(
        [
            *_setting_lines(report),
            "",
            *_ttft_lines(report),
            "",
            *_speed_lines(report),
            "",
            *_token_lines(report),
            *_proof_lines(report),
        ]
    )


def _setting_lines(report: Report) -> list[str]:
    setting = report.setting
    device_tokens = setting.num_device_blocks * setting.block_tokens
    ranks = f", on {setting.num_ranks} ranks" if setting.num_ranks > 1 else ""
    return [
        f"kvcellar demo: {setting.model}{ranks}",
        f"{setting.num_conversations} conversations take turns; device cache of "
        f"{setting.num_device_blocks} blocks x {setting.block_tokens} tokens "
        f"({device_tokens:,} in all groups); host memory "
        f"{setting.host_memory_bytes / 2**30:.1f} GiB, {setting.mode}; took "
        f"{report.elapsed_seconds:.0f} s",
    ]


def _ttft_lines(report: Report) -> list[str]:
    bare, cellar = report.without_kvcellar, report.with_kvcellar
    heading = "time to first token, milliseconds"
    return [
        f"{heading:<{_LABEL_WIDTH}}{'p50':>8}{'p90':>8}{'p99':>8}",
        _ttft_line(f"first turn, {_WITHOUT}", bare, Kind.FIRST),
        _ttft_line(f"first turn, {_WITH}", cellar, Kind.FIRST),
        _ttft_line("next turn, still on device", cellar, Kind.DEVICE_NEXT),
        _ttft_line(f"  after eviction, {_WITHOUT}", bare, Kind.RETURN_NEXT),
        _ttft_line(f"  after eviction, {_WITH}", cellar, Kind.RETURN_NEXT),
        _ttft_line("same prompt again, still on the device", cellar, Kind.DEVICE_SAME),
        _ttft_line(f"  after eviction, {_WITHOUT}", bare, Kind.RETURN_SAME),
        _ttft_line(f"  after eviction, {_WITH}", cellar, Kind.RETURN_SAME),
    ]


def _ttft_line(label: str, run: RunFigures, kind: Kind) -> str:
    figures: Percentiles = run.ttft[kind.value]
    seconds = (figures.p50_seconds, figures.p90_seconds, figures.p99_seconds)
    columns = "".join(f"{value * 1000:>8.1f}" for value in seconds)
    return f"{label:<{_LABEL_WIDTH}}{columns}"


def _speed_lines(report: Report) -> list[str]:
    labels = {Kind.RETURN_NEXT: "next turn", Kind.RETURN_SAME: "same prompt again"}
    lines = []
    for kind, label in labels.items():
        speed = report.speed[kind.value]
        lines.append(
            f"{label} after eviction: "
            f"{speed.times_faster_than_recomputing:.1f}x faster than recomputing, "
            f"{speed.times_of_device_hit:.1f}x of a device hit"
        )
    return lines


def _token_lines(report: Report) -> list[str]:
    heading = "prompt tokens of returning requests"
    runs = ((_WITHOUT, report.without_kvcellar), (_WITH, report.with_kvcellar))
    lines = [
        f"{heading:<{_LABEL_WIDTH}}{'computed':>12}{'from device':>14}{'from host':>12}"
    ]
    for label, run in runs:
        total = TokenSources(0, 0, 0)
        for kind in Kind:
            if kind.is_return:
                total += run.prompt_tokens[kind.value]
        lines.append(
            f"{'  ' + label:<{_LABEL_WIDTH}}{total.computed_tokens:>12,}"
            f"{total.device_tokens:>14,}{total.host_tokens:>12,}"
        )
    return lines


def _proof_lines(report: Report) -> list[str]:
    eviction, exact = report.eviction, report.exactness
    return [
        f"copied: {_mebibytes(report.stored_bytes)} stored to host memory, "
        f"{_mebibytes(report.loaded_bytes)} loaded from it",
        f"evicted: {_WITHOUT}, {eviction.requests_that_found_nothing} of "
        f"{eviction.returning_requests} returning requests found nothing on the device "
        f"({eviction.found_tokens:,} of {eviction.prompt_tokens:,} tokens)",
        f"exact: {exact.differing_tokens} of {exact.compared_tokens} tokens and "
        f"{exact.differing_logprobs} of {exact.compared_tokens} logprobs differ from a "
        f"device hit of the same length ({exact.compared_requests} requests compared, "
        f"{exact.uncompared_requests} had another length)",
    ]


def _mebibytes(num_bytes: int | None) -> str:
    return "not counted" if num_bytes is None else f"{num_bytes / 2**20:.1f} MiB"
