"""Recurrent state (Mamba, linear attention): one snapshot per resume point."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StateRule:
    """The state after token ``boundary - 1``, kept in the block that ends there.

    It already contains token ``boundary - 1``, so a prompt of exactly ``boundary``
    tokens resumes one boundary earlier.
    Source: MambaManager in align mode, vLLM 0.32.
    """

    tokens_per_block: int

    @property
    def period_tokens(self) -> int:
        """One block."""
        return self.tokens_per_block

    def needed(self, boundary: int) -> range:
        """The one block whose last token is ``boundary - 1``."""
        last = -(-boundary // self.tokens_per_block)
        return range(max(last - 1, 0), last)
