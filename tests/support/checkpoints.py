"""Checkpoints stored in an index without a planner."""

from kvcellar.index.index import Index
from kvcellar.index.node import Node
from kvcellar.index.tenants import Tenant


def add_checkpoint(
    index: Index, node: Node, tenant: Tenant | None = None, *, is_decoded: bool = False
) -> bool:
    """Store one on a node that stays meanwhile; False where there is no room for it."""
    index.pin(node)
    blocks = index.rules.checkpoint_blocks(index.boundary(node))
    positions = [position for position, some in blocks for _ in some]
    taken = [index.allocate(position, tenant) for position in positions]
    cells = tuple(cell for cell in taken if cell is not None)
    has_room = len(cells) == len(taken)
    if has_room:
        checkpoint = index.add_checkpoint(node, cells, is_decoded=is_decoded)
        index.publish_checkpoint(node, checkpoint)
    else:
        index.cells.release(cells)
    index.unpin(node)
    return has_room
