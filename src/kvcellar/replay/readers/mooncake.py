"""Mooncake's JSON lines: one request a line, ids of 512-token blocks.

``timestamp`` is in milliseconds, ``input_length`` and ``output_length`` in tokens, and
``hash_ids`` names each block of the prompt together with everything before it. The last
id may stand for a partial block; such an id is dropped, since only full blocks are
reusable.

Source: the README of the traces published with Mooncake (FAST'25).
"""

from collections.abc import Iterable

from kvcellar.replay.readers.reader import ReadSettings
from kvcellar.replay.readers.record import Record
from kvcellar.replay.trace import TraceRequest

DEFAULT_BLOCK_TOKENS = 512
_MILLISECONDS = 1000.0


def recognises(value: object) -> bool:
    """Whether a trace whose first record is ``value`` is of this format."""
    return isinstance(value, dict) and {"hash_ids", "input_length"} <= value.keys()


class MooncakeReader:
    """Reads Mooncake traces; see the module."""

    is_absolute = True

    def __init__(self, settings: ReadSettings) -> None:
        self.block_tokens = settings.block_tokens or DEFAULT_BLOCK_TOKENS

    def read(self, record: Record) -> Iterable[TraceRequest]:
        """Turn one line into one request."""
        fields = record.fields()
        ids = fields.ids("hash_ids")
        size = self.block_tokens
        num_full = fields.num_full_blocks(len(ids), "hash_ids", "input_length", size)
        return (
            TraceRequest(
                fields.number("timestamp") / _MILLISECONDS,
                fields.whole("input_length"),
                fields.whole("output_length"),
                ids[:num_full],
            ),
        )

    def finish(self) -> Iterable[TraceRequest]:
        """Nothing is left over in this format."""
        return ()
