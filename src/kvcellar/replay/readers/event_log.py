"""kvcellar's own trace format, ``kvcellar-events`` version 1: JSON lines.

The first line is the header::

    {"format": "kvcellar-events", "version": 1, "block_tokens": 16}

and each further line one request::

    {"t": 1.5, "prompt_tokens": 70, "output_tokens": 9, "blocks": [1, 2, 3, 4],
     "output_blocks": [], "session": "a"}

``t`` is in seconds since the trace began. ``blocks`` are the prefix ids of the prompt's
full blocks, as 64-bit integers or as texts of hexadecimal digits of which the last 16
count; instead of them ``block_runs`` may hold ``[start, count, start, count, ...]``.
The same holds for ``output_blocks`` and ``output_block_runs``, the full blocks that end
inside the answer. Output blocks and session may be absent. Unknown fields are ignored.
"""

import gzip
import json
import lzma
import os
import pathlib
from array import array
from collections.abc import Iterable
from typing import IO

import numpy as np

from kvcellar.errors import TraceError
from kvcellar.replay.readers.ids import (
    MAX_RUN_BLOCKS,
    IdArray,
    expand_runs,
    id_array,
    pack,
)
from kvcellar.replay.readers.reader import ReadSettings
from kvcellar.replay.readers.record import Fields, Record
from kvcellar.replay.trace import Trace, TraceRequest

FORMAT_NAME = "kvcellar-events"
FORMAT_VERSION = 1


def recognises(value: object) -> bool:
    """Whether a trace whose first record is ``value`` is of this format."""
    return isinstance(value, dict) and value.get("format") == FORMAT_NAME


class EventLogReader:
    """Reads the format of this module."""

    is_absolute = False

    def __init__(self, settings: ReadSettings) -> None:
        self._settings = settings
        self.block_tokens = 0

    def read(self, record: Record) -> Iterable[TraceRequest]:
        """Turn one line into one request; the header of a file into none."""
        if not self.block_tokens or recognises(record.value):
            self._read_header(record)
            return ()
        return (self._request(record.fields()),)

    def finish(self) -> Iterable[TraceRequest]:
        """Nothing is left over in this format."""
        return ()

    def _read_header(self, record: Record) -> None:
        try:
            fields = record.fields()
            if fields.text("format") != FORMAT_NAME:
                raise fields.error("format", f"{FORMAT_NAME!r}")
            if fields.whole("version") != FORMAT_VERSION:
                raise fields.error("version", f"{FORMAT_VERSION}, the one known here")
            recorded = fields.whole("block_tokens")
            if recorded == 0 or self.block_tokens not in (0, recorded):
                expected = str(self.block_tokens or "a number above zero")
                raise fields.error("block_tokens", expected)
        except TraceError as error:
            error.is_fatal = True
            raise
        self.block_tokens = self._settings.accept_block_tokens(recorded)

    def _request(self, fields: Fields) -> TraceRequest:
        name = "block_runs" if "block_runs" in fields.data else "blocks"
        blocks = _ids(fields, "blocks", "block_runs")
        num_full = fields.num_full_blocks(
            len(blocks), name, "prompt_tokens", self.block_tokens
        )
        return TraceRequest(
            _not_negative(fields, "t"),
            fields.whole("prompt_tokens"),
            fields.whole("output_tokens"),
            blocks[:num_full],
            _ids(fields, "output_blocks", "output_block_runs", is_optional=True),
            fields.text("session", ""),
        )


def write_trace(path: str | os.PathLike[str], trace: Trace) -> int:
    """Write a trace in this format; ``.gz`` and ``.xz`` names are compressed.

    Returns:
        Number of requests written.
    """
    header = {
        "format": FORMAT_NAME,
        "version": FORMAT_VERSION,
        "block_tokens": trace.block_tokens,
    }
    num_written = 0
    with _open_for_writing(pathlib.Path(path)) as file:
        file.write(json.dumps(header) + "\n")
        for request in trace.requests:
            file.write(json.dumps(_line(request)) + "\n")
            num_written += 1
    return num_written


def _open_for_writing(path: pathlib.Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "wt", encoding="utf-8")
    if path.suffix == ".xz":
        return lzma.open(path, "wt", encoding="utf-8")
    return path.open("w", encoding="utf-8")


def _line(request: TraceRequest) -> dict[str, object]:
    line: dict[str, object] = {
        "t": request.arrival_seconds,
        "prompt_tokens": request.num_prompt_tokens,
        "output_tokens": request.num_output_tokens,
    }
    line.update(_ids_entry("blocks", "block_runs", request.blocks))
    if request.output_blocks:
        entry = _ids_entry("output_blocks", "output_block_runs", request.output_blocks)
        line.update(entry)
    if request.session:
        line["session"] = request.session
    return line


def _ids_entry(plain: str, runs: str, ids: IdArray) -> dict[str, object]:
    packed = pack(ids)
    if isinstance(packed, array):
        return {plain: packed.tolist()}
    return {runs: packed.T.reshape(-1).tolist()}


def _ids(
    fields: Fields, plain: str, runs: str, *, is_optional: bool = False
) -> IdArray:
    if runs not in fields.data:
        if is_optional and plain not in fields.data:
            return array("q")
        return fields.ids(plain)
    flat = np.frombuffer(fields.ids(runs), dtype=np.int64)
    counts = flat[1::2]
    if len(flat) % 2 or (counts < 1).any():
        raise fields.error(runs, "start, count, start, count, ...")
    if (counts > MAX_RUN_BLOCKS).any() or counts.sum() > MAX_RUN_BLOCKS:
        raise fields.error(runs, f"at most {MAX_RUN_BLOCKS} ids")
    if not len(flat):
        return array("q")
    return id_array(expand_runs(flat.reshape(-1, 2).T))


def _not_negative(fields: Fields, name: str) -> float:
    seconds = fields.number(name)
    if seconds < 0:
        raise fields.error(name, "seconds from 0 up")
    return seconds
