"""What would be the first to go is not let in.

What is stored pushes out what is worth least. If that is the newcomer itself, its copy
is for nothing, and so is the loss of what went before it. So a new path stands in the
order of eviction like all that is held, while room is made for it; where its own turn
comes, it is cut off.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kvcellar.index.evictable import Past
from kvcellar.index.index import Index
from kvcellar.index.node import Node


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A path that is about to be stored.

    Attributes:
        tip: the deepest node that is held of it.
        keys: one per chunk of the whole path.
        uses: of prompts that end on it: chunks from its start, and when. Those of one
            that ends deeper are the last chunk's.
        priority: of its request.
        cuts: chunks from its start at which it may be cut off, where resuming takes a
            checkpoint; None for anywhere.
    """

    tip: Node
    keys: Sequence[bytes]
    uses: Sequence[tuple[int, float]]
    priority: int = 0
    cuts: Collection[int] | None = None


class _Part(Node):
    """A part of a path with one history, as it would be if it were stored.

    Args:
        tip: what it hangs on.
        start: chunks before it.
        end: these and its own.
        known: what is remembered of it; None if it is new.
    """

    __slots__ = ("known", "start")

    def __init__(self, tip: Node, start: int, end: int, known: Past | None) -> None:
        super().__init__(b"", tip, (), needs_checkpoint=True)
        self.start, self.depth, self.known = start, end, known
        if known is not None:
            self.remember(known)

    def count_uses(self, newcomer: Newcomer) -> None:
        """Count the prompts that reach its end."""
        times = [time for depth, time in newcomer.uses if depth >= self.depth]
        for time in times:
            self.count_use(time)
        self.last_use, self.priority = max(times), newcomer.priority

    def reach(self, *, past_replaced: bool) -> int:
        """It ends with a checkpoint, and what it hangs on has one."""
        del past_replaced
        return self.depth - self.start


class Newcomers:
    """Decides for each path how much of it comes in."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._chunk_bytes = index.rules.chunk_bytes
        self._checkpoint_bytes = index.rules.largest_checkpoint[0]
        self._arena_bytes = index.cells.slabs.geometry.arena_bytes

    def admit(self, newcomer: Newcomer) -> int:
        """Make room for a path among what is worth less.

        Returns:
            Chunks from its start that are to be held; all where the order of eviction
            lets in whatever comes.
        """
        index, tip, num_chunks = self._index, newcomer.tip, len(newcomer.keys)
        if not index.order.live.is_selective or not self._chunk_bytes:
            return num_chunks
        if tip.depth >= num_chunks or self._num_fitting(tip) >= num_chunks:
            return num_chunks
        parts = weighed = self._parts(newcomer)
        if index.rules.is_overwritten:  # nobody can resume where parts meet
            weighed = [_Part(tip, tip.depth, num_chunks, self._known_of_end(parts))]
        for part in {*parts, *weighed}:
            part.count_uses(newcomer)
        index.pin(tip)
        admitted = tip.depth
        for part in weighed:
            admitted = self._make_room(part, newcomer)
            if admitted < part.depth:
                break
        index.unpin(tip)
        if admitted < num_chunks:
            self._turn_away(parts, admitted, newcomer.keys)
        return admitted

    def _num_fitting(self, tip: Node) -> int:
        """Chunks of a path, and its checkpoint, that there is room for now."""
        free = self._arena_bytes - self._index.cells.slabs.used_bytes
        return tip.depth + (free - self._checkpoint_bytes) // self._chunk_bytes

    def _parts(self, newcomer: Newcomer) -> list[_Part]:
        """Its new chunks, cut where what is known of them changes, or a prompt ends."""
        ghosts, tip, keys = self._index.ghosts, newcomer.tip, newcomer.keys
        known = [] if ghosts is None else list(ghosts.known_parts(keys, tip.depth))
        ends = {len(keys), *(depth for depth, _ in newcomer.uses)}
        start, parts = tip.depth, list[_Part]()
        for known_end, past in (*known, (len(keys), None)):
            inside = {depth for depth in ends if start < depth < known_end}
            for end in sorted(inside | {known_end}):
                if start < end:
                    parts.append(_Part(tip, start, end, past))
                    start = end
        return parts

    def _known_of_end(self, parts: Sequence[_Part]) -> Past | None:
        """What is known of a prompt's end, or before it if that is never remembered."""
        ghosts, end = self._index.ghosts, parts[-1]
        if ghosts is None or len(parts) == 1:
            return end.known
        is_sampled = end.start // ghosts.sample < end.depth // ghosts.sample
        return end.known if is_sampled else parts[-2].known

    def _make_room(self, part: _Part, newcomer: Newcomer) -> int:
        """Let go of what is worth less than ``part``; how deep the path then fits."""
        order, tip = self._index.order.live, newcomer.tip
        num_fitting = self._num_fitting(tip)
        order.add(part)
        evictions = self._index.evictions(until=part)
        while num_fitting < part.depth and next(evictions, False):
            num_fitting = self._num_fitting(tip)
        evictions.close()
        order.remove(part)
        if num_fitting >= part.depth:
            return part.depth
        if self._index.rules.is_overwritten:
            return part.start
        fitting = max(num_fitting, part.start)
        if newcomer.cuts is None or not self._checkpoint_bytes:
            return fitting
        return max((cut for cut in newcomer.cuts if cut <= fitting), default=tip.depth)

    def _turn_away(
        self, parts: Sequence[_Part], admitted: int, keys: Sequence[bytes]
    ) -> None:
        """Remember the use of what does not come in, as if it had gone at once."""
        ghosts = self._index.ghosts
        if ghosts is None:
            return
        most = ghosts.most_beside(len(self._index.nodes))
        ghosts.all_return(keys, parts[0].start)
        for part in reversed(parts):
            cut = min(max(part.start, admitted), part.depth)
            ghosts.all_leave(keys, cut, part.depth, part.past(), most)
            if part.known is not None:  # it comes in, and will be asked for then
                ghosts.all_leave(keys, part.start, cut, part.known, most)
