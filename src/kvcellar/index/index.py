"""What host memory holds: how the prefix tree grows and shrinks.

Theory. Every node is one chunk; its key is the engine's chained prefix hash at the
chunk's end, so a key stands for a whole prefix and its depth.

* Prefix-closed: all ancestors of a ready node are ready. Along one request's hash
  list "is known" is therefore true up to some depth and false beyond it, and a
  look-up finds that depth by halving.
* Only leaves are evicted, so closure survives eviction. The parent inherits the
  stamp of a leaf that leaves: a use refreshes a whole path by stamping one node.
* A pin on a node protects its ancestors too, since they are not leaves. Jobs pin the
  nodes they write or read; at the last unpin a node that was detached meanwhile
  (reset, failed ancestor) gives its cells back.
* A checkpoint hangs on the node at its boundary. Its cells are shared by reference
  with neighbouring checkpoints that need the same blocks.

What must change together: ``states.TRANSITIONS``, ``EvictionOrder.settle``, which says
whether a node may be evicted, and ``checks.check_index``.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence

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
from kvcellar.index.node import Checkpoint, Node
from kvcellar.index.policies.policy import EvictionPolicy
from kvcellar.index.prefix_tree import PrefixTree
from kvcellar.index.slabs import SlabAllocator
from kvcellar.index.states import EVICTING, GONE, READY, STORED, STORING
from kvcellar.index.tenants import Tenant, Tenants
from kvcellar.reasons import MissReason

EVICTED = MissReason.EVICTED  # looked up once; members of a class take long


class Index(PrefixTree):
    """Nodes, checkpoints and their cells. Not thread-safe: the planner owns it.

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
        self._hashes_per_block = [
            group.tokens_per_block // rules.layout.hash_block_tokens
            for group in rules.layout.groups
        ]
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

    # -- room --------------------------------------------------------------------

    def allocate(
        self,
        position: int,
        tenant: Tenant | None = None,
        evictions: Iterator[bool] | None = None,
    ) -> Cell | None:
        """A cell for the group at ``position``, evicting and compacting as needed.

        Args:
            tenant: who pays; at its share it makes room among its own first.
            evictions: that are under way, for more than this cell.

        Returns:
            None when everything that could go is pinned or leased.
        """
        if tenant is not None and not self._make_room(position, tenant):
            self.counters.over_share += 1
            return None
        while (cell := self.cells.take(position)) is None:
            if not (next(evictions, False) if evictions else self._evict_one()):
                return None
        if tenant is not None:
            self.cells.payers[cell] = tenant
            tenant.used_bytes += self.cells.cell_bytes(position)
        return cell

    def _make_room(self, position: int, tenant: Tenant) -> bool:
        """Bring a tenant's bytes down until one more cell fits into its share."""
        num_bytes = self.cells.cell_bytes(position)
        while not self.tenants.fits(tenant, num_bytes):
            if not self._evict_one(tenant):
                return False
        return True

    # -- growing -----------------------------------------------------------------

    def add_path(
        self, parent: Node, keys: Sequence[bytes], tenant: Tenant | None = None
    ) -> list[Node]:
        """Enter chunks that are being stored, as far as there is room for them.

        Args:
            parent: the first chunk hangs below it, each other one below the one before.
            keys: one per chunk.
            tenant: who pays.

        Returns:
            The nodes; the job's pin is on each.
        """
        nodes, ghosts, added = self.nodes, self.ghosts, []
        boundary, needs_checkpoint = self.boundary(parent), self.rules.needs_checkpoint
        top, rooms = parent, self._cells_of_chunks(tenant)
        self.pin(top)  # making room must not take it
        for key, cells in zip(keys, rooms, strict=False):  # room only where a key is
            boundary += self.chunk_tokens
            node = nodes[key] = Node(
                key, parent, cells, needs_checkpoint=needs_checkpoint(boundary)
            )
            node.pins = 1
            if ghosts is not None and (past := ghosts.returns(key)):
                node.remember(past)
            parent.adopt(node)
            added.append(node)
            parent = node
        rooms.close()
        self._num_pinned += len(added)
        self.unpin(top)
        self.departures.forget(keys[: len(added)])
        if tenant is not None:
            self.tenants.owners.update(dict.fromkeys(added, tenant))
        return added

    def _cells_of_chunks(self, tenant: Tenant | None) -> Generator[tuple[Cell, ...]]:
        """Cells for one chunk after another, until there is no room."""
        evictions, positions = self.evictions(), self.rules.chunk_positions
        try:
            while True:
                cells: list[Cell] = []
                for position in positions:
                    cell = self.allocate(position, tenant, evictions)
                    if cell is None:
                        self.cells.release(cells)
                        return
                    cells.append(cell)
                yield tuple(cells)
        finally:
            evictions.close()

    def add_checkpoint(
        self, node: Node, cells: tuple[Cell, ...], *, is_decoded: bool = False
    ) -> Checkpoint:
        """Hang a checkpoint that is being stored on ``node``; the job pins the node."""
        self.pin(node)
        node.checkpoint = Checkpoint(cells, is_decoded=is_decoded)
        self.num_checkpoints += 1
        return node.checkpoint

    def share_keys(
        self, position: int, blocks: range, hashes: Sequence[bytes]
    ) -> list[tuple[int, bytes]]:
        """What checkpoints that need the same blocks find their cells by."""
        size = self._hashes_per_block[position]
        first = (blocks.start + 1) * size - 1
        return [(position, key) for key in hashes[first : blocks.stop * size : size]]

    def borrow_checkpoint(self, node: Node, hashes: Sequence[bytes]) -> None:
        """Make ``node`` a resume point if its neighbours hold all that it needs.

        Windows overlap, and a local chunk is part of every longer one: so where a
        prompt leaves a known path the blocks are often there, and nothing is copied.
        A drafter's entries depend on the next token too, so they are never borrowed.

        Args:
            node: where the prompt leaves what is known.
            hashes: its prefix hashes up to there at least.
        """
        is_open = node.state is READY and node.checkpoint is None
        if not (is_open and node.needs_checkpoint) or self.rules.margin_chunks:
            return
        keys = (
            key
            for position, blocks in self.rules.checkpoint_blocks(self.boundary(node))
            for key in self.share_keys(position, blocks, hashes)
        )
        cells = self.cells.find_all(keys)
        if cells is None:
            return
        node.checkpoint = Checkpoint(tuple(cells))
        node.checkpoint.move_to(STORED)
        self._make_resumable(node, node.checkpoint)
        self.counters.borrowed_checkpoints += 1
        self.num_checkpoints += 1
        if not node.pins:
            self.order.withdraw(node)
            self.order.settle(node)

    def publish(self, nodes: Iterable[Node]) -> None:
        """The chunks' bytes are in host memory on every rank; drop the job's pins."""
        for node in nodes:
            if node.state is STORING:
                node.move_to(STORED)
                assert node.parent is not None
                if node.parent.state is READY:
                    self._make_ready(node)
            self.unpin(node)

    def publish_checkpoint(self, node: Node, checkpoint: Checkpoint) -> None:
        """The checkpoint's bytes are in host memory; drop the job's pin."""
        if node.checkpoint is checkpoint:
            if any(cell.is_lost for cell in checkpoint.cells):
                self._drop_checkpoint(node)
            else:
                checkpoint.move_to(STORED)
                if node.state is READY:
                    self._make_resumable(node, checkpoint)
        self.unpin(node)

    def fail(self, node: Node) -> None:
        """The chunk's copy failed: it and what hangs below it are never served."""
        if node.state is STORING:
            self._detach(node, MissReason.FAILED_STORE)
        self.unpin(node)

    def fail_checkpoint(self, node: Node, checkpoint: Checkpoint) -> None:
        """The checkpoint's copy failed; ``is_lost`` is already set on its cells."""
        if node.checkpoint is checkpoint:
            self._drop_checkpoint(node)
        self.unpin(node)

    def _make_ready(self, node: Node) -> None:
        pending = [node]
        while pending:
            ready = pending.pop()
            ready.move_to(READY)
            assert ready.parent is not None
            ready.resume = ready.parent.resume
            if self.cells.announcements is not None:
                self.cells.announcements.stored(ready.cells)
            checkpoint = ready.checkpoint
            if checkpoint is not None and checkpoint.state is STORED:
                self._make_resumable(ready, checkpoint)
            elif not ready.needs_checkpoint:
                ready.resume = ready
            child = ready.first_child
            if child is None and not ready.pins:
                self.order.settle(ready)
            while child is not None:
                if child.state is STORED:
                    pending.append(child)
                child = child.older

    def _make_resumable(self, node: Node, checkpoint: Checkpoint) -> None:
        """Publish a checkpoint and point the ready nodes below at it."""
        checkpoint.move_to(READY)
        if self.cells.announcements is not None:
            self.cells.announcements.stored(checkpoint.cells)
        assert node.parent is not None
        self._supersede_above(node.parent, is_decoded=checkpoint.is_decoded)
        node.resume = node
        pending = list(node.children)
        while pending:
            child = pending.pop()
            if child.state is READY and not child.is_resumable:
                child.resume = node
                pending.extend(child.children)

    def _supersede_above(self, node: Node, *, is_decoded: bool) -> None:
        """A prompt replaces what it passed, an answer only what it left itself.

        So the end of a prompt stays until another prompt has gone further.
        """
        above = self.resume_point(node)
        while above.checkpoint is not None and above.checkpoint.is_decoded:
            self.order.replaced(above)
            assert above.parent is not None
            above = self.resume_point(above.parent)
        if not is_decoded:
            self.order.replaced(above)

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

    def _evict_one(self, tenant: Tenant | None = None) -> bool:
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
            try:
                while leaf is not None:
                    parent = self._drop_leaf(leaf)
                    leaf = parent if order.is_next(parent) else None
                    if leaf is None:
                        order.settle(parent)
                    yield True
            finally:
                if leaf is not None:
                    order.settle(leaf)

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
