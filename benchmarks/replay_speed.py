"""How fast a replay is: requests a minute on one core, and peak memory.

    KVCELLAR_TRACES=DIR .venv/bin/python benchmarks/replay_speed.py

Each configuration is played with miss reasons, as ``kvcellar replay`` does, in a
process of its own and one at a time. Processor time counts, reading the trace left out;
memory is the process's peak, the trace included.

With a compiled planner: ``make compiled``, and ``PYTHONPATH=build/compiled/site``
before the command.
"""

import argparse
import multiprocessing
import os
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from report import describe_machine, format_rows, machine

from kvcellar.config import EVICTION_POLICIES, Settings
from kvcellar.index import index
from kvcellar.layout.models import model_layout
from kvcellar.replay.configuration import Configuration
from kvcellar.replay.grid import serving_layout
from kvcellar.replay.grid_cell import play
from kvcellar.replay.grid_trace import cut_trace
from kvcellar.replay.readers import open_trace

GIB, MIB = 2**30, 2**20
BUDGET_PER_MINUTE = 100_000
MODELS = ("deepseek-v4-flash", "gemma-3-27b", "gpt-oss-20b")
SIZES_GIB = (16, 256)
TRACE = "mooncake/conversation_trace.jsonl.gz"


@dataclass(frozen=True, slots=True)
class Cell:
    """One configuration."""

    path: str
    limit: int | None
    model: str
    device_gib: int
    host_gib: int
    mode: str
    policy: str


@dataclass(frozen=True, slots=True)
class Speed:
    """What playing it took; seconds are the processor's."""

    num_requests: int
    seconds: float
    peak_bytes: int
    hit_ratio: float
    stored_bytes: int


def main() -> int:
    """Play each configuration, print one line for each; 0 if all keep the budget."""
    options = _read_options()
    context = multiprocessing.get_context("spawn")  # inherits no memory
    cells = [
        Cell(
            *(_path(), options.limit, model, options.device_gib, size),
            *(options.mode, options.policy),
        )
        for model in options.model
        for size in options.sizes_gib
    ]
    rows = []
    with context.Pool(1, maxtasksperchild=1) as pool:
        for cell in cells:
            rows.append(_row(cell, pool.apply(run, (cell,))))
            print(f"{len(rows)} of {len(cells)}", file=sys.stderr)
    print(describe_machine(machine()))
    print(f"\n{TRACE}, device memory {options.device_gib} GiB")
    planner = "pure Python" if index.__file__.endswith(".py") else "compiled"
    print(f"{options.mode}, {options.policy}, planner {planner}")
    print(format_rows(rows))
    return 0 if all(row["is_within"] for row in rows) else 1


def run(cell: Cell) -> Speed:
    """Play one configuration; in a process that has done nothing else."""
    model = model_layout(cell.model)
    trace = cut_trace(open_trace(cell.path), cell.limit)
    configuration = Configuration(
        model.layout,
        cell.device_gib * GIB // model.row_bytes,
        Settings(
            host_memory_bytes=cell.host_gib * GIB,
            mode=cell.mode,
            eviction_policy=cell.policy,
        ),
        host_layout=serving_layout(model),
    )
    started = time.process_time()
    outcome = play(trace, configuration, lambda: None).outcome
    seconds = time.process_time() - started
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    num_requests = outcome.num_requests + outcome.num_too_long
    found = outcome.hit_ratio, outcome.stored_bytes
    return Speed(num_requests, seconds, peak_bytes, *found)


def _row(cell: Cell, speed: Speed) -> dict[str, str | float | bool]:
    per_minute = speed.num_requests / speed.seconds * 60
    return {
        "model": cell.model,
        "host_gib": cell.host_gib,
        "requests_per_minute": round(per_minute),
        "processor_s": round(speed.seconds, 2),
        "peak_mib": round(speed.peak_bytes / MIB),
        "hit_percent": round(100 * speed.hit_ratio, 1),
        "stored_gib": round(speed.stored_bytes / GIB),
        "is_within": per_minute >= BUDGET_PER_MINUTE,
    }


def _path() -> str:
    folder = os.environ.get("KVCELLAR_TRACES")
    if folder is None:
        raise SystemExit("KVCELLAR_TRACES is not set; name the folder of the traces")
    return str(Path(folder) / TRACE)


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", nargs="+", default=MODELS)
    parser.add_argument("--sizes-gib", nargs="+", type=int, default=SIZES_GIB)
    parser.add_argument("--device-gib", type=int, default=40)
    parser.add_argument("--mode", choices=("eager", "lazy"), default="eager")
    parser.add_argument("--policy", choices=EVICTION_POLICIES, default="adaptive")
    parser.add_argument("--limit", type=int, help="the first requests only")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
