"""What it costs to be able to say what happened: accounts, statistics, KV events.

Every workload runs three times side by side: with nothing watched, as by default, and
with KV events on top (``observers.py``). The difference is the cost of watching.

KV events are off unless somebody follows them; what they cost is told beside the rest.

The first table times all that vLLM calls of the scheduler's half in a step, on vLLM's
own cache manager: decoding, long prompts into a full arena, and many short prompts that
return. Their shares are of a step on one H100 as *assumed* here, and on the safe side,
since a slower step makes the share smaller: 5 ms to decode, and for 8,192 prompt tokens
2 x 8,192 x active parameters at the GPU's whole peak. The second table is a real engine
on this machine's CPU; its shares are of its own measured steps. What vLLM calls is
processor time, a mean over the steps; a real step's length is the middle one.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import models
from models import Model
from report import Options, Row, Table, run_script
from stopwatch import Stopwatch, quiet_interpreter

from kvcellar.replay import presets

DECODE_STEP_US = 5_000.0
"""Assumed: 256 requests decode on one GPU."""

STEP_TOKENS = 8192
MOST_SHARE = 0.01
ENGINE = Path(__file__).with_name("instrumentation_engine.py")


@dataclass(frozen=True, slots=True)
class Size:
    """How much is run.

    Attributes:
        num_requests: that decode at once.
        num_steps: decoding steps of each.
        prompt_tokens: of a long prompt; a multiple of a step's tokens.
        num_prompts: long prompts; host memory holds two.
        num_turns: how often the short prompts return.
        engine_rounds: rounds of the real engine; 0 leaves it out.
    """

    num_requests: int = 256
    num_steps: int = 256
    prompt_tokens: int = 65_536
    num_prompts: int = 6
    num_turns: int = 6
    engine_rounds: int = 3


QUICK = Size(4, 8, 8192, 3, 2, 0)


def measure(options: Options) -> list[Table]:
    """All rows; none without vLLM, whose objects drive them."""
    if not options.has_vllm:
        return []
    size = QUICK if options.is_quick else Size()
    layouts = (
        (models.deepseek_v4_flash(), "deepseek-v4-flash"),
        (models.gemma3_27b(), "gemma-3-27b"),
        (models.plain_full(), "llama-3.1-8b"),
    )
    rows = [
        row
        for model, published in layouts[: 1 if options.is_quick else None]
        for row in planner_rows(model, prefill_step_us(published), size)
    ]
    tables = [Table("a step as vLLM calls it; its length is assumed", rows)]
    if size.engine_rounds:
        rows = engine_rows(size.engine_rounds)
        tables.append(Table("a step of a real engine, tiny model on the CPU", rows))
    return tables


def cost_row(case: str, watched_us: Sequence[float], step_us: float) -> Row:
    """One workload.

    Args:
        watched_us: of a step with nothing watched, as by default, and with KV events.
        step_us: of the whole step.
    """
    nothing, usual, followed = watched_us
    share = (usual - nothing) / step_us
    return {
        "case": case,
        "unwatched_us": nothing,
        "usual_us": usual,
        "with_kv_events_us": followed,
        "step_us": step_us,
        "usual_percent": 100 * share,
        "with_kv_events_percent": 100 * (followed - nothing) / step_us,
        "within_1_percent": share <= MOST_SHARE,
    }


def prefill_step_us(published: str) -> float:
    """Assumed length of a step of 8,192 prompt tokens of a model of the catalogue."""
    parameters = presets.active_parameters(published)
    assert parameters is not None
    flops = 2 * parameters * STEP_TOKENS
    return 1e6 * flops / presets.gpu_named("h100").flops_per_second


# -- the scheduler's half alone --------------------------------------------------------


def planner_rows(model: Model, prefill_us_assumed: float, size: Size) -> list[Row]:
    """Three workloads, each watched in three ways, in turn."""
    cases: list[tuple[str, Callable[[Model, Size], list[float]], float]] = [
        ("decoding", decode_us, DECODE_STEP_US),
        ("long prompts, arena full", prefill_us, prefill_us_assumed),
        ("short prompts that return", return_us, prefill_us_assumed),
    ]
    rows = []
    for case, run, step_us in cases:
        with quiet_interpreter():
            watched_us = run(model, size)
        rows.append(cost_row(f"{model.name}, {case}", watched_us, step_us))
    return rows


class WatchedSide:
    """kvcellar's scheduler half; everything that vLLM calls is timed together."""

    def __init__(
        self, watch: Any, model: Model, num_blocks: int, host_bytes: int
    ) -> None:
        import vllm_rig
        from connectors import CellarSide
        from observers import Observers

        self.watch = watch
        self.side = CellarSide(model, num_blocks, host_bytes)
        config = vllm_rig.kv_cache_config(model, num_blocks)
        Observers(self.side.side, config).set(watch)
        self.manager = self.side.manager
        self.clock = Stopwatch()
        self.num_steps = 0

    @property
    def step_us(self) -> float:
        """Processor microseconds of an average step."""
        return self.clock.total_us / self.num_steps

    def start_timing(self) -> None:
        """Forget what was timed so far."""
        self.clock, self.num_steps = Stopwatch(), 0

    def admit(self, request: Any, num_tokens: int) -> None:
        """Look up, allocate; as if nothing was to be loaded."""
        time, side = self.clock.time, self.side.side
        time(lambda: side.arrived(request))
        time(lambda: side.look_up(request, 0))
        assert self.manager.allocate_slots(request, num_tokens) is not None
        time(lambda: side.allocated(request, 0))

    def step(self, output: Any) -> None:
        """Plan, end all jobs, and ask for what the engine asks after every step."""
        time, side = self.clock.time, self.side.side
        metadata = time(lambda: side.build_metadata(output))
        time(lambda: self.side.complete(metadata))
        time(lambda: (side.step_ended(), side.take_kv_events(), side.take_stats()))
        self.num_steps += 1

    def finish(self, request: Any) -> None:
        """End a request in the ordinary way."""
        import vllm_rig

        vllm_rig.end(request)
        self.clock.time(lambda: self.side.side.finished(request))
        self.manager.free(request)


