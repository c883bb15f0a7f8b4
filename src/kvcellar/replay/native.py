"""vLLM's own two offload connectors in a replay, for comparison.

Both keep a whole row of the engine's pool for every block of every group, store what
the device's prefix cache keeps (chunks, and windows at the end of a prompt and where
it leaves a known path), and answer with the longest prefix they hold beyond the
device's. They differ in who goes first:

* *simple* (SimpleCPUOffloadConnector, eager): a block pool like the device's. Blocks
  return to its queue from the first to the last, so a prompt loses its beginning first.
* *offloading* (OffloadingConnector with its CPU manager): at a request's end all that
  it loaded or offered becomes recent, the last block least. A request that loads does
  not offer what the device had, so that part grows old. Prompts only.

Source: v1/simple_kv_offload and v1/kv_offload of vLLM 0.32 with default settings. A
unit of the trace is kept or lost as a whole.
"""

from collections import OrderedDict
from collections.abc import Iterator, Set
from dataclasses import dataclass, field

from kvcellar.core import events
from kvcellar.layout.groups import CacheLayout
from kvcellar.replay.device_rows import DeviceRows
from kvcellar.replay.host_base import Host, HostJob, StepBlocks

Key = tuple[str, bytes]  # chunk or tail, and the prefix hash at its end
_CHUNK, _TAIL = "chunk", "tail"
_WORDS = {_CHUNK: "chunks", _TAIL: "checkpoints"}  # as kvcellar counts them
_COUNTED = (
    *(f"{what}_{word}" for what in ("stored", "evicted") for word in _WORDS.values()),
    "stores_without_room",
)


@dataclass(slots=True, eq=False)
class _Request:
    """What a request has to do with host memory.

    Attributes:
        touched: keys it loaded or offered, in order.
        offered: chunks offered so far, from the prompt's start.
        pinned: keys that a load reads.
    """

    keys: events.LookUp
    touched: dict[Key, None] = field(default_factory=dict)
    offered: int = 0
    pinned: list[Key] = field(default_factory=list)


