"""The one question asked of every attention kind: what must be held to resume?"""

from typing import Protocol


class RetentionRule(Protocol):
    """What a group must hold so that a prompt can be resumed at a boundary.

    Storing, looking up, loading, sizing and evicting are all written against
    ``needed``; none of them asks what kind a group is.
    """

    @property
    def tokens_per_block(self) -> int:
        """Tokens that one block of the group covers."""
        ...

    @property
    def period_tokens(self) -> int:
        """Boundaries so far apart need the same blocks, moved on by the distance.

        But for what lies before a prompt's first token, and for groups that need all
        from there on: those need more blocks, not others.
        """
        ...

    def needed(self, boundary: int) -> range:
        """Block indices that resuming at ``boundary`` reads; absolute, contiguous.

        As the boundary grows, neither end of a range that is not empty ever moves
        down. So a block that is missing at one boundary is missing, too, at every
        smaller boundary that lies behind the block's first token.

        Args:
            boundary: tokens already computed.
        """
        ...
