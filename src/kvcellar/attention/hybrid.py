"""The joint rules of a model: where can all its groups be resumed at once?

    chunk groups       |####|####|####|####|    all blocks of [0, b)
    checkpoint groups             |##|          what resuming at b reads
                                     b

A boundary is usable when every group has what it needs there. Resume points are
multiples of ``chunk_tokens``, and at least one token is always left to compute.
"""

import functools
from collections.abc import Callable

from kvcellar.attention.for_group import rule_for
from kvcellar.layout.groups import CacheLayout

MOST_REMEMBERED = 1024  # boundaries whose blocks are known without asking the rules


class HybridRules:
    """The retention rules of one layout, by group position.

    Says the same forever; any thread may use it.

    Attributes:
        layout: the layout itself.
        rules: one rule per group of the layout.
        chunk_positions: groups whose blocks make up chunks.
        checkpoint_positions: groups whose blocks make up checkpoints.
        chunk_tokens: distance between two resume points, in tokens.
        margin_chunks: chunks beyond a resume point that a prompt must share with what
            is stored. A drafter's entry at the last token before the point was made
            from the token after it: one more chunk in common proves that it is right.
            Source: drop of the last EAGLE block, KVCacheCoordinator, vLLM 0.32.
        is_overwritten: whether some group can be kept only where the engine sets a
            copy of its state aside.
    """

    def __init__(self, layout: CacheLayout) -> None:
        """Build the rule of every group.

        Raises:
            IncompatibleError: a group lacks what its kind needs.
        """
        self.layout = layout
        self.rules = tuple(rule_for(group) for group in layout.groups)
        self.chunk_positions = layout.chunk_positions
        self.checkpoint_positions = layout.checkpoint_positions
        self.chunk_tokens = layout.chunk_tokens
        self.margin_chunks = int(layout.has_drafter)
        self.is_overwritten = bool(layout.overwritten_positions)
        # Answers by boundary; the same few boundaries are asked about again and again.
        self._needs_checkpoint: dict[int, bool] = {}
        self._checkpoint_blocks: dict[int, tuple[tuple[int, range], ...]] = {}

    def needs_checkpoint(self, boundary: int) -> bool:
        """Whether resuming at ``boundary`` reads any block outside the chunks.

        False for models with chunk groups only, for windows of one token, and where
        a new local chunk begins.
        """
        needs = self._needs_checkpoint.get(boundary)
        if needs is None:
            needs = any(
                self.rules[p].needed(boundary) for p in self.checkpoint_positions
            )
            self._needs_checkpoint[boundary] = needs
        return needs

    def checkpoint_blocks(self, boundary: int) -> tuple[tuple[int, range], ...]:
        """The checkpoint at ``boundary``: (position, blocks) of each group.

        Groups that need nothing there are left out.
        """
        found = self._checkpoint_blocks.get(boundary)
        if found is None:
            needs = [
                (p, self.rules[p].needed(boundary)) for p in self.checkpoint_positions
            ]
            found = tuple((position, blocks) for position, blocks in needs if blocks)
            if len(self._checkpoint_blocks) == MOST_REMEMBERED:
                self._checkpoint_blocks.clear()
            self._checkpoint_blocks[boundary] = found
        return found

    @property
    def chunk_bytes(self) -> int:
        """Payload of one chunk, all its groups together."""
        return sum(self.layout.cell_bytes(p) for p in self.chunk_positions)

    @functools.cached_property
    def largest_checkpoint(self) -> tuple[int, int]:
        """Payload bytes of the largest checkpoint, and a boundary that needs as many.

        Beyond all windows what a boundary needs repeats with the spans.
        """
        chunk = self.chunk_tokens
        longest = max((g.span_tokens or 0 for g in self.layout.groups), default=0)
        first = (longest // chunk + 2) * chunk
        boundaries = range(first, first + longest + chunk, chunk)
        return max((self._checkpoint_bytes(b), b) for b in boundaries)

    def _checkpoint_bytes(self, boundary: int) -> int:
        return sum(
            len(blocks) * self.layout.cell_bytes(position)
            for position, blocks in self.checkpoint_blocks(boundary)
        )

    def longest_hit(
        self,
        num_tokens: int,
        has_block: Callable[[int, int], bool],
        limit: int | None = None,
    ) -> int:
        """Largest boundary below ``num_tokens`` that every group can resume at.

        Probes each block about once: chunk blocks from the start to the first that is
        missing, then checkpoint blocks downwards from there.

        Args:
            num_tokens: length of the prompt; its last token is always recomputed.
            has_block: whether block ``(position, index)`` is held. It may hold later
                blocks without earlier ones.
            limit: boundaries above this many tokens are not considered.

        Returns:
            The boundary in tokens, a multiple of ``chunk_tokens``; 0 if none is
            usable.
        """
        most = num_tokens - 1 if limit is None else min(num_tokens - 1, limit)
        boundary = self._rounded(most)
        for position in self.chunk_positions:
            boundary = self._lowered_for(position, boundary, has_block)
        before = -1
        while before != boundary:
            before = boundary
            for position in self.checkpoint_positions:
                boundary = self._lowered_for(position, boundary, has_block)
        return boundary

    def _lowered_for(
        self, position: int, boundary: int, has_block: Callable[[int, int], bool]
    ) -> int:
        """Largest boundary at or below the given one that one group can resume at.

        If block j is missing and ``needed(b)`` covers it, every boundary in
        ``(j * block, b]`` needs it too, since no rule moves its first block down as
        the boundary grows. So the search goes on at ``j * block``.
        """
        rule = self.rules[position]
        while boundary > 0:
            blocks = rule.needed(boundary)
            missing = next((j for j in blocks if not has_block(position, j)), None)
            if missing is None:
                break
            boundary = self._rounded(missing * rule.tokens_per_block)
        return boundary

    def _rounded(self, num_tokens: int) -> int:
        return max(num_tokens, 0) // self.chunk_tokens * self.chunk_tokens
