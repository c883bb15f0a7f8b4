"""What it costs to be able to say what happened: accounts, statistics, KV events.

Every workload is played side by side with nothing watched, as by default, and with KV
events on top (``observers.py``). The difference is the cost of watching; ``paired.py``
says how it is taken. A second side with nothing watched is the control: what it differs
by from the first is an error of this rig.

KV events are off unless somebody follows them. The engine then sends its own too, of
its device: what those add to the work of its cache manager is told beside ours.

The first table times all that vLLM calls of the scheduler's half in a step, on vLLM's
own cache manager: decoding, long prompts into a full arena, and many short prompts that
return. Their shares are of a step on one H100 as *assumed* here, and on the safe side,
since a slower step makes the share smaller: 5 ms to decode, and for 8,192 prompt tokens
2 x 8,192 x active parameters at the GPU's whole peak. The second table is a real engine
on this machine's CPU; its shares are of its own measured steps, whose length is the
middle one. All that is called is processor time.
"""

import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import models
from models import Model
from paired import Figure, added, average
from report import Options, Row, Table, run_script
from stopwatch import quiet_interpreter

from kvcellar.replay import presets

if TYPE_CHECKING:
    from watched_steps import Panel

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
        decode_repeats: of the decoding steps.
        prompt_repeats: of the steps with prompts.
        engine_rounds: rounds of the real engine; 0 leaves it out.
    """

    num_requests: int = 256
    num_steps: int = 128
    prompt_tokens: int = 65_536
    num_prompts: int = 4
    num_turns: int = 3
    decode_repeats: int = 4
    prompt_repeats: int = 2
    engine_rounds: int = 3


QUICK = Size(4, 8, 8192, 3, 2, 2, 2, 0)


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


def cost_row(
    case: str, unwatched: Figure, usual: Figure, followed: Figure, step_us: float
) -> Row:
    """One workload.

    Args:
        unwatched: of a step with nothing watched.
        usual: what the default adds to it.
        followed: what the default and KV events add to it.
        step_us: of the whole step.
    """
    return {
        "case": case,
        "unwatched_us": unwatched.us,
        "usual_adds_us": usual.us,
        "with_kv_events_adds_us": followed.us,
        "step_us": step_us,
        "usual_percent": 100 * usual.us / step_us,
        "with_kv_events_percent": 100 * followed.us / step_us,
        "error_percent": 100 * max(usual.error_us, followed.error_us) / step_us,
        "within_1_percent": followed.us <= MOST_SHARE * step_us,
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
    cases: list[tuple[str, Callable[[Model, Size], Case], float, int]] = [
        ("decoding", decoding, DECODE_STEP_US, size.decode_repeats),
        ("long prompts, arena full", prefill, prefill_us_assumed, size.prompt_repeats),
        (
            "short prompts that return",
            returning,
            prefill_us_assumed,
            size.prompt_repeats,
        ),
    ]
    return [
        planner_row(name, model, make(model, size), step_us, times)
        for name, make, step_us, times in cases
    ]


@dataclass(frozen=True, slots=True)
class Case:
    """One workload.

    Attributes:
        num_blocks: of the device.
        host_bytes: of host memory.
        play: carries its steps out.
    """

    num_blocks: int
    host_bytes: int
    play: "Callable[[Panel], None]"


def planner_row(name: str, model: Model, case: Case, step_us: float, times: int) -> Row:
    """Play a workload so often, and compare."""
    from observers import Watch
    from watched_steps import Panel

    watches = (*Watch, Watch.NONE)  # the last is the control
    sides: list[list[list[float]]] = [[] for _ in watches]
    engines: list[list[list[float]]] = [[], []]
    for seed in range(times):
        order = random.Random(seed).sample(range(len(watches)), len(watches))
        panel = Panel(
            [watches[place] for place in order],
            *(model, case.num_blocks, case.host_bytes, seed),
        )
        with quiet_interpreter():
            case.play(panel)
        for place, turns in zip(order, panel.sides, strict=True):
            sides[place].append(turns.steps_us)
        for engine, turns in zip(engines, panel.engines, strict=True):
            engine.append(turns.steps_us)
    nothing, usual, followed, control = sides
    row = cost_row(
        f"{model.name}, {name}",
        average(nothing),
        added(usual, nothing),
        added(followed, nothing),
        step_us,
    )
    return row | {
        "control_percent": 100 * added(control, nothing).us / step_us,
        "engine_events_percent": 100 * added(engines[1], engines[0]).us / step_us,
    }


def blocks_of(model: Model, num_tokens: int) -> int:
    """Device blocks of all groups that a request of so many tokens takes."""
    groups = model.layout.groups
    return sum(num_tokens // g.tokens_per_block + 2 for g in groups)


def chunk_bytes(model: Model, num_tokens: int) -> int:
    """Host bytes of the chunks of so many tokens."""
    layout = model.layout
    one = sum(layout.cell_bytes(position) for position in layout.chunk_positions)
    return num_tokens // layout.chunk_tokens * one


def decoding(model: Model, size: Size) -> Case:
    """All requests decode, and their answers are stored.

    Their prompts are of different lengths, so a step ends the blocks of a few of them.
    """
    num_tokens = 1024 + size.num_requests + size.num_steps
    num_blocks = size.num_requests * blocks_of(model, 2 * num_tokens)

    def play(panel: "Panel") -> None:
        seeds = range(size.num_requests)
        requests = [new_prompt(model, 1024 + seed, seed) for seed in seeds]
        for request in requests:
            panel.admit(request, request.num_tokens)
            panel.start([request])
            request.num_computed_tokens = request.num_tokens
        panel.start_timing()
        for _ in range(size.num_steps):
            for request in requests:
                request.append_output_token_ids(5)
            panel.go_on(requests, 1)
            for request in requests:
                request.num_computed_tokens += 1

    return Case(num_blocks, num_blocks * model.row_bytes, play)


def prefill(model: Model, size: Size) -> Case:
    """One long prompt after the other, each of which evicts an earlier one."""
    num_tokens = size.prompt_tokens

    def play(panel: "Panel") -> None:
        for number in range(size.num_prompts):
            if number == 2:
                panel.start_timing()  # the arena is full from here on
            compute(panel, new_prompt(model, num_tokens, number))

    num_blocks = 2 * blocks_of(model, num_tokens)
    return Case(num_blocks, 2 * chunk_bytes(model, num_tokens), play)


def compute(panel: "Panel", request: Any) -> None:
    """A whole prompt in steps."""
    panel.admit(request, STEP_TOKENS)
    panel.start_part(request, STEP_TOKENS)
    request.num_computed_tokens = STEP_TOKENS
    while request.num_computed_tokens < request.num_tokens:
        panel.go_on([request], STEP_TOKENS)
        request.num_computed_tokens += STEP_TOKENS
    panel.finish(request)


def returning(model: Model, size: Size) -> Case:
    """Each step admits eight prompts of 1,024 tokens; host memory holds half of all."""
    import vllm_rig

    num_tokens, per_step = 1024, STEP_TOKENS // 1024
    num_prompts = 8 * per_step

    def play(panel: "Panel") -> None:
        prompts = [new_prompt(model, num_tokens, seed) for seed in range(num_prompts)]
        for turn in range(size.num_turns):
            if turn == 1:
                panel.start_timing()
            for first in range(0, num_prompts, per_step):
                again = prompts[first : first + per_step]
                admit_all(panel, [vllm_rig.same_prompt(prompt) for prompt in again])

    num_blocks = 2 * per_step * blocks_of(model, num_tokens)
    return Case(num_blocks, 4 * chunk_bytes(model, num_prompts // 2 * num_tokens), play)


def admit_all(panel: "Panel", requests: Sequence[Any]) -> None:
    """One step computes all of these prompts, the next one finds them ended."""
    for request in requests:
        panel.admit(request, request.num_tokens)
    panel.start(requests)
    for request in requests:
        request.num_computed_tokens = request.num_tokens
        panel.finish(request)


def new_prompt(model: Model, num_tokens: int, seed: int) -> Any:
    """A prompt of its own for every seed."""
    import vllm_rig

    return vllm_rig.make_request(model, num_tokens, seed)


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
    return [engine_row(kind, found) for kind in ("decode", "prefill")]


def engine_row(kind: str, found: dict[str, Any]) -> Row:
    """Of steps of one kind; their hooks' mean, round by round, is what is compared."""
    ways = [found[watch][kind] for watch in ("NONE", "USUAL", "FOLLOWED")]
    hooks = [[[statistics.fmean(r["hooks"])] for r in rounds] for rounds in ways]
    # The middle one: some steps wait for the machine's other processes.
    steps = [us for rounds in ways for one in rounds for us in one["steps"]]
    nothing, usual, followed = hooks
    num_steps = sum(len(one["hooks"]) for one in ways[1])
    return cost_row(
        f"{kind} steps ({num_steps})",
        average(nothing),
        added(usual, nothing),
        added(followed, nothing),
        statistics.median(steps),
    )


if __name__ == "__main__":
    run_script(__doc__, measure)
