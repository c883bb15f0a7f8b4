"""vLLM's KV events as a trace. This is an APPROXIMATION: read its limits below.

vLLM publishes which blocks it stores, not which requests it serves. A request is taken
to be a chain of stored blocks: an event that names no parent, or a parent that is not
the end of a request being stored, begins one, whose prompt is the path to the parent
and the new blocks. An event whose parent is the end of a request joins it if it comes
within `REQUEST_GAP_SECONDS`: a long prefill, or decoding.

* The time is that of the step that stored the first block, not that of the arrival.
* A prompt that the engine had complete stores nothing and is not seen, unless the
  engine reports re-used blocks. So re-use is understated.
* Generated blocks count as prompt, and a next turn that comes at once joins the one
  before it. Lengths are full blocks, and there are no output tokens.
* Blocks whose beginning was stored before the recording began start a prompt of their
  own.

The events of one group are followed: that of the first stored block whose group keeps
all its blocks (full attention or MLA, or a kind that is not said), and only what is
stored on the device. After ``AllBlocksCleared`` equal hashes are other prefixes: the
engine clears its cache when the weights change.

A record is a batch, or one event with a time (``ts``) of its own. Files are JSON lines,
or the MessagePack payloads of vLLM's publisher one after the other.

Source: vllm/distributed/kv_events.py of vLLM 0.32, where events are objects; earlier
releases wrote them as arrays, which are read as well.
"""

from collections.abc import Iterable, Iterator

from kvcellar.errors import TraceError
from kvcellar.replay.readers.event_chains import BlockHash, EventChains, StoredBlocks
from kvcellar.replay.readers.reader import ReadSettings
from kvcellar.replay.readers.record import Fields, Record, fields_of
from kvcellar.replay.readers.shorten import shorten
from kvcellar.replay.trace import TraceRequest

# Order of the fields where an event is an array, behind its name.
_ARRAY_FIELDS = {
    "BlockStored": (
        "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id",
        "medium", "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind",
    ),
    "BlockRemoved": ("block_hashes", "medium", "group_idx"),
    "AllBlocksCleared": (),
}  # fmt: skip
_APPEND_ONLY_KINDS = (None, "full_attention", "mla_attention", "sink_full_attention")
_DEVICE = (None, "GPU")
_TIMES = ("ts", "timestamp", "time")


def recognises(value: object) -> bool:
    """Whether a trace whose first record is ``value`` is of this format."""
    if isinstance(value, list):
        return (
            len(value) > 1
            and isinstance(value[0], int | float)
            and isinstance(value[1], list)
        )
    if not isinstance(value, dict):
        return False
    return value.get("type") in _ARRAY_FIELDS or isinstance(value.get("events"), list)


class KVEventsReader:
    """Reads recorded KV events; see the module."""

    is_absolute = True

    def __init__(self, settings: ReadSettings) -> None:
        self._settings = settings
        self._chains = EventChains()
        self._group: object = None
        self.block_tokens = 0

    def read(self, record: Record) -> Iterable[TraceRequest]:
        """Take one batch, or one event; give the requests that a clearing ends."""
        seconds, events = _batch(record)
        stored = [self._stored(event) for event in events]  # all is checked before use
        finished: list[TraceRequest] = []
        for event, blocks in zip(events, stored, strict=True):
            if blocks is not None:
                self._chains.store(blocks, seconds)
            elif event.data["type"] == "AllBlocksCleared":
                finished.extend(self._take_requests())
                self._chains.clear()
        return finished

    def finish(self) -> Iterable[TraceRequest]:
        """Give the requests that were still being stored."""
        return self._take_requests()

    def _take_requests(self) -> list[TraceRequest]:
        size = self.block_tokens
        return [
            TraceRequest(
                chain.first_seconds,
                len(blocks) * size,
                0,
                blocks,
                session=chain.session,
            )
            for chain, blocks in self._chains.take_all()
        ]

    def _stored(self, event: Fields) -> StoredBlocks | None:
        if event.data["type"] != "BlockStored":
            return None
        if event.data.get("medium") not in _DEVICE or not self._is_followed(event):
            return None
        hashes = [
            _hash(event, "block_hashes", item) for item in event.items("block_hashes")
        ]
        parent = event.data.get("parent_block_hash")
        if parent is not None:
            parent = _hash(event, "parent_block_hash", parent)
        session = event.text("session_id", "")
        return StoredBlocks(hashes, parent, session) if hashes else None

    def _is_followed(self, event: Fields) -> bool:
        block_tokens = event.whole("block_size")
        if block_tokens == 0:
            raise event.error("block_size", "a number above zero")
        group = event.data.get("group_idx")
        if self.block_tokens:
            return (group, block_tokens) == (self._group, self.block_tokens)
        if event.data.get("kv_cache_spec_kind") not in _APPEND_ONLY_KINDS:
            return False
        self._group = group
        self.block_tokens = self._settings.accept_block_tokens(block_tokens)
        return True


def _batch(record: Record) -> tuple[float, list[Fields]]:
    if isinstance(record.value, list):
        if not recognises(record.value):
            problem = (
                f"batch is {shorten(record.value)}, expected [time, [events], ...]"
            )
            raise TraceError(record.path, record.line, problem)
        seconds, events = record.value[:2]
        named = Fields(record.path, record.line, {"ts": seconds, "events": events})
    else:
        named = record.fields()
        events = named.items("events") if "events" in named.data else [named.data]
    return _seconds(named), list(_events(record, events))


def _seconds(fields: Fields) -> float:
    for name in _TIMES:
        if name in fields.data:
            return fields.number(name)
    raise fields.error(_TIMES[0], "seconds")


def _events(record: Record, events: list[object]) -> Iterator[Fields]:
    for position, event in enumerate(events):
        place = f"events[{position}]"
        if isinstance(event, list) and event and event[0] in _ARRAY_FIELDS:
            names = _ARRAY_FIELDS[event[0]]
            event = {"type": event[0], **dict(zip(names, event[1:], strict=False))}
        fields = fields_of(record.path, record.line, event, place)
        if fields.data.get("type") not in _ARRAY_FIELDS:
            raise fields.error("type", f"one of {', '.join(_ARRAY_FIELDS)}")
        yield fields


def _hash(event: Fields, name: str, value: object) -> BlockHash:
    if isinstance(value, bytes | str | int) and not isinstance(value, bool):
        return value
    raise event.error(name, "bytes, texts or integers")
