"""Hit ratios on a recorded trace: kvcellar beside models of vLLM's two connectors.

    KVCELLAR_TRACES=DIR .venv/bin/python benchmarks/replay_natives.py
    KVCELLAR_TRACES=DIR .venv/bin/python benchmarks/replay_natives.py --trace agentic

Requests come one after another, without time, so the ratios are those of the caches
alone. The models of vLLM's connectors are tested against the real ones
(``tests/benchmarks/test_native_models.py``). The last columns say how much host memory
the better of them needs for kvcellar's hit ratio, to 0.3 points and by interpolation
between sizes, and how many times as much that is as kvcellar needs for it. *Bound* is
what no order of stores and evictions can exceed with all of the trace known.

The agentic trace is long: its first 2,000 requests are played, and its blocks of 64
tokens are joined to about 1,024.
"""

import argparse
import json
import math
import multiprocessing
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

from report import describe_machine, machine

from kvcellar.config import Settings
from kvcellar.layout.models import model_layout
from kvcellar.replay.configuration import Configuration, replay
from kvcellar.replay.grid import serving_layout
from kvcellar.replay.grid_trace import cut_trace
from kvcellar.replay.offline.bound import OfflineBound
from kvcellar.replay.readers import open_trace
from kvcellar.replay.trace import Trace

GIB = 2**30
TOLERANCE = 0.003  # hit ratios that differ by less are the same
RECORDED_TOKENS = 64  # per block of the agentic trace
MODELS = (
    "llama-3.1-8b",
    "gpt-oss-20b",
    "gemma-3-27b",
    "deepseek-v4-flash",
    "qwen3-next",
)
OURS = {
    "eager, LRU": {"mode": "eager", "eviction_policy": "lru"},
    "lazy, LRU": {"mode": "lazy", "eviction_policy": "lru"},
    "eager, adaptive": {"mode": "eager", "eviction_policy": "adaptive"},
    "lazy, adaptive": {"mode": "lazy", "eviction_policy": "adaptive"},
}
PROMPTS_ONLY = {"eager, prompts only": {"store_decoded": False}}
NATIVES = ("simple", "offloading")
BOUND = "bound"


@dataclass(frozen=True, slots=True)
class Workload:
    """A trace, and how much of it is played.

    Attributes:
        path: below ``KVCELLAR_TRACES``.
        sizes_gib: host memory by model; under "" for those that are not named.
        ours: settings of kvcellar, by the name of their column.
        device_gib: the device's cache, by model in the same way.
        num_requests: the first ones only; None for all.
        block_tokens: blocks are joined to about so many tokens; None leaves them.
    """

    path: str
    sizes_gib: dict[str, tuple[int, ...]]
    ours: dict[str, dict[str, Any]]
    device_gib: dict[str, int] = field(default_factory=lambda: {"": 40})
    num_requests: int | None = None
    block_tokens: int | None = None


WORKLOADS = {
    "conversation": Workload(
        "mooncake/conversation_trace.jsonl.gz", {"": (16, 64, 256, 1024, 4096)}, OURS
    ),
    "agentic": Workload(
        "weka/cc_traces_v8_local.jsonl.gz",
        {
            "": (64, 128, 256, 512, 1024),
            "gpt-oss-20b": (16, 32, 64, 128, 256),
            "deepseek-v4-flash": (4, 8, 16, 32, 64),
            "qwen3-next": (16, 32, 64, 128, 256),
        },
        OURS | PROMPTS_ONLY,
        # 40 GiB of it hold 11 million tokens, about what the trace needs.
        device_gib={"": 40, "deepseek-v4-flash": 8},
        num_requests=2_000,
        block_tokens=1024,
    ),
}

_traces: dict[int | None, Trace] = {}  # by tokens per block; processes inherit them


