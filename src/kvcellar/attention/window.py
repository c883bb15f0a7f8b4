"""Sliding-window attention and sliding-window MLA."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WindowRule:
    """Token b sees itself and the ``window - 1`` tokens before it.

    Source: SlidingWindowManager, vLLM 0.32: ceil((w - 1) / block) blocks.
    """

    tokens_per_block: int
    window: int

    @property
    def period_tokens(self) -> int:
        """One block."""
        return self.tokens_per_block

    def needed(self, boundary: int) -> range:
        """Blocks that hold tokens ``[boundary - (window - 1), boundary)``."""
        first = max(boundary - (self.window - 1), 0)
        if first >= boundary:
            return range(0)
        bs = self.tokens_per_block
        return range(first // bs, -(-boundary // bs))
