"""The result as text for a terminal."""

from collections.abc import Sequence

from kvcellar.bench.planner import PROMPT_TOKENS
from kvcellar.bench.result import BenchResult
from kvcellar.bench.serving import ServingSpeed
from kvcellar.layout.units import format_bytes

_BAD_MISS = 0.2


def table_of(result: BenchResult) -> str:
    """Tables of what was measured, and the speeds for a replay."""
    lines = [*_copies(result), "", *_planning(result)]
    if result.server is not None and result.serving is not None:
        title = f"{result.server.name} at {result.server.url}"
        lines += ["", *_serving(title, result.serving)]
    lines += ["", "speeds for kvcellar replay --costs"]
    lines += [f"  {name:<27}{value:>14,.6g}" for name, value in result.speeds.items()]
    if result.serving is None:
        lines.append("  prefill and decode: name a running server with --server URL")
    return "\n".join(lines)


def _copies(result: BenchResult) -> list[str]:
    copies = result.copies
    lines = [f"copies, {copies.device_name}, GB/s", "  page           load    store"]
    for size in copies.sizes:
        speeds = (size.load_bytes_per_second, size.store_bytes_per_second)
        mark = f"   {result.model_name}" * (size.page_bytes == result.page_bytes)
        page = format_bytes(size.page_bytes)
        lines.append(f"  {page:<10} {_columns(speeds)}{mark}")
    return lines


def _columns(speeds: Sequence[float]) -> str:
    return " ".join(f"{speed / 1e9:8.2f}" for speed in speeds)


def _planning(result: BenchResult) -> list[str]:
    memory, planner = result.host_memory, result.planner
    rows = [
        (
            "first write of host memory",
            f"{memory.touch_bytes_per_second / 1e9:.2f} GB/s",
        ),
    ]
    if result.copies.pin_bytes_per_second is not None:
        pinned = result.copies.pin_bytes_per_second / 1e9
        rows.append(("pinning host memory", f"{pinned:.2f} GB/s"))
    asked = f"of {PROMPT_TOKENS:,} tokens"
    rows += [
        ("planning a store, each chunk", f"{_us(planner.store_seconds_per_chunk)}"),
        (f"look-up {asked}", f"{_us(planner.look_up_seconds)}"),
        ("the same again", f"{_us(planner.repeat_seconds)}"),
    ]
    heading = f"host memory; planner on {result.model_name}"
    return [heading, *(f"  {name:<34}{value:>14}" for name, value in rows)]


def _serving(title: str, serving: ServingSpeed) -> list[str]:
    lines = [title, "  prompt tokens   first token, s"]
    lines += [f"  {p.num_tokens:>13,}   {p.ttft_seconds:14.4f}" for p in serving.points]
    lines += [
        f"  prefill: {serving.prefill_tokens_per_second:,.0f} tokens/s, and "
        f"{serving.step_seconds * 1e3:.1f} ms for each prompt",
        f"  answer: {serving.decode_seconds_per_token * 1e3:.1f} ms for each token",
        f"  first tokens are off the line by {serving.worst_miss:.0%} at most",
    ]
    if serving.worst_miss > _BAD_MISS:
        lines.append("  note: no straight line; was the server idle, and warm?")
    return lines


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us"
