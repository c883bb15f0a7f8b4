"""Leases for requests: what must stay so that their path can be used again."""

from dataclasses import dataclass

from kvcellar.index.index import Index
from kvcellar.index.node import Node


@dataclass(frozen=True, slots=True)
class Keep:
    """A wish to keep a path that is not in host memory yet.

    Attributes:
        until: on the planner's clock, in seconds.
        num_prompt_tokens: of the prompt at the path's beginning.
    """

    until: float
    num_prompt_tokens: int


def lease_path(index: Index, end: Node, keep: Keep) -> None:
    """Lease what resuming at or before ``end`` reads.

    Two resume points matter: the deepest, for who goes on from here, and the deepest
    inside the prompt, for who asks the same again and recomputes its last token. On
    models that resume anywhere the deepest protects the other one too.
    """
    while end is not index.root and index.nodes.get(end.key) is not end:
        assert end.parent is not None  # a failed copy took it from the tree
        end = end.parent
    deepest = _resume_point(end)
    if deepest is index.root or not index.lease(deepest, keep.until):
        return
    inside = deepest
    while inside.parent and index.boundary(inside) >= keep.num_prompt_tokens:
        inside = inside.parent
    inside = _resume_point(inside)
    if inside is not index.root and inside.needs_checkpoint:
        index.lease(inside, keep.until)


def _resume_point(node: Node) -> Node:
    """Nearest node at or above with all that it takes, stored or being stored."""
    while node.needs_checkpoint and node.checkpoint is None:
        assert node.parent is not None  # the root needs no checkpoint
        node = node.parent
    return node