class NativeHost(Host):
    """Rows by key, in the order in which they go.

    Args:
        layout: the coarse layout.
        rows: what things take, in blocks of the model's own size.
        row_bytes: of one block of any group in the engine's pool.
        host_bytes: size of host memory.
        name: ``"simple"`` or ``"offloading"``.
    """

    is_prefix_closed = False

    def __init__(
        self,
        layout: CacheLayout,
        rows: DeviceRows,
        row_bytes: int,
        host_bytes: int,
        name: str,
    ) -> None:
        super().__init__(layout)
        self._is_simple = name == "simple"
        self._rows = {_CHUNK: rows.chunk, _TAIL: rows.tail}
        self._row_bytes = row_bytes
        self._num_free = host_bytes // row_bytes
        self._stride = layout.chunk_tokens // layout.hash_block_tokens
        self._held: OrderedDict[Key, None] = OrderedDict()
        self._pins: dict[Key, int] = {}
        self._requests: dict[str, _Request] = {}
        self._loads: dict[int, list[Key]] = {}
        self._num_jobs = 0
        self._counts = dict.fromkeys(_COUNTED, 0)

    # -- look-up and load ----------------------------------------------------------

    def look_up(self, event: events.LookUp, now: float) -> int:
        """Tokens beyond the local ones that can be loaded."""
        self._requests[event.request_id] = _Request(event)
        local = event.local_tokens // self._unit
        num_chunks = len(event.hashes) // self._stride
        limit = min((event.num_tokens - 1) // self._unit, num_chunks)
        depth = local
        while depth < limit and self._chunk(event, depth + 1) in self._held:
            depth += 1
        if self._rows[_TAIL]:
            while depth > local and self._tail(event, depth) not in self._held:
                depth -= 1
        return (depth - local) * self._unit

    def _chunk(self, event: events.LookUp, depth: int) -> Key:
        return (_CHUNK, event.hashes[depth * self._stride - 1])

    def _tail(self, event: events.LookUp, depth: int) -> Key:
        return (_TAIL, event.hashes[depth * self._stride - 1])

    def allocated(
        self, request_id: str, external_tokens: int, tables: StepBlocks, now: float
    ) -> HostJob | None:
        """The request has its blocks; the load, if there is one."""
        request = self._requests[request_id]
        event = request.keys
        if not external_tokens:
            return None
        first = event.local_tokens // self._unit
        last = first + external_tokens // self._unit
        loaded = [self._chunk(event, depth) for depth in range(first + 1, last + 1)]
        if self._rows[_TAIL]:
            loaded.append(self._tail(event, last))
        request.touched.update(dict.fromkeys(loaded))
        request.offered = last
        for key in loaded:
            self._pins[key] = self._pins.get(key, 0) + 1
        job = self._job(loaded)
        self._loads[job.job_id] = loaded
        return job

    def done(self, job_id: int, now: float) -> None:
        """A load has ended: its rows may go again, the first of them first."""
        for key in self._loads.pop(job_id, ()):
            self._pins[key] -= 1
            if not self._pins[key]:
                del self._pins[key]
            if self._is_simple and key in self._held:
                self._held.move_to_end(key)

    # -- store ---------------------------------------------------------------------

    def computed(self, event: events.TokensComputed, now: float) -> list[HostJob]:
        """Stores of a step: what is complete and kept by the device."""
        request = self._requests[event.request_id]
        offered = list(self._offer(request, event))
        if not self._is_simple:
            request.touched.update(dict.fromkeys(offered))
        missing = [key for key in offered if key not in self._held]
        protected = set(offered)
        stored = [key for key in missing if self._store(key, protected)]
        return [self._job(stored)] if stored else []

    def _offer(self, request: _Request, event: events.TokensComputed) -> Iterator[Key]:
        end = event.computed_tokens
        if not self._is_simple:
            end = min(end, event.num_prompt_tokens)
        last = min(end // self._unit, len(event.hashes) // self._stride)
        for depth in range(request.offered + 1, last + 1):
            yield self._chunk(request.keys, depth)
        request.offered = max(request.offered, last)
        assert isinstance(event.tables, StepBlocks)
        for boundary in sorted(event.tables.kept):
            if self._rows[_TAIL] and event.first_token < boundary <= end:
                yield self._tail(request.keys, boundary // self._unit)

    def _store(self, key: Key, protected: Set[Key]) -> bool:
        num_rows = self._rows[key[0]]
        while self._num_free < num_rows:
            if not self._evict_one(protected):
                self._counts["stores_without_room"] += 1
                return False
        self._num_free -= num_rows
        self._held[key] = None
        self._counts[f"stored_{_WORDS[key[0]]}"] += 1
        return True

    def _evict_one(self, protected: Set[Key]) -> bool:
        for key in self._held:
            if key not in self._pins and key not in protected:
                del self._held[key]
                self._num_free += self._rows[key[0]]
                self._counts[f"evicted_{_WORDS[key[0]]}"] += 1
                return True
        return False

    # -- ends ----------------------------------------------------------------------

    def finished(self, request_id: str, now: float) -> None:
        """*offloading*: what the request touched becomes recent, its end least."""
        request = self._requests.pop(request_id)
        if not self._is_simple:
            for key in reversed(request.touched):
                if key in self._held:
                    self._held.move_to_end(key)

    def is_held(self, key: bytes) -> bool:
        """Whether the chunk is there; what is stored can be found at once."""
        return (_CHUNK, key) in self._held

    is_ready = is_held

    def counters(self) -> dict[str, int]:
        """What has been counted, by name."""
        return dict(self._counts)

    def _job(self, keys: list[Key]) -> HostJob:
        self._num_jobs += 1
        num_rows = sum(self._rows[kind] for kind, _ in keys)
        return HostJob(self._num_jobs, num_rows * self._row_bytes)
