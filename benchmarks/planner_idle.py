"""What a step costs in which nothing is to be done: 256 decoding requests.

Timed is ``build_connector_meta`` with the step's real ``SchedulerOutput``. Two figures
per connector, from the same steps:

* *no boundary*: the middle step. All requests run in phase, so in most steps none of
  them completes a block.
* *mean*: all steps, also those in which requests complete blocks, which must at least
  be noticed, and stored if decoded tokens are kept.

vLLM's SimpleCPUOffloadConnector cannot leave decoded tokens out, so it has no figure
where nothing but the prompt is stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import models
from models import Model
from report import Options, Row, Table, compare, run_script
from stopwatch import Stopwatch, quiet_interpreter

BUDGET_US = 30.0
NUM_REQUESTS = 256
PROMPT_TOKENS = 1024
BLOCKS_PER_REQUEST = 1000  # of all groups, on the device and in host memory
NUM_WARM_UP_STEPS = 16


@dataclass(frozen=True, slots=True)
class Load:
    """How much decoding.

    Attributes:
        num_steps: measured steps; a multiple of every chunk, so that boundaries count
            with their share.
    """

    num_requests: int
    num_steps: int


def measure(options: Options) -> list[Table]:
    """All rows; none without vLLM, since the engine's own output drives them."""
    if not options.has_vllm:
        return []
    load = Load(8, 32) if options.is_quick else Load(NUM_REQUESTS, 512)
    tables = []
    for model in (models.full_and_three_windows(), models.deepseek_v4_flash()):
        rows = [
            *compare_steps(model, load, is_prompt_only=True),
            *compare_steps(model, load, is_prompt_only=False),
        ]
        num_groups = len(model.layout.groups)
        title = f"{load.num_requests} decoding requests x {num_groups} groups"
        tables.append(Table(f"step, {title} ({model.name})", rows))
    return tables


def compare_steps(model: Model, load: Load, *, is_prompt_only: bool) -> list[Row]:
    """The connectors' steps, with or without decoded tokens to store."""
    from connectors import CellarSide, OffloadingSide, SimpleSide

    # Numbers only: no bytes are allocated.
    num_blocks = load.num_requests * BLOCKS_PER_REQUEST
    host_bytes = num_blocks * model.row_bytes
    ours = CellarSide(model, num_blocks, host_bytes, offload_prompt_only=is_prompt_only)
    laps = {"kvcellar": decode(ours, model, load)}
    if not is_prompt_only:
        simple = SimpleSide(model, num_blocks, host_bytes)
        laps["simple"] = decode(simple, model, load)
    offloading = OffloadingSide(
        model, num_blocks, host_bytes, offload_prompt_only=is_prompt_only
    )
    laps["offloading"] = decode(offloading, model, load)

    def row(case: str, figure: str) -> Row:
        found = {name: getattr(lap, figure) for name, lap in laps.items()}
        return compare(
            f"{'prompts' if is_prompt_only else 'decoded tokens'} stored, {case}",
            found["kvcellar"],
            simple_us=found.get("simple"),
            offloading_us=found["offloading"],
            budget_us=BUDGET_US if is_prompt_only else None,
        )

    return [row("no boundary", "median_us"), row("mean", "mean_us")]


def decode(side: Any, model: Model, load: Load) -> Stopwatch:
    """Prefill all requests, then decode; the time of every measured step."""
    requests = _prefilled(side, model, load)
    for _ in range(NUM_WARM_UP_STEPS):
        _decode_step(side, requests, Stopwatch())
    watch = Stopwatch()
    with quiet_interpreter():
        for _ in range(load.num_steps):
            _decode_step(side, requests, watch)
    return watch


def _prefilled(side: Any, model: Model, load: Load) -> list[Any]:
    import vllm_rig
    from connectors import start

    requests = []
    for seed in range(load.num_requests):
        request = vllm_rig.make_request(model, PROMPT_TOKENS, seed)
        start(side, request, PROMPT_TOKENS, Stopwatch(), Stopwatch())
        requests.append(request)
    return requests


def _decode_step(side: Any, requests: Sequence[Any], watch: Stopwatch) -> None:
    """Every request has sampled a token and computes it now."""
    import vllm_rig

    new_blocks = []
    for request in requests:
        request.append_output_token_ids(5)
        new_blocks.append(side.manager.allocate_slots(request, 1))
    output = vllm_rig.later_step(requests, new_blocks, 1)
    metadata = watch.time(lambda: side.build(output))
    for request in requests:
        request.num_computed_tokens += 1
    side.complete(metadata)


if __name__ == "__main__":
    run_script(__doc__, measure)
