"""Hit ratios on a recorded trace: kvcellar beside models of vLLM's two connectors.

    KVCELLAR_TRACES=DIR .venv/bin/python benchmarks/replay_natives.py

Requests come one after another, without time, so the ratios are those of the caches
alone. The models of vLLM's connectors are tested against the real ones
(``tests/benchmarks/test_native_models.py``). The last columns say how much host memory
the better of them needs for kvcellar's hit ratio, by interpolation between sizes.
"""

import argparse
import math
import multiprocessing
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import describe_machine, machine

from kvcellar.config import Settings
from kvcellar.layout.models import model_layout
from kvcellar.replay.configuration import Configuration, replay
from kvcellar.replay.grid import serving_layout
from kvcellar.replay.readers import Arrivals, open_trace
from kvcellar.replay.trace import Trace

GIB = 2**30
MODELS = (
    "llama-3.1-8b",
    "gpt-oss-20b",
    "gemma-3-27b",
    "deepseek-v4-flash",
    "qwen3-next",
)
SIZES_GIB = (16, 64, 256, 1024, 4096)
TRACES = {
    "conversation": "mooncake/conversation_trace.jsonl.gz",
    "agentic": "weka/cc_traces_v8_local.jsonl.gz",
}
OURS = {
    "eager": {"mode": "eager"},
    "lazy": {"mode": "lazy"},
    "eager, adaptive": {"mode": "eager", "eviction_policy": "adaptive"},
    "lazy, adaptive": {"mode": "lazy", "eviction_policy": "adaptive"},
}
NATIVES = ("simple", "offloading")

_trace: Trace | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """One run: a model, a size, and a kind of ours or one of vLLM's."""

    model: str
    device_gib: int
    host_gib: int
    kind: str


def main() -> int:
    """Run all cells on all cores and print one table per model."""
    options = _read_options()
    path = Path(os.environ["KVCELLAR_TRACES"]) / TRACES[options.trace]
    cells = [
        Cell(model, options.device_gib, size, kind)
        for model in options.model
        for size in options.sizes_gib
        for kind in (*OURS, *NATIVES)
    ]
    with multiprocessing.Pool(options.processes, _open, (path, options.limit)) as pool:
        found = {}
        for cell, ratio in pool.imap_unordered(_run, cells):
            found[cell] = ratio
            print(f"{len(found)} of {len(cells)}", file=sys.stderr)
    print(describe_machine(machine()))
    print(f"{options.trace}, device memory {options.device_gib} GiB\n")
    for model in options.model:
        _print_table(model, options, found)
    return 0


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trace", choices=TRACES, default="conversation")
    parser.add_argument("--model", nargs="+", default=MODELS)
    parser.add_argument("--sizes-gib", nargs="+", type=int, default=SIZES_GIB)
    parser.add_argument("--device-gib", type=int, default=40)
    parser.add_argument("--limit", type=int, help="the first requests only")
    parser.add_argument("--processes", type=int)
    return parser.parse_args()


def _open(path: Path, limit: int | None) -> None:
    global _trace
    trace = open_trace(str(path), arrivals=Arrivals())
    requests = trace.requests if limit is None else list(trace.requests)[:limit]
    _trace = Trace(trace.block_tokens, requests)


def _run(cell: Cell) -> tuple[Cell, float]:
    assert _trace is not None
    model = model_layout(cell.model)
    is_native = cell.kind in NATIVES
    chosen: dict[str, Any] = {} if is_native else dict(OURS[cell.kind])
    configuration = Configuration(
        model.layout,
        cell.device_gib * GIB // model.row_bytes,
        Settings(host_memory_bytes=cell.host_gib * GIB, **chosen),
        host_layout=serving_layout(model),
        system=cell.kind if is_native else "kvcellar",
        row_bytes=model.row_bytes,
    )
    return cell, replay(_trace, configuration).hit_ratio


def _print_table(
    model: str, options: argparse.Namespace, found: dict[Cell, float]
) -> None:
    kinds = (*OURS, *NATIVES)
    print(f"| {model}: host GiB | {' | '.join(kinds)} | natives need, GiB | ratio |")
    print("|---:" * (len(kinds) + 3) + "|")
    sizes = options.sizes_gib

    def ratio(size: int, kind: str) -> float:
        return found[Cell(model, options.device_gib, size, kind)]

    natives = [max(ratio(size, kind) for kind in NATIVES) for size in sizes]
    for size in sizes:
        ours = max(ratio(size, kind) for kind in OURS)
        needed = _needed(ours, sizes, natives)
        percent = " | ".join(f"{100 * ratio(size, kind):.1f}" for kind in kinds)
        if needed is None:
            shown = f"more than {sizes[-1]:,}", f"> {sizes[-1] / size:.1f}"
        else:
            shown = f"{needed:,.0f}", f"{needed / size:.1f}"
        print(f"| {size:,} | {percent} | {' | '.join(shown)} |")
    print()


def _needed(hit: float, sizes: Sequence[int], natives: Sequence[float]) -> float | None:
    """Size at which the natives reach ``hit``, between two that were tried."""
    for i, reached in enumerate(natives):
        if reached < hit:
            continue
        if i == 0 or reached == natives[i - 1]:
            return float(sizes[i])
        share = (hit - natives[i - 1]) / (reached - natives[i - 1])
        low, high = math.log(sizes[i - 1]), math.log(sizes[i])
        return math.exp(low + share * (high - low))
    return None


if __name__ == "__main__":
    sys.exit(main())
