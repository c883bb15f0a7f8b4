"""The smaller sections of a plan, as sentences and rows."""

from collections.abc import Callable, Iterator

from kvcellar.plan.figures import Figures
from kvcellar.plan.groups import GroupFacts
from kvcellar.plan.modes import ModeReason
from kvcellar.plan.report.table import table
from kvcellar.plan.timing import Timing
from kvcellar.plan.words import count, duration, size

_WIDE = 96  # characters of the widest row of groups


def hits(figures: Figures) -> Iterator[str]:
    """Where prompts can be resumed, and what that costs."""
    units, stage = figures.units, figures.host.fullest_stage
    yield (
        f"multiples of {units.chunk_tokens:,} tokens, set by {units.set_by}; the "
        f"shortest prompt that can ever hit has {units.shortest_prompt_tokens:,} tokens"
    )
    checkpoint = (
        f", and {size(stage.checkpoint_bytes)} for each point to resume at, however "
        "long the prompt"
        if stage.checkpoint_bytes
        else ""
    )
    yield (
        f"{size(stage.bytes_per_token)} per token on each rank "
        f"({size(stage.chunk_bytes)} per chunk){checkpoint}"
    )
    yield (
        f"the engine hashes blocks of {units.hash_block_tokens:,} tokens, and its own "
        f"hits on the device are multiples of {units.alignment_tokens:,}"
    )


def times(timing: Timing | None) -> Iterator[str]:
    """How long loading and computing take, and which wins from where on."""
    if timing is None:
        return
    if timing.resumed_tokens:
        rest = timing.prompt_tokens - timing.resumed_tokens
        yield (
            f"a prompt of {timing.prompt_tokens:,} tokens: "
            f"{duration(timing.recompute_seconds)} to compute; or "
            f"{duration(timing.load_seconds)} to load {timing.resumed_tokens:,} and "
            f"{duration(timing.resumed_seconds - timing.load_seconds)} to compute the "
            f"other {rest:,}"
        )
    fixed = (
        f", and once {duration(timing.checkpoint_load_seconds)} for the checkpoint"
        if timing.checkpoint_load_seconds
        else ""
    )
    yield (
        f"one chunk: {duration(timing.chunk_recompute_seconds)} to compute, "
        f"{duration(timing.chunk_load_seconds)} to load{fixed}"
    )
    if timing.break_even_tokens is None:
        yield "loading never pays at these speeds"
    else:
        yield f"break-even: loading pays from {timing.break_even_tokens:,} tokens on"
    costs = timing.costs
    yield (
        f"at {costs.prefill_tokens_per_second:,.0f} prompt tokens/s, "
        f"{costs.load_bytes_per_second / 1e9:.3g} GB/s to each GPU and "
        f"{duration(costs.step_seconds)} per step"
    )


def modes(figures: Figures) -> Iterator[str]:
    """Which mode suits and why, and what both would do."""
    advice = figures.advice
    yield _WHY_MODE[advice.reason](figures)
    if figures.device is not None:
        reach = "at least " if advice.is_close else ""
        yield (
            f"eager: {reach}{advice.eager_prompts:,} different prompts in reach, since "
            "host memory also has what the device holds; each chunk is stored when it "
            "is complete"
        )
        yield (
            f"lazy: up to {advice.lazy_prompts:,} in reach, device and host together; "
            "chunks are stored when the device is about to lose them"
        )
    if advice.is_close:
        yield (
            "lazy may find a little more or less: kvcellar replay --mode eager,lazy "
            "tells for a trace of your own"
        )
    if advice.lazy_above_device_bytes is not None:
        yield (
            "lazy suits better if each GPU has more than "
            f"{size(advice.lazy_above_device_bytes)} of KV cache: then host memory "
            "holds less than twice what the device does, and lazy stores only what the "
            "device is about to lose"
        )


def _why_unknown(_: Figures) -> str:
    return (
        "eager, as long as the device's memory is unknown: each chunk is stored "
        "when it is complete, so host memory also has what the device holds"
    )


def _why_coverage(figures: Figures) -> str:
    advice = figures.advice
    rule = "less than" if advice.mode == "lazy" else "at least"
    return f"{advice.mode} suits: {_ratio(figures)}, {rule} twice"


def _why_selective(figures: Figures) -> str:
    why = f"{figures.advice.eviction_policy} takes in only what is worth its room"
    if figures.device is None:
        return f"eager suits, whatever the device holds: {why}"
    return f"eager suits: {why}; {_ratio(figures)}"


def _why_crowded(figures: Figures) -> str:
    return (
        f"lazy suits: {count(figures.num_at_once or 0, 'prompt')} are to run at once "
        f"and host memory holds {figures.host.num_prompts_in_total:,}; in eager mode "
        "what runs keeps what it has stored, in lazy mode it is stored when it leaves "
        "the device"
    )


_WHY_MODE: dict[ModeReason, Callable[[Figures], str]] = {
    ModeReason.UNKNOWN: _why_unknown,
    ModeReason.SMALL: _why_coverage,
    ModeReason.LARGE: _why_coverage,
    ModeReason.SELECTIVE: _why_selective,
    ModeReason.CROWDED: _why_crowded,
}


def _ratio(figures: Figures) -> str:
    host, device = figures.host, figures.device
    return (
        f"host memory holds {count(host.num_prompts, 'prompt')} and the device "
        f"{0 if device is None else device.num_prompts:,}, that is "
        f"{figures.advice.coverage:.2f} times as much"
    )


def groups(figures: Figures, width: int) -> Iterator[str]:
    """One row per group; a narrow terminal gets what each keeps, and no padding."""
    heading = ("", "layers", "span", "block", "bytes", "on device", "keeps")
    is_wide = width >= _WIDE
    rows = [heading, *(_group(group, with_blocks=is_wide) for group in figures.groups)]
    if not is_wide:
        rows = [(*row[:5], row[6]) for row in rows]
    yield from table(rows, left=(0, len(rows[0]) - 1))


def _group(group: GroupFacts, *, with_blocks: bool) -> tuple[str, ...]:
    return (
        group.name,
        f"{group.num_layers}",
        "-" if group.span_tokens is None else f"{group.span_tokens:,}",
        f"{group.tokens_per_block:,}",
        size(group.block_bytes),
        size(group.device_block_bytes),
        _kept(group, with_blocks=with_blocks),
    )


def _kept(group: GroupFacts, *, with_blocks: bool) -> str:
    if not group.is_kept:
        return "nothing: it cannot be found again"
    if group.chunk_bytes:
        return f"{size(group.chunk_bytes)}/chunk"
    if group.checkpoint_blocks:
        blocks = f" ({count(group.checkpoint_blocks, 'block')})" if with_blocks else ""
        return f"{size(group.checkpoint_bytes)}/checkpoint{blocks}"
    return "nothing: no resume reads it"


def log(figures: Figures) -> Iterator[str]:
    """The lines to look for once the server runs."""
    if figures.device is not None:
        yield f"GPU {figures.device.log_line}"
    yield from (f"kvcellar: {line}" for line in figures.host.log_lines)
