"""The named sets of rules: what a user can choose, from few checkpoints to many.

    prompt-end   the end of the prompt
    turn-end     and boundaries that decoding crosses
    junctions    and where a prompt leaves a known path
    fixed        and some at equal distances inside a long prefill
    geometric    and, instead of these, some that halve the way to its end; the default

What the engine itself keeps and hands over is stored under all of them, since recurrent
state can be had in no other way.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kvcellar.core.placements.fixed import fixed_interval
from kvcellar.core.placements.geometric import geometric

Spacing = Callable[[int, int, int, int], tuple[int, ...]]
"""(first, last, chunk_tokens, most) -> so many boundaries between, or fewer."""


def no_spacing(first: int, last: int, chunk_tokens: int, most: int) -> tuple[int, ...]:
    """No boundary inside a prefill."""
    del first, last, chunk_tokens, most
    return ()


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Rules besides the end of the prompt.

    Attributes:
        has_turn_ends: whether boundaries that decoding crosses are kept.
        has_junctions: whether a prompt keeps the place where it leaves a known path.
        spacing: which boundaries inside a prefill a byte budget is spent on.
    """

    has_turn_ends: bool = True
    has_junctions: bool = True
    spacing: Spacing = no_spacing


RULE_SETS = {
    "prompt-end": RuleSet(has_turn_ends=False, has_junctions=False),
    "turn-end": RuleSet(has_junctions=False),
    "junctions": RuleSet(),
    "fixed": RuleSet(spacing=fixed_interval),
    "geometric": RuleSet(spacing=geometric),
}
"""By the names in ``config.PLACEMENTS``."""
