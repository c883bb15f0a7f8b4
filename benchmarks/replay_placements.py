"""Where to keep checkpoints: placements side by side on a recorded trace.

    KVCELLAR_TRACES=DIR .venv/bin/python benchmarks/replay_placements.py

Requests come one after another, without time, so the ratios are those of the caches
alone. Each line is one set of rules with the settings that serve; the last is the
offline bound, which no order of stores and evictions exceeds with as many bytes. The
figure beside a ratio is what was stored, over the whole trace.
"""

import argparse
import multiprocessing
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import describe_machine, machine

from kvcellar.config import Settings
from kvcellar.layout.models import model_layout
from kvcellar.replay.configuration import Configuration, replay
from kvcellar.replay.grid import serving_layout
from kvcellar.replay.grid_trace import cut_trace
from kvcellar.replay.offline.bound import OfflineBound
from kvcellar.replay.readers import Arrivals, open_trace
from kvcellar.replay.trace import Trace

GIB = 2**30
MODELS = ("gpt-oss-20b", "gemma-3-27b", "deepseek-v4-flash")
SIZES_GIB = (16, 64, 256)
TRACES = {
    "conversation": "mooncake/conversation_trace.jsonl.gz",
    "agentic": "weka/cc_traces_v8_local.jsonl.gz",
}
BOUND = "offline bound"
KINDS: dict[str, dict[str, Any]] = {
    "prompt-end": {"placement": "prompt-end"},
    "turn-end": {"placement": "turn-end"},
    "junctions": {"placement": "junctions"},
    "fixed": {"placement": "fixed"},
    "geometric (default)": {"placement": "geometric"},
    "geometric, budget 1": {"placement": "geometric", "spaced_checkpoint_share": 1.0},
    "geometric, superseded last": {"superseded_first": False},
    BOUND: {},
}

_trace: Trace | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """One run: a model, a size of host memory, and a line of the table."""

    model: str
    device_gib: int
    host_gib: int
    kind: str


@dataclass(frozen=True, slots=True)
class Found:
    """What came of it; a bound stores nothing."""

    hit_ratio: float
    stored_bytes: int | None = None


def main() -> int:
    """Run all cells on all cores and print one table per model."""
    options = _read_options()
    path = Path(os.environ["KVCELLAR_TRACES"]) / TRACES[options.trace]
    cells = [
        Cell(model, options.device_gib, size, kind)
        for model in options.model
        for size in options.sizes_gib
        for kind in KINDS
    ]
    with multiprocessing.Pool(options.processes, _open, (path, options.limit)) as pool:
        found = {}
        for cell, result in pool.imap_unordered(_run, cells):
            found[cell] = result
            _show_progress(cell, result, len(found), len(cells))
    print(describe_machine(machine()))
    print(f"{options.trace}, device memory {options.device_gib} GiB, eager, LRU\n")
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
    _trace = cut_trace(open_trace(str(path), arrivals=Arrivals()), limit)


def _run(cell: Cell) -> tuple[Cell, Found]:
    assert _trace is not None
    model = model_layout(cell.model)
    num_bytes = cell.host_gib * GIB
    configuration = Configuration(
        model.layout,
        cell.device_gib * GIB // model.row_bytes,
        Settings(num_bytes, eviction_policy="lru", **KINDS[cell.kind]),
        host_layout=serving_layout(model),
    )
    if cell.kind == BOUND:
        return cell, Found(OfflineBound(_trace, configuration).hit_ratio(num_bytes))
    outcome = replay(_trace, configuration)
    return cell, Found(outcome.hit_ratio, outcome.stored_bytes)


def _show_progress(cell: Cell, result: Found, num_done: int, num_cells: int) -> None:
    what = f"{cell.model}, {cell.host_gib:,} GiB, {cell.kind}: {_shown(result)}"
    print(f"{num_done} of {num_cells}: {what}", file=sys.stderr, flush=True)


def _print_table(
    model: str, options: argparse.Namespace, found: dict[Cell, Found]
) -> None:
    sizes = options.sizes_gib
    headings = (f"{size:,} GiB: %, GiB stored" for size in sizes)
    print(f"| {model} | {' | '.join(headings)} |")
    print("|---" + "|---:" * len(sizes) + "|")
    for kind in KINDS:
        results = (found[Cell(model, options.device_gib, size, kind)] for size in sizes)
        print(f"| {kind} | {' | '.join(map(_shown, results))} |")
    print()


def _shown(result: Found) -> str:
    percent = f"{100 * result.hit_ratio:.1f}"
    if result.stored_bytes is None:
        return percent
    return f"{percent}, {result.stored_bytes / GIB:,.0f}"


if __name__ == "__main__":
    sys.exit(main())
