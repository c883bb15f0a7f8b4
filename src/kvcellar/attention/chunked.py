"""Chunked local attention: a token sees only its own local chunk."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChunkedRule:
    """Local chunks start at absolute multiples of ``local_tokens``.

    Source: ChunkedLocalAttentionManager, vLLM 0.32.
    """

    tokens_per_block: int
    local_tokens: int

    @property
    def period_tokens(self) -> int:
        """Local chunks until one begins where a block does, too."""
        return math.lcm(self.local_tokens, self.tokens_per_block)

    def needed(self, boundary: int) -> range:
        """Blocks of the unfinished local chunk; none where a new one begins."""
        first = boundary - boundary % self.local_tokens
        if first == boundary:
            return range(0)
        bs = self.tokens_per_block
        return range(first // bs, -(-boundary // bs))
