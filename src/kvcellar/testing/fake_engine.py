"""A small engine around the planner: real decisions, pretended bytes.

Device and host memory are dictionaries from a place to *what it must contain*: the
group and the prefix hash that a block stands for. Actions are carried out late and in
order, as a worker would. Whenever a load ends, every block that the group's rule will
read must contain what this prompt's prefix demands; a wrong one raises.

What it leaves out, vLLM's real scheduler has: admission, batching, its own prefix
cache. It is for the planner's own tests, where it runs thousands of steps a second.
"""

import hashlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from kvcellar.attention.hybrid import HybridRules
from kvcellar.config import Settings
from kvcellar.core import actions, events
from kvcellar.core.controls import NO_CONTROLS, RequestControls
from kvcellar.core.offloader import Offloader
from kvcellar.layout.groups import CacheLayout
from kvcellar.layout.host import HostGeometry

Content = tuple[int, bytes]  # layout position, prefix hash at the block's end
GARBAGE: Content = (-1, b"")


class WrongBytesError(AssertionError):
    """A request would have read bytes of another prefix."""


def prefix_hashes(tokens: Sequence[int], hash_block_tokens: int) -> list[bytes]:
    """Chained hashes of the full hash blocks of ``tokens``."""
    hashes: list[bytes] = []
    parent = b"root"
    for end in range(hash_block_tokens, len(tokens) + 1, hash_block_tokens):
        block = repr(tokens[end - hash_block_tokens : end]).encode()
        parent = hashlib.sha256(parent + block).digest()[:8]
        hashes.append(parent)
    return hashes


@dataclass
class FakeRequest:
    """One request and its block tables: a device block id, or 0, per index."""

    request_id: str
    tokens: list[int]
    num_prompt_tokens: int
    hashes: list[bytes]
    tables: list[list[int]]
    num_computed: int = 0
    is_loading: bool = False

    def block_ids(self, group_id: int, indices: range) -> list[int]:
        """As ``BlockTables``; the fake engine's group ids are layout positions."""
        row = self.tables[group_id]
        return [row[index] if index < len(row) else 0 for index in indices]

    def is_kept(self, group_id: int, index: int) -> bool:
        """Never: the fake engine has no prefix cache of its own."""
        del group_id, index
        return False


