"""Whether answers after a return equal those of a device prefix hit, bit for bit.

The control is a device hit of the same length, not the cold run: a cold prefill has
other batch shapes, and bf16 rounds differently there.
"""

from dataclasses import dataclass

from kvcellar.demo.play import Answer, Played
from kvcellar.demo.script import CONTROL_OF, CONTROL_SALT


@dataclass(frozen=True, slots=True)
class Exactness:
    """How many answers were compared with their control, and how many values differ.

    Attributes:
        compared_requests: those that started from as many cached tokens as the control.
        uncompared_requests: those that started from another number, so that they may
            differ by rounding alone.
        compared_tokens: tokens in the compared answers; as many logprobs.
    """

    compared_requests: int
    uncompared_requests: int
    compared_tokens: int
    differing_tokens: int
    differing_logprobs: int


def compare_returns(played: Played) -> Exactness:
    """Compare every returning answer of a run with its control in the same run."""
    compared = uncompared = tokens = differing_tokens = differing_logprobs = 0
    for returned, control in _pairs(played):
        again, before = returned.completion, control.completion
        if again.num_cached_tokens != before.num_cached_tokens:
            uncompared += 1
            continue
        compared += 1
        tokens += len(before.tokens)
        differing_tokens += _count_differing(again.tokens, before.tokens)
        differing_logprobs += _count_differing(again.logprobs, before.logprobs)
    return Exactness(compared, uncompared, tokens, differing_tokens, differing_logprobs)


def _pairs(played: Played) -> list[tuple[Answer, Answer]]:
    controls = {
        (answer.question.kind, answer.question.conversation): answer
        for answer in played.answers
        if answer.question.salt == CONTROL_SALT
    }
    return [
        (returned, controls[control_kind, returned.question.conversation])
        for kind, control_kind in CONTROL_OF.items()
        for returned in played.of_kind(kind)
    ]


def _count_differing(
    ours: tuple[int, ...] | tuple[float, ...],
    theirs: tuple[int, ...] | tuple[float, ...],
) -> int:
    return sum(one != other for one, other in zip(ours, theirs, strict=True))
