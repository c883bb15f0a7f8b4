"""What host memory holds, who holds on to it, and how it goes.

* Only leaves are evicted, so an ancestor of what is held is held. The parent inherits
  the history of a leaf that leaves: a use refreshes a whole path by stamping one node.
* A pin on a node protects its ancestors too, since they are not leaves. Jobs pin the
  nodes they write or read; at the last unpin a node that was detached meanwhile
  (reset, failed ancestor) gives its cells back.

What must change together: ``states.TRANSITIONS``, ``EvictionOrder.settle``, which says
whether a node may be evicted, and ``checks.check_index``.
"""

from collections.abc import Generator, Iterable

from kvcellar.attention.hybrid import HybridRules
from kvcellar.index.cell_store import CellStore
from kvcellar.index.cells import Cell
from kvcellar.index.counters import IndexCounters
from kvcellar.index.departures import Departures, departures_for
from kvcellar.index.evictable import chunks_per_sample
from kvcellar.index.eviction import EvictionOrder
from kvcellar.index.ghosts import Ghosts
from kvcellar.index.leases import Leases
from kvcellar.index.limits import NO_LEASES, Limits
from kvcellar.index.node import Node
from kvcellar.index.policies.policy import EvictionPolicy
from kvcellar.index.prefix_tree import PrefixTree
from kvcellar.index.slabs import SlabAllocator
from kvcellar.index.states import EVICTING, GONE
from kvcellar.index.tenants import Tenant, Tenants
from kvcellar.reasons import MissReason

EVICTED = MissReason.EVICTED  # looked up once; members of a class take long