@dataclass(frozen=True, slots=True)
class Cell:
    """One run: a model, a size, and a kind of ours, one of vLLM's, or the bound."""

    model: str
    device_gib: int
    host_gib: int
    kind: str
    settings: tuple[tuple[str, Any], ...]
    block_tokens: int | None

    @property
    def name(self) -> tuple[str, int, str]:
        """What it is found by in a table."""
        return self.model, self.host_gib, self.kind


@dataclass(frozen=True, slots=True)
class Found:
    """What came of a cell; the bound has a hit ratio only."""

    hit_ratio: float
    device_ratio: float = 0.0
    num_requests: int = 0
    num_too_long: int = 0


def main() -> int:
    """Run all cells on all cores and print one table per model."""
    options = _read_options()
    workload = WORKLOADS[options.trace]
    limit = options.limit or workload.num_requests
    found = _read_kept(options)
    wanted = [cell for model in options.model for cell in _cells(model, options)]
    cells = [cell for cell in wanted if cell.name not in found]
    for size in {cell.block_tokens for cell in cells}:
        path = Path(os.environ["KVCELLAR_TRACES"]) / workload.path
        trace = open_trace(path, block_tokens=size)
        _traces[size] = cut_trace(trace, limit)
    with multiprocessing.get_context("fork").Pool(options.processes) as pool:
        for cell, result in pool.imap_unordered(_run, cells):
            found[cell.name] = result
            _keep(cell, result, options)
            print(f"{len(found)} of {len(wanted)}", file=sys.stderr)
    print(describe_machine(machine()))
    played = "all" if limit is None else f"the first {limit:,}"
    print(f"{options.trace}, {played} requests\n")
    for model in options.model:
        _print_table(model, options, found)
    return 0


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trace", choices=WORKLOADS, default="conversation")
    parser.add_argument("--model", nargs="+", default=MODELS)
    parser.add_argument("--kind", nargs="+", help="some of the columns only")
    parser.add_argument("--sizes-gib", nargs="+", type=int)
    parser.add_argument("--device-gib", type=int)
    parser.add_argument("--limit", type=int, help="the first requests only")
    parser.add_argument("--processes", type=int)
    parser.add_argument(
        "--keep",
        type=Path,
        help="file of the cells that have run; those in it are not run again",
    )
    return parser.parse_args()


def _read_kept(options: argparse.Namespace) -> dict[tuple[str, int, str], Found]:
    """Cells of earlier runs with the same options."""
    if options.keep is None or not options.keep.exists():
        return {}
    lines = map(json.loads, options.keep.read_text().splitlines())
    return {(line[0], line[1], line[2]): Found(*line[3]) for line in lines}


def _keep(cell: Cell, result: Found, options: argparse.Namespace) -> None:
    if options.keep is not None:
        with options.keep.open("a") as file:
            file.write(json.dumps([*cell.name, astuple(result)]) + "\n")


def _cells(model: str, options: argparse.Namespace) -> list[Cell]:
    workload = WORKLOADS[options.trace]
    block_tokens = _block_tokens(model, workload)
    device_gib = _device_gib(model, options)
    return [
        Cell(model, device_gib, size, kind, tuple(chosen.items()), block_tokens)
        for size in _sizes(model, options)
        for kind, chosen in _kinds(options).items()
    ]


