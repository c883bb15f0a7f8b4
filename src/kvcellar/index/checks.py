"""``check_index`` verifies every invariant of the index, after each step of a test."""

from collections import Counter
from typing import TYPE_CHECKING

from kvcellar.errors import InvariantError
from kvcellar.index.index import Index
from kvcellar.index.node import Node
from kvcellar.index.states import READY, STORED, STORING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvcellar.index.cells import Cell
    from kvcellar.index.tenants import Tenant

_LIVE = (STORING, STORED, READY)


def check_index(index: Index) -> None:
    """Verify links, closure, references and eviction candidates.

    Raises:
        InvariantError: one of them does not hold.
    """
    index.cells.slabs.check()
    resumes_at = {index.root: index.root}
    for node in sorted(index.nodes.values(), key=lambda node: node.depth):
        _check_links(index, node)
        _check_closure(node)
        _check_resume_point(index, node, resumes_at)
        _check_evictable(index, node)
    _check_references(index)
    index.leases.check(index.nodes.values())


def _require(holds: object, node: Node, rule: str) -> None:
    if not holds:
        raise InvariantError(f"{node!r}: {rule}")


def _check_links(index: Index, node: Node) -> None:
    parent = node.parent
    _require(index.nodes.get(node.key) is node, node, "is not found under its key")
    _require(parent is not None and node in parent.children, node, "has no parent")
    _require(node.pins >= 0, node, "has negative pins")


def _check_closure(node: Node) -> None:
    assert node.parent is not None
    _require(node.state in _LIVE, node, "is findable but has left")
    if node.state is READY:
        _require(node.parent.state is READY, node, "has a parent not ready")
    if node.state is STORED:
        _require(node.parent.state is not READY, node, "should be ready")


def _check_resume_point(index: Index, node: Node, resumes_at: dict[Node, Node]) -> None:
    """Pointers lead to the nearest resume point; parents have been checked before."""
    assert node.parent is not None
    expected = node if node.is_resumable else resumes_at[node.parent]
    resumes_at[node] = expected
    nearest = index.resume_point(node)
    _require(nearest is expected, node, f"resumes at {nearest!r}, not {expected!r}")


def _check_evictable(index: Index, node: Node) -> None:
    is_free = not node.pins and node not in index.leases.ends
    may_go = node.state is READY and is_free and node.is_leaf
    offered = node in index.order
    _require(may_go == offered, node, f"{may_go=} but {offered=}")
    owner = index.tenants.owners.get(node)
    if owner is not None:
        offered = node in owner.order
        _require(may_go == offered, node, f"{may_go=} but its tenant says {offered}")


def _check_references(index: Index) -> None:
    """Every cell is held exactly as often as its count says, and none is lost."""
    held: Counter[Cell] = Counter()
    for node in (*index.nodes.values(), *index.detached):
        held.update(node.cells)
        if node.checkpoint is not None:
            held.update(node.checkpoint.cells)
    for cell, count in held.items():
        if cell.refs != count:
            raise InvariantError(f"{cell!r} is held {count} times")
    _check_counts(index)
    _check_tenants(index, held)
    classes = range(len(index.rules.layout.groups))
    used = {
        index.cells.slabs.geometry.class_of[p]: index.cells.slabs.num_used(p)
        for p in classes
    }
    if sum(used.values()) != len(held):
        raise InvariantError(f"{sum(used.values())} cells taken, {len(held)} held")
    for key, cell in index.cells.shared.items():
        if cell not in held or cell.share_key != key:
            raise InvariantError(f"{cell!r} is shared under {key!r} but not held")


def _check_counts(index: Index) -> None:
    """The running counts are what a count finds."""
    nodes = (*index.nodes.values(), *index.detached)
    counted = (
        sum(node.checkpoint is not None for node in nodes),
        sum(node.pins > 0 for node in nodes),
    )
    running = (index.num_checkpoints, index.num_pinned_chunks)
    if counted != running:
        raise InvariantError(
            f"(checkpoints, pinned chunks) are {counted}, not {running}"
        )


def _check_tenants(index: Index, held: "Iterable[Cell]") -> None:
    """Every tenant pays for exactly the cells that were taken for it."""
    used: Counter[Tenant] = Counter()
    payers = index.cells.payers
    for cell in held:
        if cell in payers:
            used[payers[cell]] += index.cells.cell_bytes(cell.position)
    for tenant, num_bytes in used.items():
        if tenant.used_bytes != num_bytes or not index.tenants.fits(tenant, 0):
            raise InvariantError(f"a tenant pays for {tenant.used_bytes}, {num_bytes=}")
