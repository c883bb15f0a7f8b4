"""What planning a store costs, per chunk of a long prompt.

``planner`` rows time the planner's own events: steps of 8,192 tokens without a
checkpoint in them, what one checkpoint adds, the same with a full arena (each new chunk
then evicts an old one), and taking in that a job has ended.

The other rows time everything that vLLM calls while a prompt is computed in steps of
8,192 tokens: ``build_connector_meta`` and ``request_finished`` (planning), and
``update_connector_output`` (ending), checkpoints and whatever else is due included.
Those times are divided by the chunks in the prompt, for vLLM's connectors too, though
these count blocks of each group and not chunks. All figures are processor time.

Both are measured with the default order of eviction and once more with ``lru``.
"""

from dataclasses import dataclass

import models
from models import Model
from planner_rig import PlannerRig
from report import Options, Row, Table, compare, run_script
from stopwatch import median, quiet_interpreter

from kvcellar.config import Settings

BUDGET_US = 10.0
POLICIES = (Settings().eviction_policy, "lru")
STEP_TOKENS = 8192
CHECKPOINT_TOKENS = 2048  # further apart than any window here, so nothing is shared


@dataclass(frozen=True, slots=True)
class Size:
    """How much is computed.

    Attributes:
        num_tokens: length of every prompt.
        num_prompts: prompts per figure; each figure is the median over them.
    """

    num_tokens: int
    num_prompts: int


def measure(options: Options) -> list[Table]:
    """All rows."""
    size = Size(8192, 2) if options.is_quick else Size(131_072, 7)
    layouts = (models.deepseek_v4_flash(), models.gemma3_27b(), models.plain_full())
    rows = [
        row
        for policy in POLICIES
        for model in layouts
        for row in planner_rows(model, size, policy)
    ]
    tables = [Table("store planning, planner alone", rows)]
    if options.has_vllm:
        size = Size(4096, 1) if options.is_quick else Size(65_536, 3)
        rows = [row for model in layouts for row in connector_rows(model, size)]
        tables.append(Table("store planning, as vLLM calls it, per chunk", rows))
    return tables


def planner_rows(model: Model, size: Size, policy: str) -> list[Row]:
    """The planner without vLLM around it."""
    settings = Settings(eviction_policy=policy)
    chunk = model.layout.chunk_tokens
    name = f"{model.name}, chunk of {chunk} tokens, {policy}"
    plenty = bytes_for(model, size, size.num_prompts + 1)
    planning, ending = per_chunk(PlannerRig(model, plenty, settings), size, num_first=1)
    little = PlannerRig(model, bytes_for(model, size, 2), settings)
    full, _ = per_chunk(little, size, num_first=4)
    assert little.offloader.index.counters.evicted_chunks
    rows = [
        compare(f"{name}: planned", planning, budget_us=BUDGET_US),
        compare(f"{name}: planned, arena full", full, budget_us=BUDGET_US),
        compare(f"{name}: ended", ending),
    ]
    if model.layout.checkpoint_positions and policy == Settings().eviction_policy:
        cost, num_blocks = checkpoint_cost(model, size)
        rows.append(compare(f"{name}: checkpoint of {num_blocks} blocks", cost))
    return rows


def bytes_for(model: Model, size: Size, num_prompts: int) -> int:
    """Host memory for this many prompts' chunks."""
    layout = model.layout
    chunk_bytes = sum(layout.cell_bytes(p) for p in layout.chunk_positions)
    num_chunks = size.num_tokens // layout.chunk_tokens * num_prompts
    return num_chunks * chunk_bytes * 11 // 10  # slabs are not filled to the last byte


def per_chunk(rig: PlannerRig, size: Size, *, num_first: int) -> tuple[float, float]:
    """Planning and ending one chunk, in microseconds, first prompts left out."""
    chunks_per_step = STEP_TOKENS // rig.model.layout.chunk_tokens
    planned, ended = [], []
    for number in range(size.num_prompts + num_first):
        hashes = rig.hashes(size.num_tokens, seed=number)
        with quiet_interpreter():
            # One token more than is computed: the last step has no checkpoint either.
            planning, ending = rig.store(
                f"prompt-{number}", hashes, 2 * size.num_tokens, STEP_TOKENS
            )
        if number >= num_first:
            planned += [ns / 1e3 / chunks_per_step for ns in planning.processor_laps_ns]
            ended += [ns / 1e3 / chunks_per_step for ns in ending.processor_laps_ns]
    return median(planned), median(ended)


def checkpoint_cost(model: Model, size: Size) -> tuple[float, int]:
    """What a checkpoint adds to a step, in microseconds, and the blocks it takes.

    Decoding places a checkpoint every ``decode_checkpoint_tokens``; a prompt places
    none before its end. So the same tokens are computed once as prompt, once as answer.
    """
    settings = Settings(decode_checkpoint_tokens=CHECKPOINT_TOKENS)
    medians = []
    for num_prompt_tokens in (2 * size.num_tokens, CHECKPOINT_TOKENS):
        host_bytes = 64 * bytes_for(model, size, size.num_prompts)
        rig = PlannerRig(model, host_bytes, settings)
        laps: list[float] = []
        for number in range(size.num_prompts):
            hashes = rig.hashes(size.num_tokens, seed=number)
            with quiet_interpreter():
                planning, _ = rig.store(
                    f"{number}", hashes, num_prompt_tokens, CHECKPOINT_TOKENS
                )
            laps += [ns / 1e3 for ns in planning.processor_laps_ns[1:]]
        medians.append(median(laps))
    blocks = rig.offloader.index.rules.checkpoint_blocks(CHECKPOINT_TOKENS)
    return medians[1] - medians[0], sum(len(b) for _, b in blocks)


def connector_rows(model: Model, size: Size) -> list[Row]:
    """The three connectors side by side, each computing the same prompts."""
    from connectors import CellarSide, OffloadingSide, SimpleSide

    layout = model.layout
    # vLLM's connectors take a row for every block; numbers only, nothing is allocated.
    blocks_per_prompt = sum(
        size.num_tokens // g.tokens_per_block for g in layout.groups
    )
    num_blocks = (size.num_prompts + 2) * blocks_per_prompt
    host_bytes = num_blocks * model.row_bytes
    simple = _prompts(SimpleSide(model, num_blocks, host_bytes), model, size)
    offloading = _prompts(OffloadingSide(model, num_blocks, host_bytes), model, size)
    rows = []
    for policy in POLICIES:
        side = CellarSide(model, num_blocks, host_bytes, eviction_policy=policy)
        ours = _prompts(side, model, size)
        name = f"{model.name}, chunk of {layout.chunk_tokens} tokens, {policy}"
        rows += [
            compare(
                f"{name}: {what}",
                ours[index],
                simple_us=simple[index],
                offloading_us=offloading[index],
                budget_us=BUDGET_US if what == "planned" else None,
            )
            for index, what in enumerate(("planned", "ended"))
        ]
    return rows


def _prompts(side: object, model: Model, size: Size) -> tuple[float, float]:
    import vllm_rig
    from connectors import prefill

    num_chunks = size.num_tokens // model.layout.chunk_tokens
    planned, ended = [], []
    for seed in range(size.num_prompts + 1):
        request = vllm_rig.make_request(model, size.num_tokens, seed)
        with quiet_interpreter():
            planning, ending = prefill(side, request, STEP_TOKENS)  # type: ignore[arg-type]
        if seed:
            planned.append(planning.total_us / num_chunks)
            ended.append(ending.total_us / num_chunks)
    return median(planned), median(ended)


if __name__ == "__main__":
    run_script(__doc__, measure)