def _kinds(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Settings by the name of the column; none for vLLM's connectors and the bound."""
    kinds = WORKLOADS[options.trace].ours | {name: {} for name in (*NATIVES, BOUND)}
    return {k: v for k, v in kinds.items() if k in (options.kind or kinds)}


def _sizes(model: str, options: argparse.Namespace) -> Sequence[int]:
    sizes = WORKLOADS[options.trace].sizes_gib
    return options.sizes_gib or sizes.get(model, sizes[""])


def _device_gib(model: str, options: argparse.Namespace) -> int:
    sizes = WORKLOADS[options.trace].device_gib
    return options.device_gib or sizes.get(model, sizes[""])


def _block_tokens(model: str, workload: Workload) -> int | None:
    """About what the workload says, but in whole blocks of trace and model."""
    if workload.block_tokens is None:
        return None
    chunk_tokens = model_layout(model).layout.chunk_tokens
    unit = math.lcm(chunk_tokens, RECORDED_TOKENS)
    return unit * max(workload.block_tokens // unit, 1)


def _run(cell: Cell) -> tuple[Cell, Found]:
    trace, configuration = _traces[cell.block_tokens], _configuration(cell)
    if cell.kind == BOUND:
        num_bytes = configuration.settings.host_memory_bytes
        return cell, Found(OfflineBound(trace, configuration).hit_ratio(num_bytes))
    outcome = replay(trace, configuration)
    device_ratio = outcome.device_tokens / outcome.prompt_tokens
    counts = outcome.num_requests, outcome.num_too_long
    return cell, Found(outcome.hit_ratio, device_ratio, *counts)


def _configuration(cell: Cell) -> Configuration:
    model = model_layout(cell.model)
    chosen = dict(cell.settings)
    return Configuration(
        model.layout,
        cell.device_gib * GIB // model.row_bytes,
        Settings(host_memory_bytes=cell.host_gib * GIB, **chosen),
        host_layout=serving_layout(model),
        system=cell.kind if cell.kind in NATIVES else "kvcellar",
        row_bytes=model.row_bytes,
    )


def _print_table(
    model: str, options: argparse.Namespace, found: dict[tuple[str, int, str], Found]
) -> None:
    kinds, sizes = tuple(_kinds(options)), _sizes(model, options)

    def best(of: set[str]) -> list[float]:
        return [max(found[model, n, kind].hit_ratio for kind in of) for n in sizes]

    natives = {kind for kind in kinds if kind in NATIVES}
    ours = set(kinds) - natives - {BOUND}
    head: tuple[str, ...] = ()
    rows: Iterable[tuple[str, ...]] = [()] * len(sizes)
    if ours and natives:
        head = "natives need, GiB", "ratio"
        rows = _comparison(sizes, best(ours), best(natives))
    _print_row(f"{model}: host GiB", *kinds, *head)
    print("|---:" * (1 + len(kinds) + len(head)) + "|")
    for size, shown in zip(sizes, rows, strict=True):
        shares = [found[model, size, kind].hit_ratio for kind in kinds]
        _print_row(f"{size:,}", *(f"{100 * share:.1f}" for share in shares), *shown)
    some = found[model, sizes[0], kinds[0]]
    print(
        f"\n{some.num_requests:,} requests, {some.num_too_long:,} larger than the "
        f"device left out; device memory {_device_gib(model, options)} GiB, found "
        "there, %: "
        f"{100 * some.device_ratio:.1f}\n"
    )


def _print_row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |")


def _comparison(
    sizes: Sequence[int], ours: Sequence[float], natives: Sequence[float]
) -> Iterator[tuple[str, str]]:
    """For each size the memory that natives need for our hits, and the ratio to ours.

    Args:
        ours, natives: best hit ratios, by size.
    """
    for hit in ours:
        needed, own = _needed(hit, sizes, natives), _needed(hit, sizes, ours)
        assert own is not None
        if needed is None:
            yield f"more than {sizes[-1]:,}", f"> {sizes[-1] / own:.1f}"
        else:
            yield f"{needed:,.0f}", f"{needed / own:.1f}"


def _needed(hit: float, sizes: Sequence[int], found: Sequence[float]) -> float | None:
    """Size at which a curve comes within ``TOLERANCE`` of ``hit``; None for nowhere."""
    wanted = hit - TOLERANCE
    for i, reached in enumerate(found):
        if reached < wanted:
            continue
        if i == 0:
            return float(sizes[0])
        share = (wanted - found[i - 1]) / (reached - found[i - 1])
        low, high = math.log(sizes[i - 1]), math.log(sizes[i])
        return math.exp(low + share * (high - low))
    return None


if __name__ == "__main__":
    sys.exit(main())
