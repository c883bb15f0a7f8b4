"""Host memory that a kept prompt takes, and how much of the arena is payload.

* *kept*: one prompt stored from its first to its last token. kvcellar's figure comes
  from its planner (a prompt that ends exactly at a boundary gets a second checkpoint
  one chunk earlier, for its own repetition); ``simple`` and ``offloading`` from vLLM's
  own scheduler sides with their default settings. The last three columns are worked
  out: what vLLM's connectors could keep, each block as a whole row of the engine's
  pool. Every block; what a resume at every aligned boundary reads; what a resume at
  the prompt's end reads.
* *resume point*: what one more boundary to resume at costs.
* *in use*: payload against slabs taken, while conversations come and go.
* *resident*: payload against pages that the kernel has really handed out.
"""

from collections.abc import Callable

import models
from host_resident import Arena
from host_workload import Conversations, Workload
from models import Model
from planner_rig import PlannerRig
from report import Options, Row, Table, run_script

from kvcellar.attention.hybrid import HybridRules
from kvcellar.layout.groups import GroupLayout

MIB = 2**20
STEP_TOKENS = 8192
PROMPT_TOKENS = (4100, 4096, 32_768, 131_072)
DEEPSEEK_BUDGET_MIB = 14.71  # per resume point: 22 blocks of payload

CountBlocks = Callable[[GroupLayout, int, int], int]


def measure(options: Options) -> list[Table]:
    """All tables."""
    lengths = (4096,) if options.is_quick else PROMPT_TOKENS
    layouts = (models.deepseek_v4_flash(), models.gemma3_27b(), models.gpt_oss_20b())
    kept = [kept_row(m, length, options) for m in layouts for length in lengths]
    return [
        Table("kept: host memory of one prompt, MiB", kept),
        Table("resume point: host memory of one more", [point_row(m) for m in layouts]),
        Table("in use: payload and slabs, random conversations", in_use_rows(options)),
        Table("resident: payload and pages of the process", resident_rows(options)),
    ]


def kept_row(model: Model, num_tokens: int, options: Options) -> Row:
    """One prompt in kvcellar and in vLLM's connectors."""
    rig = _kept(model, num_tokens)
    counters = rig.offloader.counters
    dead = None
    if model.compressor_ratios:
        without = _kept(model.without_dead_state, num_tokens)
        dead = without.offloader.slabs.used_bytes / MIB
    simple, offloading = None, None
    if options.has_vllm:
        simple, offloading = (size / MIB for size in _native_bytes(model, num_tokens))
    return {
        "model": model.name,
        "prompt_tokens": num_tokens,
        "kvcellar_mib": rig.offloader.slabs.used_bytes / MIB,
        "without_dead_state_mib": dead,
        "chunks": counters.stored_chunks,
        "checkpoints": counters.stored_checkpoints,
        "simple_mib": simple,
        "offloading_mib": offloading,
        "every_block_mib": _rows_mib(model, num_tokens, _every_block),
        "aligned_tails_mib": _rows_mib(model, num_tokens, _aligned_tails),
        "end_only_mib": _rows_mib(model, num_tokens, _end_only),
    }


def _kept(model: Model, num_tokens: int) -> PlannerRig:
    rig = PlannerRig(model, 2**38)
    rig.store("prompt", rig.hashes(num_tokens, 1), num_tokens, STEP_TOKENS)
    return rig


