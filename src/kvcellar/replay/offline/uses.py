"""Who used each chunk of a prompt last: all that an offline bound needs of a trace.

A prefix tree whose segments are chunks that have always been used together, each with
the number of the request that used it last. So a prompt is told in a few runs however
long it is, and time goes with the number of branches, not of tokens.
"""

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvcellar.index.halving import num_leading
from kvcellar.replay.trace import Trace, TraceRequest

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Uses:
    """Runs of chunks that come back, [num_runs] each.

    Ordered by ``later``, and of one prompt from its beginning on; there ``earlier``
    never grows, since whoever used a chunk used all before it.

    Attributes:
        later: request that wants them.
        earlier: request that used them last before.
        num_chunks: of the run.
        num_requests: that were served; their numbers are below.
        prompt_tokens: of these.
    """

    later: Numbers
    earlier: Numbers
    num_chunks: Numbers
    num_requests: int
    prompt_tokens: int


def uses_of(trace: Trace, unit: int, is_served: Callable[[TraceRequest], bool]) -> Uses:
    """Walk the trace once.

    A prompt's last token is always computed, so a chunk that holds it is not wanted.

    Args:
        unit: tokens of a chunk, at least those of a block of the trace.
        is_served: whether a request counts at all.
    """
    tree, runs, prompt_tokens, number = PathTree(), array("q"), 0, 0
    for request in trace.requests:
        if not is_served(request):
            continue
        ids = request.blocks + request.output_blocks
        path = _path_of(ids, unit, trace.block_tokens)
        wanted = (request.num_prompt_tokens - 1) // unit
        for earlier, num_chunks in _joined(tree.use(path, wanted, number)):
            runs.extend((number, earlier, num_chunks))
        prompt_tokens += request.num_prompt_tokens
        number += 1
    columns = np.array(runs, np.int64).reshape(-1, 3).T
    return Uses(columns[0], columns[1], columns[2], number, prompt_tokens)


def _path_of(ids: "array[int]", unit: int, block_tokens: int) -> "array[int]":
    """For each chunk the id of the block in which it ends: of nobody else's chunk."""
    blocks_per_chunk, rest = divmod(unit, block_tokens)
    if not rest:
        return ids[blocks_per_chunk - 1 :: blocks_per_chunk]
    ends = range(unit - 1, len(ids) * block_tokens, unit)
    return array("q", [ids[end // block_tokens] for end in ends])


class _Segment:
    """Chunks in a row, the segments below by their first chunk, and the last user."""

    __slots__ = ("children", "keys", "last_user")

    def __init__(self, keys: "array[int]", last_user: int) -> None:
        self.keys = keys
        self.last_user = last_user
        self.children: dict[int, _Segment] = {}


class PathTree:
    """All paths used so far."""

    def __init__(self) -> None:
        self._root = _Segment(array("q"), -1)

    def use(
        self, path: "array[int]", num_wanted: int, number: int
    ) -> Iterator[tuple[int, int]]:
        """Enter the path of a request while telling who used it last.

        Args:
            path: one key per chunk; a key stands for all chunks before it too.
            num_wanted: chunks from the beginning that are told.
            number: of the request, larger than all before.

        Yields:
            The last user before, and how many chunks in a row that is true of.
        """
        node, depth = self._root, 0
        while depth < len(path):
            child = node.children.get(path[depth])
            if child is None:
                child = node.children[path[depth]] = _Segment(path[depth:], number)
            length = _num_shared(child.keys, path, depth)
            if length < len(child.keys):
                child = self._split(node, child, length)
            if child.last_user < number and depth < num_wanted:
                yield child.last_user, min(length, num_wanted - depth)
            child.last_user = number
            node, depth = child, depth + length

    @staticmethod
    def _split(parent: _Segment, segment: _Segment, length: int) -> _Segment:
        """Cut a segment in two; the upper part."""
        upper = _Segment(segment.keys[:length], segment.last_user)
        segment.keys = segment.keys[length:]
        upper.children[segment.keys[0]] = segment
        parent.children[upper.keys[0]] = upper
        return upper


def _joined(pieces: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    """Put pieces with the same last user together."""
    joined: list[tuple[int, int]] = []
    for user, length in pieces:
        if joined and joined[-1][0] == user:
            joined[-1] = (user, joined[-1][1] + length)
        else:
            joined.append((user, length))
    return joined


def _num_shared(known: "array[int]", path: "array[int]", first: int) -> int:
    """How far a segment and a path agree, at least one chunk."""
    most = min(len(known), len(path) - first)
    return num_leading(1, most, lambda n: known[n - 1] == path[first + n - 1])
