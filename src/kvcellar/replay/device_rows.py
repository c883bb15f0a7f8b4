"""How many blocks of the engine's pool things take."""

from dataclasses import dataclass

from kvcellar.attention.for_group import rule_for
from kvcellar.layout.groups import CacheLayout, GroupLayout

_MOST_TAILS = 2  # of a request: where it leaves a known path, and at its end


@dataclass(frozen=True, slots=True)
class DeviceRows:
    """Rows of the pool; every block of every group takes one.

    Attributes:
        unit: tokens of a chunk in the replay.
        chunk: of one unit of tokens, all append-only groups together.
        tail: of the windows and states at one boundary.
        window: of a running request's windows and states, besides the tails that stay.
        step: of the windows' blocks that one full step fills and gives back. Prefills
            run one after another, so the pool lacks these rows once and for all.
    """

    unit: int
    chunk: int
    tail: int
    window: int
    step: int

    @classmethod
    def of(cls, layout: CacheLayout, unit: int, step_tokens: int) -> "DeviceRows":
        """Count for the model's own blocks.

        Args:
            layout: the model's, not the coarse one.
            unit: tokens of a chunk in the replay.
            step_tokens: most tokens computed in a step.
        """
        groups = layout.groups
        chunk = sum(unit // groups[p].tokens_per_block for p in layout.chunk_positions)
        others = [groups[p] for p in layout.checkpoint_positions]
        tail = sum(_most_blocks(group, unit) for group in others)
        # A window moves through one block more than it covers; the last tail that is
        # kept is made of the blocks that the window stands on at that time.
        window = len(others)
        step = sum(group.blocks_filled(step_tokens) for group in others)
        return cls(unit, chunk, tail, window, step)

    def usable(self, num_rows: int) -> int:
        """Rows of a pool of so many that can hold something beyond a step."""
        return max(num_rows - self.step, 0)

    def needed(self, num_tokens: int, num_tails: int) -> int:
        """Rows for so many tokens that are not there, and the tails kept of them."""
        num_chunks = -(-num_tokens // self.unit)
        return num_chunks * self.chunk + self.window + num_tails * self.tail

    def fits(self, num_tokens: int, num_usable: int) -> bool:
        """Whether a request of so many tokens ever fits into so many usable rows."""
        return self.needed(num_tokens, _MOST_TAILS) <= num_usable


def _most_blocks(group: GroupLayout, unit: int) -> int:
    """Blocks that resuming at some multiple of ``unit`` reads, at most."""
    rule, span = rule_for(group), group.span_tokens or 1
    last = 2 * (span // unit + 2)  # beyond the span, what is needed repeats
    boundaries = range(unit, unit * (last + 1), unit)
    return max(len(rule.needed(boundary)) for boundary in boundaries)