def _native_bytes(model: Model, num_tokens: int) -> tuple[int, int]:
    import vllm_rig
    from connectors import OffloadingSide, SimpleSide, prefill

    groups = model.layout.groups
    num_blocks = 2 * sum(num_tokens // g.tokens_per_block for g in groups) + 4096
    found = []
    for side_type in (SimpleSide, OffloadingSide):
        side = side_type(model, num_blocks, num_blocks * model.row_bytes)
        prefill(side, vllm_rig.make_request(model, num_tokens), STEP_TOKENS)
        found.append(side.held_bytes())
    return found[0], found[1]


def _rows_mib(model: Model, num_tokens: int, count: CountBlocks) -> float:
    alignment = model.layout.alignment_tokens
    num_blocks = sum(count(g, num_tokens, alignment) for g in model.layout.groups)
    return num_blocks * model.row_bytes / MIB


def _every_block(group: GroupLayout, num_tokens: int, alignment: int) -> int:
    del alignment
    return num_tokens // group.tokens_per_block


def _end_only(group: GroupLayout, num_tokens: int, alignment: int) -> int:
    """All blocks of full attention; of a window the ceil((w - 1) / block) last."""
    del alignment
    every = num_tokens // group.tokens_per_block
    if group.span_tokens is None:
        return every
    return min(every, -(-(group.span_tokens - 1) // group.tokens_per_block))


def _aligned_tails(group: GroupLayout, num_tokens: int, alignment: int) -> int:
    """The blocks of ``_end_only`` at each aligned boundary, each block once."""
    in_segment = alignment // group.tokens_per_block
    tail = min(_end_only(group, num_tokens, alignment), in_segment)
    return num_tokens // alignment * tail


def point_row(model: Model) -> Row:
    """One checkpoint: payload as kvcellar keeps it, rows as vLLM's connectors do."""
    rules = HybridRules(model.layout)
    needed = rules.checkpoint_blocks(STEP_TOKENS)
    num_blocks = sum(len(blocks) for _, blocks in needed)
    payload = _point_mib(model) * MIB
    budget = DEEPSEEK_BUDGET_MIB if model.is_mla else None
    return {
        "model": model.name,
        "kvcellar_mib": payload / MIB,
        "without_dead_state_mib": _point_mib(model.without_dead_state)
        if model.compressor_ratios
        else None,
        "budget_mib": budget,
        "within": None if budget is None else payload / MIB <= budget,
        "native_rows_mib": num_blocks * model.row_bytes / MIB,
        "blocks": num_blocks,
    }


def _point_mib(model: Model) -> float:
    needed = HybridRules(model.layout).checkpoint_blocks(STEP_TOKENS)
    return sum(model.layout.cell_bytes(p) * len(b) for p, b in needed) / MIB


def in_use_rows(options: Options) -> list[Row]:
    """How payload and slabs stand while the arena fills and then churns."""
    host_bytes, workload = 2**35, Workload(100, 1500, 65_536, (500, 6000))
    if options.is_quick:
        host_bytes, workload = 2**34, Workload(8, 30, 8192, (500, 2000))
    rows: list[Row] = []
    for model in (models.deepseek_v4_flash(), models.gemma3_27b()):
        run = Conversations(model, host_bytes, workload)
        marks = {0.25: "a quarter full", 0.5: "half full", 0.75: "three quarters full"}
        worst = 0.0
        for _ in run.turns():
            worst = max(worst, _excess_share(run))
            share = run.rig.offloader.slabs.claimed_bytes / host_bytes
            passed = [m for m in marks if share >= m]
            cases = [f"{model.name}, {marks.pop(mark)}" for mark in passed]
            rows += [_in_use(run, case, worst) for case in cases]
        case = f"{model.name}, after {workload.num_turns} turns"
        rows.append(_in_use(run, case, worst))
    return rows


def _excess_share(run: Conversations) -> float:
    """Slab bytes that are not payload, as a share of what may be: 1 % and the slabs."""
    slabs = run.rig.offloader.slabs
    allowed = len(slabs.geometry.classes) * slabs.geometry.slab_bytes
    allowed += slabs.used_bytes // 100
    return (slabs.claimed_bytes - slabs.used_bytes) / allowed


def _in_use(run: Conversations, case: str, worst: float) -> Row:
    slabs, counters = run.rig.offloader.slabs, run.rig.offloader.index.counters
    excess = slabs.claimed_bytes - slabs.used_bytes
    return {
        "case": case,
        "payload_mib": slabs.used_bytes / MIB,
        "slabs_mib": slabs.claimed_bytes / MIB,
        "excess_percent": 100 * excess / max(slabs.claimed_bytes, 1),
        "slab_mib": slabs.geometry.slab_bytes / MIB,
        "size_classes": len(slabs.geometry.classes),
        "excess_of_limit": _excess_share(run),
        "worst_so_far": worst,
        "within": worst <= 1,
        "evicted_chunks": counters.evicted_chunks,
        "evicted_checkpoints": counters.evicted_checkpoints,
    }


def resident_rows(options: Options) -> list[Row]:
    """Real stores into a real arena."""
    model, host_bytes, num_tokens = models.deepseek_v4_flash(), 2**30, 16_384
    if options.is_quick:
        model, host_bytes = models.full_and_three_windows(), 2**24
        num_tokens = 4096
    arena = Arena(model, host_bytes)
    rows = []
    try:
        prompts = arena.store_prompts(num_tokens)
        for share in (0.25, 0.5, 0.75, 0.95):
            while arena.payload_bytes < share * host_bytes and _can_grow(arena):
                next(prompts)
            rows.append(_resident(arena, f"{model.name}, {share:.0%} of the arena"))
    finally:
        arena.close()
    return rows


def _can_grow(arena: Arena) -> bool:
    return not arena.rig.offloader.index.counters.evicted_chunks


def _resident(arena: Arena, case: str) -> Row:
    geometry = arena.rig.offloader.slabs.geometry
    limit = len(geometry.classes) * geometry.slab_bytes + arena.payload_bytes // 100
    excess = arena.resident_bytes - arena.payload_bytes
    return {
        "case": case,
        "payload_mib": arena.payload_bytes / MIB,
        "resident_mib": arena.resident_bytes / MIB,
        "excess_percent": 100 * excess / arena.payload_bytes,
        "excess_of_limit": excess / limit,
        "within": excess <= limit,
    }


if __name__ == "__main__":
    run_script(__doc__, measure)
