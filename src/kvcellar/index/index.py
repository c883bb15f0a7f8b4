"""The index: what host memory holds, and how it grows.

Theory. Every node is one chunk; its key is the engine's chained prefix hash at the
chunk's end, so a key stands for a whole prefix and its depth.

* Prefix-closed: all ancestors of a ready node are ready. Along one request's hash
  list "is known" is therefore true up to some depth and false beyond it, and a
  look-up finds that depth by halving (``prefix_tree``).
* Only leaves go, so closure survives eviction (``holdings``).
* A node is entered when its copy is planned, and ready when the copy has ended and its
  parent is ready.
* A checkpoint hangs on the node at its boundary. Its cells are shared by reference
  with neighbouring checkpoints that need the same blocks.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence

from kvcellar.index.cells import Cell
from kvcellar.index.holdings import Holdings
from kvcellar.index.node import Checkpoint, Node
from kvcellar.index.states import READY, STORED, STORING
from kvcellar.index.tenants import Tenant
from kvcellar.reasons import MissReason


class Index(Holdings):
    """Makes room, enters what is being stored, publishes what has been.

    Not thread-safe: the planner owns it.
    """

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
            if not (next(evictions, False) if evictions else self.evict_one()):
                return None
        if tenant is not None:
            self.cells.payers[cell] = tenant
            tenant.used_bytes += self.cells.cell_bytes(position)
        return cell

    def _make_room(self, position: int, tenant: Tenant) -> bool:
        """Bring a tenant's bytes down until one more cell fits into its share."""
        num_bytes = self.cells.cell_bytes(position)
        while not self.tenants.fits(tenant, num_bytes):
            if not self.evict_one(tenant):
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

    # -- publishing ------------------------------------------------------------------

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
