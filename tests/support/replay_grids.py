"""A small trace and the requests that replay it, for the tests of grid and report."""

import dataclasses
import random
from array import array

from kvcellar.replay.grid import GridAxes
from kvcellar.replay.grid_request import (
    ModelChoice,
    ReplayRequest,
    TraceChoice,
    run_request,
)
from kvcellar.replay.presets_choice import CostChoice
from kvcellar.replay.readers import write_trace
from kvcellar.replay.server import ServerLimits
from kvcellar.replay.trace import Trace, TraceRequest

MIB = 2**20
SPEEDS = {
    "prefill_tokens_per_second": 2000.0,
    "decode_seconds_per_token": 0.02,
    "load_bytes_per_second": 1e8,
    "store_bytes_per_second": 1e8,
    "step_seconds": 0.001,
}


def conversations(num_requests=150, seed=1, block_tokens=16):
    """Conversations that grow, branch and come back."""
    rng, paths, ids, requests = random.Random(seed), [[]], iter(range(10**6)), []
    now = 0.0
    for _ in range(num_requests):
        base = rng.choice(paths[-40:])
        path = base[: rng.randint(0, len(base))] if rng.random() < 0.3 else base
        path = [*path, *(next(ids) for _ in range(rng.randint(1, 20)))]
        paths.append(path)
        now += rng.expovariate(2.0)
        prompt = len(path) * block_tokens + rng.randint(0, block_tokens - 1)
        requests.append(TraceRequest(now, prompt, rng.randint(1, 60), array("q", path)))
    return Trace(block_tokens, requests)


def trace_file(folder, **kwargs):
    """Write the conversations into a folder; the file's path."""
    path = folder / "small.jsonl"
    write_trace(path, conversations(**kwargs))
    return str(path)


def request_of(path, **changes):
    """A request for a small grid on a model with sliding windows."""
    request = ReplayRequest(
        trace=TraceChoice(path),
        model=ModelChoice("gemma-3-270m"),
        axes=GridAxes(
            device_memory_bytes=(0, 40 * MIB),
            host_memory_bytes=(0, 20 * MIB, 100 * MIB),
        ),
        costs=CostChoice(given=SPEEDS),
        limits=ServerLimits(max_num_seqs=16, step_tokens=256),
        num_processes=1,
    )
    return dataclasses.replace(request, **changes)


def silent(num_cells, num_requests):
    """Progress that nobody watches."""
    return lambda num_admitted, num_done: None


def report_of(path, **changes):
    """Play the small grid."""
    return run_request(request_of(path, **changes), silent)