@dataclass
class FakeEngine:
    """Drives an ``Offloader`` as a scheduler would.

    Attributes:
        loaded_tokens: tokens served from host memory so far.
        failing: job directions that fail from now on ("store", "load", "move").
    """

    layout: CacheLayout
    geometry: HostGeometry
    settings: Settings
    requests: dict[str, FakeRequest] = field(default_factory=dict)
    loaded_tokens: int = 0
    failing: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Build the planner and empty memories."""
        self.rules = HybridRules(self.layout)
        self.offloader = Offloader(self.layout, self.geometry, self.settings)
        self.device: dict[int, Content] = {}
        self.host: dict[tuple[int, int, int], Content] = {}
        self.queue: deque[actions.Action] = deque()
        self._free: list[int] = []
        self._pinned: dict[int, list[int]] = {}
        self._num_pins: dict[int, int] = {}
        self._next_block = 1
        self._now = 0.0
        self._is_inconsistent = False  # as in a worker, no load follows a failed move

    # -- what a scheduler does -----------------------------------------------------

    def start(
        self,
        request_id: str,
        tokens: list[int],
        *,
        accept: bool = True,
        controls: RequestControls = NO_CONTROLS,
        tenant: str | None = None,
    ) -> FakeRequest:
        """Look up a new prompt and load what is promised.

        Args:
            request_id: must be new.
            tokens: the prompt.
            accept: whether the engine goes through with the load.
            controls: the request's wishes.
            tenant: who pays for what is stored of it.
        """
        if controls is not NO_CONTROLS or tenant is not None:
            self._handle(events.Arrived(request_id, controls, tenant=tenant))
        hashes = prefix_hashes(tokens, self.layout.hash_block_tokens)
        tables: list[list[int]] = [[] for _ in self.layout.groups]
        request = FakeRequest(request_id, tokens, len(tokens), hashes, tables)
        self.requests[request_id] = request
        promised = self.look_up(request)
        external = promised if accept else 0
        self._allocate_for_load(request, external)
        self._handle(events.Allocated(request_id, external, request))
        if external:
            request.is_loading = True
            request.num_computed = external
        return request

    def look_up(self, request: FakeRequest, *, local_tokens: int = 0) -> int:
        """Ask how much can be loaded; verifies the promise's form."""
        (promise,) = self._handle(
            events.LookUp(
                request.request_id, request.hashes, len(request.tokens), local_tokens
            )
        )
        assert isinstance(promise, actions.Promise)
        boundary = local_tokens + promise.external_tokens
        assert boundary <= len(request.tokens) - 1 or not promise.external_tokens
        assert boundary % self.layout.chunk_tokens == 0
        return promise.external_tokens

    def compute(self, request: FakeRequest, num_tokens: int) -> None:
        """Run one step of a request: plan, then write its blocks."""
        first = request.num_computed
        computed = min(first + num_tokens, len(request.tokens))
        self._grow_tables(request, computed)
        self._handle(
            events.TokensComputed(
                request.request_id,
                request.hashes,
                request.num_prompt_tokens,
                first,
                computed,
                request,
            )
        )
        self._write(request, first, computed)
        request.num_computed = computed
        self._leave_windows(request)

    def decode(self, request: FakeRequest, token: int) -> None:
        """Sample one token and compute it."""
        request.tokens.append(token)
        request.hashes[:] = prefix_hashes(request.tokens, self.layout.hash_block_tokens)
        self.compute(request, 1)

    def finish(self, request: FakeRequest) -> None:
        """End a request in any state; its blocks may be reused unless pinned."""
        self._handle(events.RequestFinished(request.request_id))
        del self.requests[request.request_id]
        for row in request.tables:
            for block in row:
                self._give_back(block)

    def reset(self) -> bool:
        """Forget everything, as after a weight update."""
        (answer,) = self._handle(events.Reset())
        assert isinstance(answer, actions.ResetAnswer)
        return answer.is_done

    def run_jobs(self, most: int | None = None) -> None:
        """Let the worker carry out jobs, all of them by default."""
        while self.queue and most != 0:
            most = None if most is None else most - 1
            self._carry_out(self.queue.popleft())

    # -- memory --------------------------------------------------------------------

    def demand(self, request: FakeRequest, position: int, index: int) -> Content:
        """What block ``index`` of a group must contain for this request's prefix."""
        end = (index + 1) * self.layout.groups[position].tokens_per_block
        return position, request.hashes[end // self.layout.hash_block_tokens - 1]

    def _handle(self, event: events.Event) -> list[actions.Action]:
        self._now += 1.0
        answers: list[actions.Action] = []
        for action in self.offloader.handle(event, self._now):
            if isinstance(action, actions.Store):
                self._pin(action)
            if isinstance(action, (actions.Promise, actions.ResetAnswer)):
                answers.append(action)
            else:
                self.queue.append(action)
        return answers

    def _pin(self, action: actions.Store) -> None:
        blocks = [b for copy in action.copies for b in copy.device_blocks]
        self._pinned[action.job_id] = blocks
        for block in blocks:
            self._num_pins[block] = self._num_pins.get(block, 0) + 1

    def _take_block(self) -> int:
        for place, block in enumerate(self._free):
            if not self._num_pins.get(block):
                del self._free[place]
                self.device[block] = GARBAGE
                return block
        self._next_block += 1
        return self._next_block - 1

    def _give_back(self, block: int) -> None:
        if block:
            self._free.append(block)

    def _allocate_for_load(self, request: FakeRequest, boundary: int) -> None:
        if not boundary:
            return
        for position, rule in enumerate(self.rules.rules):
            row = request.tables[position]
            needed = rule.needed(boundary)
            for index in range(boundary // rule.tokens_per_block):
                row.append(self._take_block() if index in needed else 0)

    def _grow_tables(self, request: FakeRequest, computed: int) -> None:
        for position, group in enumerate(self.layout.groups):
            row = request.tables[position]
            while len(row) * group.tokens_per_block < computed:
                row.append(self._take_block())

    def _write(self, request: FakeRequest, first: int, computed: int) -> None:
        """Blocks that the step completes contain what their prefix demands."""
        for position, group in enumerate(self.layout.groups):
            size = group.tokens_per_block
            for index in range(first // size, computed // size):
                block = request.tables[position][index]
                if block:
                    self.device[block] = self.demand(request, position, index)

    def _leave_windows(self, request: FakeRequest) -> None:
        """Drop blocks that the next token no longer reads, as the engine does."""
        for position, rule in enumerate(self.rules.rules):
            row = request.tables[position]
            size = rule.tokens_per_block
            boundary = request.num_computed
            first = min(rule.needed(boundary), default=boundary // size)
            for index in range(min(first, len(row))):
                self._give_back(row[index])
                row[index] = 0

    # -- the worker ----------------------------------------------------------------

    def _carry_out(self, action: actions.Action) -> None:
        if isinstance(action, actions.LoadRefused):
            raise WrongBytesError(f"{action.request_id} was promised what cannot load")
        assert isinstance(action, (actions.Store, actions.Load, actions.Move))
        kind = type(action).__name__.lower()
        has_failed = kind in self.failing
        if isinstance(action, actions.Load) and self._is_inconsistent:
            has_failed = True
        if isinstance(action, actions.Move):
            self._move(action, has_failed=has_failed)
            self._is_inconsistent |= has_failed
        else:
            self._copy(action, has_failed=has_failed)
        self._handle(events.JobDone(action.job_id, has_failed))
        for block in self._pinned.pop(action.job_id, ()):
            self._num_pins[block] -= 1
        if isinstance(action, actions.Load):
            self._end_load(action.request_id, has_failed=has_failed)

    def _place(self, position: int, host_block: int) -> tuple[int, int, int]:
        num_blocks = self.geometry.blocks_per_cell[position]
        cell, j = divmod(host_block, num_blocks)
        return self.geometry.class_of[position], cell, j

    def _copy(self, action: actions.Store | actions.Load, *, has_failed: bool) -> None:
        for copy in action.copies:
            for block, host in zip(copy.device_blocks, copy.host_blocks, strict=True):
                place = self._place(copy.position, host)
                if isinstance(action, actions.Store):
                    content = self.device.get(block, GARBAGE)
                    self.host[self._bytes_at(place)] = (
                        GARBAGE if has_failed else content
                    )
                elif not has_failed:
                    self.device[block] = self.host.get(self._bytes_at(place), GARBAGE)

    def _bytes_at(self, place: tuple[int, int, int]) -> tuple[int, int, int]:
        """Place by slab and byte offset, since slabs change their size class."""
        class_id, cell, j = place
        size_class = self.geometry.classes[class_id]
        slab, slot = divmod(cell, size_class.cells_per_slab)
        return slab, slot * size_class.cell_bytes, j

    def _move(self, action: actions.Move, *, has_failed: bool) -> None:
        for move in action.moves:
            for j in range(self.geometry.blocks_per_cell[move.position]):
                class_id = self.geometry.class_of[move.position]
                source = self._bytes_at((class_id, move.source, j))
                target = self._bytes_at((class_id, move.destination, j))
                content = self.host.get(source, GARBAGE)
                self.host[target] = GARBAGE if has_failed else content

    def _end_load(self, request_id: str, *, has_failed: bool) -> None:
        request = self.requests.get(request_id)
        if request is None:
            return
        request.is_loading = False
        if has_failed:
            self.finish(request)
            return
        self.loaded_tokens += request.num_computed
        for position, rule in enumerate(self.rules.rules):
            for index in rule.needed(request.num_computed):
                block = request.tables[position][index]
                if self.device.get(block) != self.demand(request, position, index):
                    raise WrongBytesError(
                        f"{request_id}: group {position} block {index} holds "
                        f"{self.device.get(block)}"
                    )
