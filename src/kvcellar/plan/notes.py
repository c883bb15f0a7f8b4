"""What a reader should know before believing the figures, in sentences."""

from collections.abc import Iterator

from kvcellar.config import SELECTIVE_POLICIES
from kvcellar.layout.models import ModelLayout
from kvcellar.layout.models.options import DEFAULT_BLOCK_TOKENS
from kvcellar.plan.figures import Figures
from kvcellar.plan.timing import Timing
from kvcellar.plan.words import count, size


def notes_of(figures: Figures) -> tuple[str, ...]:
    """All that apply, the most important first."""
    return (
        *_host_below_device(figures),
        *_identical_ranks(figures),
        *_raised_blocks(figures.model),
        *_slabs(figures),
        *_states(figures.model),
        *_speeds(figures.timing),
        "Answers are kept as well and take room like prompts (store_decoded).",
        "Host memory does not lengthen the context: what one request computes must fit "
        "the device. The device cache is as large with kvcellar as without.",
        "Blocks are those of GPUs of compute capability 9, without speculative "
        "decoding; if the engine logs another block size, give --block-tokens.",
    )


def _host_below_device(figures: Figures) -> Iterator[str]:
    """Where the order of eviction makes the best of it; else it is a finding."""
    host, device, advice = figures.host, figures.device, figures.advice
    if device is None or advice.eviction_policy not in SELECTIVE_POLICIES:
        return
    if 0 < host.num_prompts < device.num_prompts:
        yield (
            f"Host memory holds {count(host.num_prompts, 'prompt')} of "
            f"{host.prompt_tokens:,} tokens and the device {device.num_prompts:,}, so "
            "it adds fewer than the device holds by itself; more host memory is what "
            "helps, and kvcellar replay says how much."
        )


def _identical_ranks(figures: Figures) -> Iterator[str]:
    num, sharing = figures.model.num_identical_ranks, figures.host.num_sharing
    held = figures.host.asked_bytes_per_server
    if sharing > 1:
        yield (
            f"The {sharing} ranks that hold the same bytes keep one copy of them: "
            f"{size(held)} hold what {size(held * sharing)} would in copies."
        )
    elif num > 1:
        yield (
            f"The {num} ranks of a stage hold the same bytes and each keeps its own "
            f"copy: {size(held)} hold what {size(held // num)} would once."
        )


def _raised_blocks(model: ModelLayout) -> Iterator[str]:
    """Recurrent models: the engine makes blocks as long as a state is large."""
    layout, asked = model.layout, model.options.block_tokens or DEFAULT_BLOCK_TOKENS
    states = [layout.groups[p].tokens_per_block for p in layout.overwritten_positions]
    if states and states[0] > asked:
        yield (
            f"The engine raises blocks from {asked} to {states[0]} "
            "tokens, so that a page of attention is as large as one recurrent state."
        )


def _slabs(figures: Figures) -> Iterator[str]:
    host = figures.host
    used = host.arena_bytes_per_rank
    asked = host.asked_bytes_per_rank * host.num_sharing
    whose = "each arena's" if host.num_sharing > 1 else "each rank's"
    if not host.are_ranks_even:
        used, asked = host.arena_bytes_per_server, host.asked_bytes_per_server
        whose = "all ranks'"
    if size(used) != size(asked):
        yield (
            f"Memory is cut in equal slabs: {size(used)} of {whose} {size(asked)} are "
            "used; nothing is rounded up."
        )


def _states(model: ModelLayout) -> Iterator[str]:
    if model.layout.overwritten_positions:
        yield (
            "Recurrent state is kept where the engine hands it over: at the end of a "
            "prompt and of shared prefixes, not at every multiple."
        )


def _speeds(timing: Timing | None) -> Iterator[str]:
    if timing is None:
        yield (
            "Load and recompute times are left out: give --costs FILE, or "
            "--active-parameters for a model that is not in the catalogue."
        )
    elif "preset" in timing.sources.values():
        yield (
            f"Speeds are assumed from published figures ({timing.preset}), not "
            "measured; give --gpu, or this machine's with --costs FILE."
        )
