"""A radix tree of prompts: runs of chunks that have always been used together.

What shadow caches and the statistics of reuse stand on. A prompt costs a few steps
however long it is, since a key stands for all before it and a run is compared by
halving.
"""

from collections.abc import Iterator, Sequence

from kvcellar.index.evictable import Evictable
from kvcellar.index.halving import num_leading


class Run(Evictable):
    """Chunks with one history.

    Attributes:
        keys: the chunks' keys, in order.
        parent: the run above; none for the root, and for what has left the tree.
        children: by their first key.
        depth: chunks from the root to its end.
        epoch: number that its user gives to the time of its latest use.
        has_checkpoint: whether its user keeps what resuming at its end needs.
    """

    __slots__ = ("children", "epoch", "has_checkpoint", "keys", "parent")

    def __init__(self, keys: list[bytes], parent: "Run | None") -> None:
        if parent is None:
            super().__init__(0, 0.0)
        else:
            super().__init__(parent.depth + len(keys), parent.last_use)
        self.keys = keys
        self.parent = parent
        self.children: dict[bytes, Run] = {}
        self.epoch = 0
        self.has_checkpoint = False

    def path(self) -> "Iterator[Run]":
        """This run and those above it, the root left out."""
        run = self
        while run.parent is not None:
            yield run
            run = run.parent

    @property
    def parent_run(self) -> "Run":
        """The run above; the root has none."""
        assert self.parent is not None
        return self.parent

    @property
    def is_there(self) -> bool:
        """Whether it is in the tree, and not its root."""
        return self.parent is not None

    def reach(self, *, past_replaced: bool) -> int:
        """Chunks from the checkpoint before it to its end; see ``Evictable``."""
        above = self.parent_run
        while above.parent is not None:
            if above.has_checkpoint and not (
                past_replaced and len(above.children) == 1
            ):
                break
            above = above.parent
        return self.depth - above.depth

    def append(self, keys: list[bytes]) -> "Run":
        """A new run below this one."""
        child = self.children[keys[0]] = Run(keys, self)
        return child

    def drop(self) -> "Run":
        """Leave the tree; the parent."""
        parent = self.parent_run
        del parent.children[self.keys[0]]
        self.parent = None
        return parent

    def cut(self, num_chunks: int) -> list[bytes]:
        """Lose so many chunks at the end, but not all; their keys."""
        keys = self.keys[-num_chunks:]
        del self.keys[-num_chunks:]
        self.depth -= num_chunks
        return keys

    def split(self, length: int) -> "Run":
        """Cut it after ``length`` chunks; the upper part, which has no history yet."""
        upper = self.parent_run.append(self.keys[:length])
        self.keys = self.keys[length:]
        self.parent = upper
        upper.children[self.keys[0]] = self
        return upper


def find(root: Run, keys: Sequence[bytes]) -> tuple[Run, int]:
    """How far a path is known.

    Returns:
        The run in which the known part ends, and how many of that run's chunks belong
        to it; all of them, unless the path leaves inside.
    """
    run, num_known = root, 0
    while num_known < len(keys):
        child = run.children.get(keys[num_known])
        if child is None:
            break
        end = child.depth
        if end > len(keys) or child.keys[-1] != keys[end - 1]:
            return child, num_shared(child.keys, keys, num_known)
        run, num_known = child, end
    return run, len(run.keys)


def num_shared(known: Sequence[bytes], keys: Sequence[bytes], first: int) -> int:
    """How far a run and the path from ``first`` on agree, whose first keys do."""
    most = min(len(known), len(keys) - first)
    if known[most - 1] == keys[first + most - 1]:  # most often
        return most
    return num_leading(1, most - 1, lambda n: known[n - 1] == keys[first + n - 1])
