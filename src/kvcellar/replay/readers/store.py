"""Where the requests of a trace live: columns, and ids as runs.

Requests are made when they are walked over, so that a trace of tens of thousands of
prompts with thousands of ids each takes megabytes.
"""

import math
from array import array
from collections.abc import Iterator

import numpy as np

from kvcellar.replay.readers.arrivals import Arrivals, settle
from kvcellar.replay.readers.ids import Ids, Packed, pack, unpack
from kvcellar.replay.trace import TraceRequest

NO_TIME = math.nan
"""Arrival of a request whose trace does not tell it, until the trace is settled."""


class StoredRequests:
    """Requests, in the order in which they were added until `settle` is called."""

    def __init__(self) -> None:
        self._seconds = array("d")
        self._num_prompt_tokens = array("q")
        self._num_output_tokens = array("q")
        self._blocks: list[Packed] = []
        self._output_blocks: list[Packed] = []
        self._sessions: list[str] = []
        self._order: Ids | None = None
        self._num_joined = 1

    def add(self, request: TraceRequest) -> None:
        """Take one request; its time may be `NO_TIME` or out of order for now."""
        self._seconds.append(request.arrival_seconds)
        self._num_prompt_tokens.append(request.num_prompt_tokens)
        self._num_output_tokens.append(request.num_output_tokens)
        self._blocks.append(pack(request.blocks))
        self._output_blocks.append(pack(request.output_blocks))
        self._sessions.append(request.session)

    def settle(self, arrivals: Arrivals, *, is_absolute: bool) -> None:
        """Put the requests in the order of arrival; see `arrivals.settle`."""
        recorded = np.frombuffer(self._seconds, dtype=np.float64)
        self._order, ordered = settle(recorded, arrivals, is_absolute=is_absolute)
        self._seconds = array("d", ordered.tobytes())

    def join_blocks(self, num_joined: int) -> None:
        """Give only every so many-th id: it stands for the prefix that ends there."""
        self._num_joined = num_joined

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[TraceRequest]:
        order = range(len(self)) if self._order is None else self._order
        step = self._num_joined
        for seconds, place in zip(self._seconds, order, strict=True):
            blocks = unpack(self._blocks[place])
            output_blocks = unpack(self._output_blocks[place])
            if step > 1:
                output_blocks = output_blocks[-(len(blocks) + 1) % step :: step]
                blocks = blocks[step - 1 :: step]
            yield TraceRequest(
                seconds,
                self._num_prompt_tokens[place],
                self._num_output_tokens[place],
                blocks,
                output_blocks,
                self._sessions[place],
            )
