"""Full attention, MLA and compressed MLA: every earlier token is read."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FullRule:
    """Needs all blocks below the boundary.

    Source: FullAttentionManager.find_longest_cache_hit, vLLM 0.32.
    """

    tokens_per_block: int

    @property
    def period_tokens(self) -> int:
        """One block."""
        return self.tokens_per_block

    def needed(self, boundary: int) -> range:
        """Blocks that hold tokens ``[0, boundary)``."""
        return range(-(-boundary // self.tokens_per_block))
