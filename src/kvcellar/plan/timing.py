"""Load or recompute: how long each takes, and from which length on loading wins.

recompute   |step|step|step|            every token of the prompt
load        |copy|step|                 chunks and a checkpoint, then the rest
"""

from dataclasses import dataclass

from kvcellar.attention.hybrid import HybridRules
from kvcellar.plan.units import Units
from kvcellar.replay.costs import CostModel
from kvcellar.replay.presets_choice import ChosenCosts


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of one typical prompt, and of its parts.

    Attributes:
        prompt_tokens: its length.
        resumed_tokens: what is loaded of it; 0 if it is too short for a hit.
        recompute_seconds: to its first token if all of it is computed.
        load_seconds: of the copy alone, on the slowest rank.
        resumed_seconds: to its first token if it is loaded.
        chunk_recompute_seconds: computing one chunk more.
        chunk_load_seconds: loading one chunk more.
        checkpoint_load_seconds: loading the largest checkpoint.
        break_even_tokens: from this many on, loading is never slower; None if it
            always is.
        costs: the speeds behind all this.
        sources: of each speed: ``"preset"``, ``"file"`` or ``"option"``.
        preset: words for the preset, where it is used.
    """

    prompt_tokens: int
    resumed_tokens: int
    recompute_seconds: float
    load_seconds: float
    resumed_seconds: float
    chunk_recompute_seconds: float
    chunk_load_seconds: float
    checkpoint_load_seconds: float
    break_even_tokens: int | None
    costs: CostModel
    sources: dict[str, str]
    preset: str


def plan_timing(
    stages: tuple[HybridRules, ...],
    units: Units,
    chosen: ChosenCosts,
    prompt_tokens: int,
    step_tokens: int,
) -> Timing:
    """Times of one prompt, alone on the server.

    Args:
        stages: the rules of one rank of each pipeline stage, which load side by side.
        step_tokens: most prompt tokens of one step.
    """
    costs, chunk = chosen.costs, units.chunk_tokens
    resumed = 0
    if prompt_tokens >= units.shortest_prompt_tokens:
        margin = units.shortest_prompt_tokens - 1 - chunk
        resumed = (prompt_tokens - margin - 1) // chunk * chunk
    load = max(costs.load_seconds(bytes_to_resume(rules, resumed)) for rules in stages)
    chunk_load = max(costs.load_seconds(rules.chunk_bytes) for rules in stages)
    fixed = max(costs.load_seconds(rules.largest_checkpoint[0]) for rules in stages)
    chunk_recompute = chunk / costs.prefill_tokens_per_second
    return Timing(
        prompt_tokens=prompt_tokens,
        resumed_tokens=resumed,
        recompute_seconds=prefill_seconds(costs, prompt_tokens, step_tokens),
        load_seconds=load,
        resumed_seconds=load
        + prefill_seconds(costs, prompt_tokens - resumed, step_tokens),
        chunk_recompute_seconds=chunk_recompute,
        chunk_load_seconds=chunk_load,
        checkpoint_load_seconds=fixed,
        break_even_tokens=_break_even(chunk, chunk_recompute, chunk_load, fixed),
        costs=costs,
        sources=dict(chosen.sources),
        preset=chosen.preset,
    )


def prefill_seconds(costs: CostModel, num_tokens: int, step_tokens: int) -> float:
    """Computing ``num_tokens`` in steps, the last one shorter."""
    num_full, rest = divmod(num_tokens, step_tokens)
    seconds = num_full * costs.prefill_seconds(step_tokens)
    return seconds + (costs.prefill_seconds(rest) if rest else 0.0)


def bytes_to_resume(rules: HybridRules, boundary: int) -> int:
    """What one rank loads to resume at ``boundary``; 0 at the start."""
    if boundary == 0:
        return 0
    checkpoint = sum(
        len(blocks) * rules.layout.cell_bytes(position)
        for position, blocks in rules.checkpoint_blocks(boundary)
    )
    return boundary // rules.chunk_tokens * rules.chunk_bytes + checkpoint


def _break_even(
    chunk_tokens: int, recompute: float, load: float, fixed: float
) -> int | None:
    """Tokens, in whole chunks, at which what chunks save pays for the checkpoint.

    Steps that are saved are left out, and the largest checkpoint counts, so the real
    length is not above this.
    """
    if load >= recompute:
        return None
    return chunk_tokens * max(-int(-fixed // (recompute - load)), 1)