def watched_sides(model: Model, num_blocks: int, host_bytes: int) -> list[WatchedSide]:
    """One side for each way of watching."""
    from observers import Watch

    return [WatchedSide(watch, model, num_blocks, host_bytes) for watch in Watch]


def blocks_of(model: Model, num_tokens: int) -> int:
    """Device blocks of all groups that a request of so many tokens takes."""
    groups = model.layout.groups
    return sum(num_tokens // g.tokens_per_block + 2 for g in groups)


def decode_us(model: Model, size: Size) -> list[float]:
    """All requests decode, and their answers are stored."""
    import vllm_rig
    from observers import openings

    num_tokens = 1024 + size.num_steps
    num_blocks = size.num_requests * blocks_of(model, 2 * num_tokens)
    sides = watched_sides(model, num_blocks, num_blocks * model.row_bytes)
    running = []
    for side in sides:
        requests = [
            vllm_rig.make_request(model, 1024, seed)
            for seed in range(size.num_requests)
        ]
        for request in requests:
            with openings(side.watch):
                side.admit(request, 1024)
            side.step(vllm_rig.first_step(side.manager, request, 1024))
            request.num_computed_tokens = 1024
        side.start_timing()
        running.append(requests)
    for _ in range(size.num_steps):
        for side, requests in zip(sides, running, strict=True):
            decode_once(side, requests)
    return [side.step_us for side in sides]


def decode_once(side: WatchedSide, requests: Sequence[Any]) -> None:
    """Every request has sampled a token and computes it now."""
    import vllm_rig

    new_blocks = []
    for request in requests:
        request.append_output_token_ids(5)
        new_blocks.append(side.manager.allocate_slots(request, 1))
    side.step(vllm_rig.later_step(requests, new_blocks, 1))
    for request in requests:
        request.num_computed_tokens += 1


def prefill_us(model: Model, size: Size) -> list[float]:
    """One long prompt after the other, each of which evicts an earlier one."""
    import vllm_rig

    num_blocks = 2 * blocks_of(model, size.prompt_tokens)
    layout = model.layout
    chunk_bytes = sum(layout.cell_bytes(p) for p in layout.chunk_positions)
    host_bytes = 2 * size.prompt_tokens // layout.chunk_tokens * chunk_bytes
    sides = watched_sides(model, num_blocks, host_bytes)
    for number in range(size.num_prompts):
        for side in sides:
            if number == 2:
                side.start_timing()  # the arena is full from here on
            request = vllm_rig.make_request(model, size.prompt_tokens, number)
            compute(side, request)
    return [side.step_us for side in sides]


def compute(side: WatchedSide, request: Any) -> None:
    """A whole prompt in steps."""
    import vllm_rig
    from observers import openings

    with openings(side.watch):
        side.admit(request, STEP_TOKENS)
    side.step(vllm_rig.first_step(side.manager, request, STEP_TOKENS))
    request.num_computed_tokens = STEP_TOKENS
    while request.num_computed_tokens < request.num_tokens:
        blocks = side.manager.allocate_slots(request, STEP_TOKENS)
        side.step(vllm_rig.later_step([request], [blocks], STEP_TOKENS))
        request.num_computed_tokens += STEP_TOKENS
    side.finish(request)


def return_us(model: Model, size: Size) -> list[float]:
    """Each step admits eight prompts of 1,024 tokens; host memory holds half of all."""
    import vllm_rig
    from observers import openings

    num_tokens, per_step = 1024, STEP_TOKENS // 1024
    num_prompts = 8 * per_step
    num_blocks = 2 * per_step * blocks_of(model, num_tokens)
    layout = model.layout
    chunk_bytes = sum(layout.cell_bytes(p) for p in layout.chunk_positions)
    chunks = num_prompts // 2 * num_tokens // layout.chunk_tokens
    sides = watched_sides(model, num_blocks, 4 * chunks * chunk_bytes)
    prompts = [
        vllm_rig.make_request(model, num_tokens, seed) for seed in range(num_prompts)
    ]
    for turn in range(size.num_turns):
        for first in range(0, num_prompts, per_step):
            for side in sides:
                if turn == 1 and not first:
                    side.start_timing()
                requests = [
                    vllm_rig.same_prompt(prompt)
                    for prompt in prompts[first : first + per_step]
                ]
                with openings(side.watch):
                    admit_all(side, requests)
    return [side.step_us for side in sides]


def admit_all(side: WatchedSide, requests: Sequence[Any]) -> None:
    """One step computes all of these prompts, the next one finds them ended."""
    import vllm_rig

    for request in requests:
        side.admit(request, request.num_tokens)
    side.step(vllm_rig.first_steps(side.manager, requests))
    for request in requests:
        request.num_computed_tokens = request.num_tokens
        side.finish(request)


# -- a real engine ---------------------------------------------------------------------


def engine_rows(rounds: int) -> list[Row]:
    """Decoding and other steps of one engine, watched in turn."""
    done = subprocess.run(
        [sys.executable, str(ENGINE), "--rounds", str(rounds)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    rows = []
    for kind in ("decode", "prefill"):
        figures = [found[watch][kind] for watch in ("NONE", "USUAL", "FOLLOWED")]
        hooks = [mean(one["hooks"]) for one in figures]
        # The middle one: some steps wait for the machine's other processes.
        step_us = statistics.median(us for one in figures for us in one["steps"])
        rows.append(
            cost_row(f"{kind} steps ({len(figures[1]['hooks'])})", hooks, step_us)
        )
    return rows


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean."""
    return sum(values) / len(values)


if __name__ == "__main__":
    run_script(__doc__, measure)
