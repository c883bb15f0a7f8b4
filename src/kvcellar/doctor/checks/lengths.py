"""Chunks and blocks against the lengths of prompts."""

from collections.abc import Iterator

from kvcellar.doctor.checks.check import Check
from kvcellar.doctor.facts import Facts
from kvcellar.doctor.finding import Finding, error, note, ok, warning
from kvcellar.doctor.sizing import Sizing

_COARSE_TOKENS = 256


def find_granularity(facts: Facts) -> Iterator[Finding]:
    """Where prompts of this model can be resumed, and which group decides that."""
    sizing, configuration = facts.sizing, facts.configuration
    if sizing is None or configuration is None:
        return
    chunk = sizing.smallest_chunk_tokens
    # A drafter's entries depend on the next token, so a hit is given back by a chunk.
    unit = 2 * chunk if configuration.has_drafter else chunk
    words = (
        f"prompts resume at multiples of {chunk} tokens, so the shortest that can hit "
        f"has {unit + 1}{', with a drafter' if unit > chunk else ''}"
    )
    if unit >= sizing.max_tokens:
        yield error(
            words,
            f"no request is longer than {sizing.max_tokens} tokens, so nothing can "
            f"ever be served; {_culprit(sizing)}",
            "raise --max-model-len, or serve this model without kvcellar",
        )
    elif configuration.prompt_tokens and unit >= configuration.prompt_tokens:
        yield warning(
            words,
            f"prompts of {configuration.prompt_tokens} tokens never reach that; "
            f"{_culprit(sizing)}",
            "expect hits for longer prompts only",
        )
    elif chunk >= _COARSE_TOKENS:
        yield note(
            words,
            f"shorter shared beginnings are computed again; {_culprit(sizing)}",
            "put what prompts share first, and let it be longer than that",
        )
    else:
        yield ok(words)


def _culprit(sizing: Sizing) -> str:
    longest = max(sizing.model.groups_all, key=lambda group: group.tokens_per_block)
    return (
        f"group {longest.group_id} ({longest.form.value}) has blocks of "
        f"{longest.tokens_per_block}"
    )


def find_chunk(facts: Facts) -> Iterator[Finding]:
    """A chunk that the settings make longer than prompts are."""
    sizing, configuration = facts.sizing, facts.configuration
    if sizing is None or configuration is None or configuration.settings is None:
        return
    if sizing.problem:
        return
    chunk, unit = sizing.layout.chunk_tokens, sizing.smallest_chunk_tokens
    words = f"a chunk is {chunk // unit} x {unit} = {chunk} tokens"
    if chunk == unit:
        yield ok(f"{words}, the smallest for this model")
    elif chunk >= sizing.max_tokens:
        yield error(
            words,
            f"no request is longer than {sizing.max_tokens} tokens, so nothing can "
            "ever be served",
            "leave chunk_tokens and blocks_per_chunk out",
        )
    elif configuration.prompt_tokens and chunk >= configuration.prompt_tokens:
        yield warning(
            words,
            f"prompts of {configuration.prompt_tokens} tokens are shorter and are "
            "neither stored nor served",
            f"leave it out, or use a multiple of {unit} below that",
        )
    else:
        yield note(
            words,
            "longer chunks mean coarser hits: up to a chunk less of each prompt",
            f"leave it out for chunks of {unit}",
        )


CHECKS = (
    Check("granularity", "where can a prompt be resumed?", find_granularity),
    Check("chunk", "is a chunk shorter than prompts?", find_chunk),
)