class Holdings(PrefixTree):
    """Nodes, checkpoints and their cells, as far as they only stay or go.

    Args:
        rules: what each boundary of this layout needs.
        slabs: where cells come from.
        live, dead, superseded_first: see ``EvictionOrder``.
        limits: how much leases and tenants may take.

    Attributes:
        num_checkpoints: held now.
        order: what may go, and what of it goes first.
        leases: paths that stay until a time.
        departures: why chunks that were computed are not held.
        ghosts: what is remembered of chunks that have gone; None where the order of
            eviction does not ask.
        tenants: who is bounded in what it may hold.
    """

    def __init__(
        self,
        rules: HybridRules,
        slabs: SlabAllocator,
        live: EvictionPolicy[Node],
        dead: EvictionPolicy[Node],
        *,
        superseded_first: bool | None = None,
        limits: Limits = NO_LEASES,
    ) -> None:
        super().__init__(rules.layout)
        self.rules = rules
        self.cells = CellStore(slabs)
        self.detached: set[Node] = set()
        self.epoch = 0
        self.counters = IndexCounters()
        self.num_checkpoints = 0
        self._num_pinned = 0  # the root included
        most_chunks = slabs.geometry.arena_bytes // max(rules.chunk_bytes, 1)
        self.departures = Departures(departures_for(most_chunks))
        sample = chunks_per_sample(self.chunk_tokens)
        self.ghosts = Ghosts(sample) if live.wants_history else None
        self.leases = Leases(
            limits.leased_bytes, rules.chunk_bytes, rules.largest_checkpoint[0]
        )
        self.tenants = Tenants(limits.tenant_bytes)
        self.order = EvictionOrder(
            live,
            dead,
            superseded_first=superseded_first,
            leased=self.leases.ends,
            owners=self.tenants.owners,
        )

    # -- pins and stamps ---------------------------------------------------------

    def pin(self, node: Node) -> None:
        """Forbid eviction of ``node``, and so of its ancestors."""
        node.pins += 1
        if node.pins == 1:
            self._num_pinned += 1
            self.order.withdraw(node)

    def unpin(self, node: Node) -> None:
        """Undo one ``pin``; the last one may make the node evictable or end it."""
        node.pins -= 1
        if node.pins == 0:
            self._num_pinned -= 1
            if node.state is EVICTING:
                self._finish_detached(node)
            elif node.first_child is None:
                self.order.settle(node)

    def touch(self, node: Node, now: float) -> None:
        """Stamp the deepest node used; its ancestors inherit the stamp."""
        node.last_use = now
        self.order.touch(node)

    def count_use(self, node: Node, now: float) -> None:
        """A request has used the prefix that ends at ``node``; once per request."""
        if self.ghosts is not None:
            node.count_use(now)
            self.order.live.touch(node)

    def lease(self, node: Node, until: float) -> bool:
        """Keep ``node``, its checkpoint and its ancestors until a time.

        Returns:
            Whether that is granted; False if leases would protect too much.
        """
        is_granted = self.leases.grant(node, until)
        if is_granted and not node.pins:
            self.order.withdraw(node)
        return is_granted

    def end_leases(self, now: float) -> None:
        """Let go of what was leased until now."""
        for node in self.leases.end(now):
            self.order.settle(node)

    def raise_priority(self, node: Node, priority: int) -> None:
        """A request of this priority uses the path that ends at ``node``."""
        if node.priority < priority:
            self.order.withdraw(node)
            node.priority = priority
            self.order.settle(node)

    @property
    def num_pinned_chunks(self) -> int:
        """Chunks that requests and jobs hold now."""
        return self._num_pinned - bool(self.root.pins)

    # -- leaving -----------------------------------------------------------------

    def reset(self) -> bool:
        """Forget everything. Completions of jobs in flight publish nothing.

        Returns:
            Whether nothing is in flight any more; if not, ask again later.
        """
        self.epoch += 1
        for child in list(self.root.children):
            self._detach(child, MissReason.RESET)
        self.order.superseded.clear()
        self.leases.clear()
        if self.ghosts is not None:
            self.ghosts.clear()
        return not self.detached

    def evict_one(self, tenant: Tenant | None = None) -> bool:
        """Let go of the least valuable thing; False when nothing may go.

        Args:
            tenant: who has to give; None for anybody.
        """
        evictions = self.evictions(tenant)
        has_gone = next(evictions, False)
        evictions.close()
        return has_gone

    def evictions(
        self, tenant: Tenant | None = None, until: Node | None = None
    ) -> Generator[bool]:
        """Let go of the least valuable thing at each step, as long as something may.

        Args:
            tenant: who has to give; None for anybody.
            until: stop where this one's turn comes, which stays.

        A path goes from its end. What is left of it mostly goes next, and is offered to
        the order only if it does not, or in the end. So between the steps nothing may
        become evictable, and who stops early closes this.
        """
        order = self.order
        while True:
            while (node := order.take_superseded(tenant)) is not None:
                self.counters.evicted_checkpoints += 1
                self.counters.superseded_checkpoints += 1
                self._drop_checkpoint(node)
                yield True
            leaf = order.next_leaf(tenant)
            if leaf is None or leaf is until:
                return
            order.withdraw(leaf)
            rest = leaf
            try:
                while order.is_next(rest := self._drop_leaf(rest)):
                    yield True
            finally:
                order.settle(rest)
            yield True

    def lose(self, cells: Iterable[Cell]) -> None:
        """The bytes of these cells are wrong: nothing that holds one is served."""
        lost = set(cells)
        for cell in lost:
            cell.is_lost = True
        for node in list(self.nodes.values()):
            if node.state is not GONE and not lost.isdisjoint(node.cells):
                if self.nodes.get(node.key) is node:
                    self._detach(node, MissReason.FAILED_STORE)
            elif node.checkpoint and not lost.isdisjoint(node.checkpoint.cells):
                self._drop_checkpoint(node)

    def _drop_checkpoint(self, node: Node) -> None:
        checkpoint, node.checkpoint = node.checkpoint, None
        assert checkpoint is not None
        checkpoint.move_to(GONE)
        self.num_checkpoints -= 1
        self.cells.release(checkpoint.cells)

    def _drop_leaf(self, leaf: Node) -> Node:
        """Evict a leaf that the order does not have any more; its parent."""
        parent = leaf.parent
        assert parent is not None
        self.counters.count_leaf(leaf)
        self.departures.note(leaf.key, EVICTED)
        parent.disown(leaf)
        del self.nodes[leaf.key]
        self._free(leaf)
        if leaf.is_loaded:
            parent.is_loaded = True
        if leaf.priority > parent.priority:
            parent.priority = leaf.priority
        if (ghosts := self.ghosts) is not None:
            if leaf.depth % ghosts.sample == 0:
                most = ghosts.most_beside(len(self.nodes))
                ghosts.leave(leaf.key, leaf, parent, most)
            parent.take_over(leaf)
        elif leaf.last_use > parent.last_use:
            parent.last_use = leaf.last_use
        return parent

    def _detach(self, top: Node, reason: MissReason) -> None:
        """Make a subtree unfindable; nodes that jobs use wait for their last unpin."""
        assert top.parent is not None
        self.leases.drop(top)
        parent = top.parent
        pending = [top]
        while pending:
            node = pending.pop()
            pending.extend(node.children)
            self.order.withdraw(node)
            self.departures.note(node.key, reason)
            assert node.parent is not None
            node.parent.disown(node)
            del self.nodes[node.key]
            if node.pins:
                node.move_to(EVICTING)
                self.detached.add(node)
            else:
                self._free(node)
        self.order.settle(parent)

    def _finish_detached(self, node: Node) -> None:
        self.detached.discard(node)
        self._free(node)

    def _free(self, node: Node) -> None:
        node.move_to(GONE)
        node.resume = self.root  # often itself: a cycle would outlive its last use
        if self.tenants.owners:
            self.tenants.owners.pop(node, None)
        if node.checkpoint is not None:
            self._drop_checkpoint(node)
        self.cells.release(node.cells)
