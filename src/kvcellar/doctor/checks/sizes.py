"""Host memory against the model and the device: does it hold enough to matter?"""

from collections.abc import Iterator

from kvcellar.config import SELECTIVE_POLICIES
from kvcellar.doctor.checks.check import Check
from kvcellar.doctor.facts import Facts
from kvcellar.doctor.finding import Finding, error, note, ok, warning
from kvcellar.doctor.sizing import Sizing
from kvcellar.layout.units import format_bytes

_ROUNDING_NOTED = 0.02
_ROUNDING_WARNED = 0.1
_TWICE = 2  # Source: docs/design.md, section 6: below this, lazy, unless selective


def find_figures(facts: Facts) -> Iterator[Finding]:
    """Whether the model's cache can be worked out, and host memory be cut for it."""
    if facts.sizing_problem:
        yield note(
            "no figures for this model",
            facts.sizing_problem,
            "pass the folder of a model whose family is known, to have sizes checked",
        )
    if facts.sizing is None:
        return
    if facts.sizing.problem:
        what, _, remedy = facts.sizing.problem.partition("; ")
        yield error(
            what,
            "the connector refuses it when it starts",
            remedy or "give more host_memory",
        )
        return
    figures = facts.sizing.figures
    if figures is None:
        return
    if figures.num_prompts == 0:
        yield warning(
            f"host memory does not hold one prompt of {figures.prompt_tokens} tokens",
            f"it takes {format_bytes(sum(facts.sizing.prompt_bytes))} on each rank, of "
            f"{format_bytes(figures.arena_bytes)}",
            "give more host_memory",
        )
        return
    yield ok(
        f"host memory holds {figures.num_prompts} prompts of {figures.prompt_tokens} "
        "tokens"
    )


def find_device(facts: Facts) -> Iterator[Finding]:
    """Host memory that holds little beside the device, or only mirrors it."""
    sizing, configuration = facts.sizing, facts.configuration
    if sizing is None or sizing.figures is None or configuration is None:
        return
    on_device, in_host = sizing.num_device_prompts, sizing.figures.num_prompts
    settings = configuration.settings
    if on_device is None or settings is None:
        return
    words = (
        f"host memory holds {in_host} prompts of {sizing.prompt_tokens} tokens, the "
        f"device {on_device}"
    )
    twice = _twice_the_device(sizing, configuration.num_ranks)
    if in_host >= _TWICE * on_device:
        yield ok(words)
    elif settings.eviction_policy in SELECTIVE_POLICIES:
        yield _small_and_selective(words, in_host, on_device, twice)
    else:
        is_lazy = settings.mode == "lazy"
        yield _small(words, twice, is_lazy=is_lazy, is_larger=in_host > on_device)


def _small_and_selective(
    words: str, in_host: int, on_device: int, twice: str
) -> Finding:
    """The order of eviction makes the best of it, in either mode."""
    if in_host > on_device:
        return ok(f"{words}; it takes in only what is worth its room")
    return note(
        words,
        f"it adds at most {in_host} prompts to those on the device: more host memory "
        "is what helps",
        f"give {twice}, or ask kvcellar replay",
    )


def _small(words: str, twice: str, *, is_lazy: bool, is_larger: bool) -> Finding:
    """Everything is let in."""
    if is_lazy and is_larger:
        return ok(f"{words}; lazy mode does not store them twice")
    if is_larger:
        return note(
            words,
            "eager mode stores what the device still holds, so little is gained over "
            "the device alone",
            f"use mode lazy, or {twice}",
        )
    return warning(
        words,
        "what is stored is mostly still on the device, so host memory adds "
        f"{'little' if is_lazy else 'nothing'}",
        f"use mode lazy and {twice}",
    )


def _twice_the_device(sizing: Sizing, num_ranks: int) -> str:
    prompts = _TWICE * (sizing.num_device_prompts or 0)
    num_bytes = prompts * sum(sizing.prompt_bytes) * num_ranks // sizing.num_sharing
    return f"host_memory of {format_bytes(num_bytes)} or more, twice the device"


def find_rounding(facts: Facts) -> Iterator[Finding]:
    """Bytes that are asked for and not mapped, or the other way round."""
    sizing = facts.sizing
    if sizing is None or sizing.figures is None or sizing.host_bytes is None:
        return
    mapped, asked = sizing.figures.arena_bytes, sizing.host_bytes
    unused = (asked - mapped) / asked
    whose = f"{sizing.num_sharing} ranks" if sizing.num_sharing > 1 else "rank"
    words = (
        f"{format_bytes(asked)} per {whose} asked for, {format_bytes(mapped)} mapped"
    )
    if unused <= _ROUNDING_NOTED:
        yield ok(f"{words}: nothing is rounded up")
        return
    level = warning if unused > _ROUNDING_WARNED else note
    yield level(
        words,
        f"{unused:.0%} is left unused, a rest too small for this model's cells; no "
        "more than asked is ever taken",
        "give more host_memory: the loss shrinks with size",
    )


def find_pools(facts: Facts) -> Iterator[Finding]:
    """Which of the two costs of a prompt decides how many fit."""
    sizing = facts.sizing
    if sizing is None:
        return
    chunks, checkpoint = sizing.prompt_bytes
    words = (
        f"a prompt of {sizing.prompt_tokens} tokens takes {format_bytes(chunks)} of "
        f"chunks and {format_bytes(checkpoint)} for its checkpoint"
    )
    if checkpoint <= chunks:
        yield ok(f"{words}; both draw from one pool")
        return
    yield note(
        words,
        "checkpoints bind: how many resume points are kept decides what fits, more "
        "than tokens do; both draw from one pool, so nothing has to be split",
        "keep spaced_checkpoint_share low for short prompts",
    )


CHECKS = (
    Check("figures", "does host memory hold prompts of this model?", find_figures),
    Check("device", "is host memory larger than the device's cache?", find_device),
    Check("rounding", "is as much taken as was asked for?", find_rounding),
    Check("pools", "do chunks or checkpoints decide what fits?", find_pools),
)
