"""`adaptive` beside LRU on streams that are made: documents, chats, rounds.

    .venv/bin/python benchmarks/replay_streams.py

Token hit ratios in per cent, device and host memory together. Needs no trace.
"""

import argparse
import multiprocessing
import sys
from dataclasses import dataclass

from made_streams import STREAMS
from report import describe_machine, format_rows, machine

from kvcellar.config import Settings
from kvcellar.layout.models import model_layout
from kvcellar.replay.configuration import Configuration, replay
from kvcellar.replay.grid import serving_layout

GIB = 2**30
MODELS = {  # GiB of the device, and of host memory: little of a stream, and more
    "llama-3.1-8b": (10, (32, 128)),
    "gemma-3-27b": (20, (64, 256)),
    "deepseek-v4-flash": (4, (4, 16)),
    "qwen3-next": (10, (16, 64)),
}
NUM_REQUESTS = 5000


@dataclass(frozen=True, slots=True)
class Cell:
    """A line of the table."""

    stream: str
    num_requests: int
    model: str
    host_gib: int
    mode: str


def main() -> int:
    """Play all cells on all cores, print a line for each; 1 if LRU is ahead in one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--stream", nargs="+", default=STREAMS, choices=STREAMS)
    parser.add_argument("--model", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--requests", type=int, default=NUM_REQUESTS)
    options = parser.parse_args()
    cells = [
        Cell(stream, options.requests, model, host_gib, mode)
        for stream in options.stream
        for model in options.model
        for host_gib in MODELS[model][1]
        for mode in ("eager", "lazy")
    ]
    with multiprocessing.get_context("spawn").Pool() as pool:
        rows = pool.map(row, cells, chunksize=1)
    print(describe_machine(machine()))
    print(format_rows(rows))
    return int(any(float(line["ahead"]) < -0.3 for line in rows))


def row(cell: Cell) -> dict[str, str | float]:
    """What both orders find."""
    lru, adaptive = (100 * hit_ratio(cell, policy) for policy in ("lru", "adaptive"))
    return {
        "stream": cell.stream,
        "model": cell.model,
        "host_gib": cell.host_gib,
        "mode": cell.mode,
        "lru_percent": round(lru, 2),
        "adaptive_percent": round(adaptive, 2),
        "ahead": round(adaptive - lru, 2),
    }


def hit_ratio(cell: Cell, policy: str) -> float:
    """Share of the prompts' tokens that is found."""
    model = model_layout(cell.model)
    settings = Settings(
        host_memory_bytes=cell.host_gib * GIB, mode=cell.mode, eviction_policy=policy
    )
    num_rows = MODELS[cell.model][0] * GIB // model.row_bytes
    configuration = Configuration(
        model.layout,
        num_rows,
        settings,
        host_layout=serving_layout(model),
        row_bytes=model.row_bytes,
    )
    return replay(STREAMS[cell.stream](cell.num_requests), configuration).hit_ratio


if __name__ == "__main__":
    sys.exit(main())
