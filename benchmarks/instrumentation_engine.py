"""One real engine on the CPU, its connector watched in turn: microseconds as JSON.

Run by ``instrumentation.py`` in a process of its own. The same prompts are asked twice
per round, on a device cache that holds a third of them, so that they come back from
host memory; every round is watched otherwise than the one before. Steps in which
requests only decode are told apart from the others.
"""

import argparse
import functools
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

NUM_PROMPTS = 12
PROMPT_CHARACTERS = 600  # a token each
ANSWER_TOKENS = 24
NUM_DEVICE_BLOCKS = 160  # of 32 tokens, over all groups
# What the engine calls in a step, on the scheduler's half.
HOOKS = (
    "on_new_request",
    "get_num_new_matched_tokens",
    "update_state_after_alloc",
    "build_connector_meta",
    "update_connector_output",
    "request_finished_all_groups",
    "has_pending_push_work",
    "take_events",
    "get_kv_connector_stats",
)


@dataclass(slots=True)
class Steps:
    """Microseconds of steps of one kind, and of the hooks inside each of them."""

    steps: list[float] = field(default_factory=list)
    hooks: list[float] = field(default_factory=list)


class Clock:
    """Adds up processor time in the hooks, and notes what kind of step it is."""

    def __init__(self, connector: Any) -> None:
        self.hook_ns = 0
        self.is_decode = True
        for name in HOOKS:
            setattr(connector, name, self._timed(getattr(connector, name)))

    def _timed(self, hook: Callable[..., Any]) -> Callable[..., Any]:
        is_planning = hook.__name__ == "build_connector_meta"

        @functools.wraps(hook)
        def timed(*args: Any) -> Any:
            if is_planning:
                scheduled = args[0].num_scheduled_tokens.values()
                self.is_decode = all(tokens == 1 for tokens in scheduled)
            started = time.thread_time_ns()
            try:
                return hook(*args)
            finally:
                self.hook_ns += time.thread_time_ns() - started

        return timed


def main() -> None:
    """Print one JSON object: kind of watching, kind of step, figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    stdout, sys.stdout = sys.stdout, sys.stderr
    found = measure(rounds)
    print(json.dumps(found), file=stdout)


def measure(rounds: int) -> dict[str, dict[str, list[dict[str, list[float]]]]]:
    """By watch and kind of step a list of rounds, on one engine; a warm-up first."""
    from observers import Observers, Watch, openings
    from stopwatch import quiet_interpreter

    llm = make_engine()
    core = llm.llm_engine.engine_core.engine_core
    side = core.scheduler.connector.scheduler_side
    clock = Clock(core.scheduler.connector)
    ask(llm, clock, "warm-up")
    observers = Observers(side, core.scheduler.kv_cache_config)
    found: dict[str, Any] = {}
    for number in range(rounds):
        for watch in Watch:
            llm.reset_prefix_cache()
            observers.set(watch)
            with openings(watch), quiet_interpreter():
                kinds = ask(llm, clock, f"round {number}")
            for kind, steps in kinds.items():
                one = {"steps": steps.steps, "hooks": steps.hooks}
                found.setdefault(watch.name, {}).setdefault(kind, []).append(one)
    assert side.offloader.counters.loaded_tokens
    return found


def make_engine() -> Any:
    """The demo's tiny Gemma 3 with our connector, in this process."""
    from vllm import LLM

    from kvcellar.demo.tiny import ensure_tiny

    return LLM(
        str(ensure_tiny("gemma3")),
        enforce_eager=True,
        max_model_len=1024,
        block_size=32,
        num_gpu_blocks_override=NUM_DEVICE_BLOCKS,
        max_num_seqs=4,
        disable_log_stats=False,
        kv_transfer_config={
            "kv_connector": "CellarConnector",
            "kv_connector_module_path": "kvcellar.integrations.vllm",
            "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {"host_memory": "256MiB"},
        },
    )


def ask(llm: Any, clock: Clock, name: str) -> dict[str, Steps]:
    """All prompts twice, and idle steps until the last store has ended."""
    from vllm import SamplingParams

    engine, found = llm.llm_engine, defaultdict(Steps)
    scheduler = engine.engine_core.engine_core.scheduler
    params = SamplingParams(
        temperature=0, max_tokens=ANSWER_TOKENS, ignore_eos=True, detokenize=False
    )
    for turn in range(2):
        for number in range(NUM_PROMPTS):
            text = f"{name}, prompt {number}. " * PROMPT_CHARACTERS
            request_id = f"{name}/{number}/{turn}/{time.monotonic_ns()}"
            engine.add_request(request_id, text[:PROMPT_CHARACTERS], params)
        while engine.has_unfinished_requests() or scheduler.has_requests():
            clock.hook_ns = 0
            started = time.perf_counter_ns()
            engine.step()
            wall_ns = time.perf_counter_ns() - started
            steps = found["decode" if clock.is_decode else "prefill"]
            steps.steps.append(wall_ns / 1e3)
            steps.hooks.append(clock.hook_ns / 1e3)
    return found


if __name__ == "__main__":
    main()
