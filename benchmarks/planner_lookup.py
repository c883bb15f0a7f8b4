"""What asking costs: look-ups of long prompts that host memory holds, or does not.

First time means a request never asked about before, with hashes that nobody has touched
(Python computes a bytes object's own hash once and keeps it). Repeated means the same
request again, as the engine does in every step while it waits for room.

``planner`` rows call the planner, the others what vLLM calls,
``get_num_new_matched_tokens``. Each connector has its own copy of vLLM's cache manager,
and the device holds nothing of the prompt.
"""

import functools
from collections.abc import Callable
from typing import Any

import models
from models import Model
from planner_rig import PlannerRig
from report import Options, Row, Table, compare, run_script
from stopwatch import Stopwatch, quiet_interpreter

BUDGET_FIRST_US = 50.0
BUDGET_REPEATED_US = 5.0
LONG_TOKENS = 1_000_000
SHORT_TOKENS = 65_536
STEP_TOKENS = 8192
HOST_BYTES = 2**37  # numbers only; nothing is allocated
NUM_REPEATS = 20
WARM_UP_TOKENS = 2048
REQUESTS_CELLAR, REQUESTS_NATIVE = 25, 5

Medians = tuple[float, float]  # first time, repeated; microseconds


def measure(options: Options) -> list[Table]:
    """All rows."""
    long, short = (8192, 4096) if options.is_quick else (LONG_TOKENS, SHORT_TOKENS)
    hybrid, windows = models.deepseek_v4_flash(), models.full_and_three_windows()
    tables = [Table("look-up, planner alone", planner_rows(hybrid, long, options))]
    if options.has_vllm:
        rows: list[Row] = []
        for model, num_tokens in ((hybrid, long), (hybrid, short), (windows, short)):
            rows += connector_rows(model, num_tokens, options)
        tables.append(Table("look-up, as vLLM calls it", rows))
    return tables


def planner_rows(model: Model, num_tokens: int, options: Options) -> list[Row]:
    """The planner without vLLM around it."""
    rig = PlannerRig(model, HOST_BYTES)
    hashes = rig.hashes(num_tokens, seed=1)
    rig.store("stored", hashes, num_tokens, STEP_TOKENS)
    numbers = iter(range(10**6))

    def ask_about(known: list[bytes]) -> Callable[[], int]:
        request_id = f"asked-{next(numbers)}"
        copied = [bytes(bytearray(h)) for h in known]
        return functools.partial(rig.look_up, request_id, copied, num_tokens)

    def warm_up() -> int:
        return rig.look_up(f"asked-{next(numbers)}", other, WARM_UP_TOKENS)

    other = rig.hashes(WARM_UP_TOKENS, seed=3)
    rig.store("other", other, WARM_UP_TOKENS, STEP_TOKENS)
    num_requests = 3 if options.is_quick else REQUESTS_CELLAR
    hit = _medians(lambda: ask_about(hashes), num_requests, warm_up)
    assert ask_about(hashes)() > num_tokens - 2 * model.layout.chunk_tokens
    unknown = rig.hashes(num_tokens, seed=2)
    miss = _medians(lambda: ask_about(unknown), num_requests, warm_up)
    return _rows(model, num_tokens, hit, miss, {}, {})


def connector_rows(model: Model, num_tokens: int, options: Options) -> list[Row]:
    """The three connectors side by side, each asked the same."""
    from connectors import CellarSide, OffloadingSide, SimpleSide

    num_blocks = num_tokens // 4 + 20_000
    hits: dict[str, Medians] = {}
    misses: dict[str, Medians] = {}
    for side_type in (CellarSide, SimpleSide, OffloadingSide):
        name = side_type.__name__
        side = side_type(model, num_blocks, num_blocks * model.row_bytes)
        hits[name], misses[name] = _measure_side(side, model, num_tokens, options)
    return _rows(
        model,
        num_tokens,
        hits.pop("CellarSide"),
        misses.pop("CellarSide"),
        hits,
        misses,
    )


def _measure_side(
    side: Any, model: Model, num_tokens: int, options: Options
) -> tuple[Medians, Medians]:
    import vllm_rig
    from connectors import CellarSide, prefill

    stored = vllm_rig.make_request(model, num_tokens, seed=1)
    other = vllm_rig.make_request(model, WARM_UP_TOKENS, seed=3)
    for request in (stored, other):
        prefill(side, request, STEP_TOKENS)
    requests: list[Any] = []

    def ask_about(known: Any) -> Callable[[], int]:
        if requests:
            side.let_go(requests.pop())
        request = vllm_rig.same_prompt(known)
        side.begin(request)
        requests.append(request)
        return functools.partial(side.look_up, request)

    def warm_up() -> int:
        request = vllm_rig.same_prompt(other)
        side.begin(request)
        promised = side.look_up(request)
        side.let_go(request)
        return promised

    assert ask_about(stored)() > num_tokens - 2 * model.layout.chunk_tokens
    is_ours = isinstance(side, CellarSide)
    num_requests = REQUESTS_CELLAR if is_ours else REQUESTS_NATIVE
    if options.is_quick:
        num_requests = 3
    hit = _medians(lambda: ask_about(stored), num_requests, warm_up)
    unknown = vllm_rig.make_request(model, num_tokens, seed=2)
    return hit, _medians(lambda: ask_about(unknown), num_requests, warm_up)


def _medians(
    ask: Callable[[], Callable[[], int]],
    num_requests: int,
    warm_up: Callable[[], int],
) -> Medians:
    """Medians over fresh requests, and over asking each of them again.

    Making a long request empties the processor's caches of everything. In an engine the
    code, though not the prompt's data, is warm from the requests before: ``warm_up``
    looks up another prompt.
    """
    first, repeated = Stopwatch(), Stopwatch()
    with quiet_interpreter():
        for _ in range(num_requests):
            look_up = ask()
            warm_up()
            first.time(look_up)
            for _ in range(NUM_REPEATS):
                repeated.time(look_up)
    return first.median_us, repeated.median_us


def _rows(
    model: Model,
    num_tokens: int,
    hit: Medians,
    miss: Medians,
    native_hits: dict[str, Medians],
    native_misses: dict[str, Medians],
) -> list[Row]:
    # The budget is stated for the layout and length below; others are for comparison.
    has_budget = model.layout.hash_block_tokens == 4 and num_tokens == LONG_TOKENS
    rows = []
    for what, ours, natives in (
        ("resident", hit, native_hits),
        ("unknown", miss, native_misses),
    ):
        for index, when in enumerate(("first time", "repeated")):
            budget = (BUDGET_FIRST_US, BUDGET_REPEATED_US)[index]
            rows.append(
                compare(
                    f"{model.name}, {num_tokens:,} tokens, {what}, {when}",
                    ours[index],
                    simple_us=natives.get("SimpleSide", (None, None))[index],
                    offloading_us=natives.get("OffloadingSide", (None, None))[index],
                    budget_us=budget if has_budget and what == "resident" else None,
                )
            )
    return rows


if __name__ == "__main__":
    run_script(__doc__, measure)
