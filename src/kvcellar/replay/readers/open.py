"""The way in: from a path to a trace, whatever the format."""

import logging
import os
import pathlib
from collections.abc import Callable
from typing import NamedTuple

from kvcellar.errors import ConfigError, TraceError
from kvcellar.replay.readers import (
    event_log,
    kv_events,
    mooncake,
    openai,
    sessions,
    weka,
)
from kvcellar.replay.readers.arrivals import Arrivals
from kvcellar.replay.readers.reader import FormatReader, ReadSettings
from kvcellar.replay.readers.record import Record
from kvcellar.replay.readers.records import read_records
from kvcellar.replay.readers.shorten import shorten
from kvcellar.replay.readers.store import StoredRequests
from kvcellar.replay.trace import Trace

logger = logging.getLogger(__name__)


class _Format(NamedTuple):
    recognises: Callable[[object], bool]
    make: Callable[[ReadSettings], FormatReader]


_FORMATS = {
    event_log.FORMAT_NAME: _Format(event_log.recognises, event_log.EventLogReader),
    "mooncake": _Format(mooncake.recognises, mooncake.MooncakeReader),
    "weka": _Format(weka.recognises, weka.WekaReader),
    "kv-events": _Format(kv_events.recognises, kv_events.KVEventsReader),
    "sessions": _Format(sessions.recognises, sessions.SessionsReader),
    "openai": _Format(openai.recognises, openai.OpenAIReader),
}
FORMATS = tuple(_FORMATS)
"""Names of the formats that can be read."""


def open_trace(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,  # noqa: A002 - the word that users write
    skip_bad: bool = False,
    tokenizer: str | None = None,
    block_tokens: int | None = None,
    arrivals: Arrivals | None = None,
) -> Trace:
    """Read a recorded trace; the result can be walked any number of times.

    Plain, gzip, xz and zstd files are told by their content. So is the format, by the
    first record. A folder is read file by file, in the order of the names. Requests
    whose times go backwards are sorted; those that share one keep their order.

    Args:
        path: file or folder.
        format: one of `FORMATS`; None recognises it.
        skip_bad: leave out records that cannot be read and count them in the trace.
        tokenizer: for text: name or folder of a tokenizer of the transformers package,
            from local files; None counts bytes of UTF-8 as tokens.
        block_tokens: tokens per prefix id; None takes what the format or file says, a
            multiple of that joins blocks.
        arrivals: what to assume about arrival times.

    Raises:
        TraceError: a record cannot be read (file, line, field, value, what is
            expected), or the whole file cannot.
        ConfigError: an argument cannot be meant, or needs a package or tokenizer that
            is not there.
    """
    if format is not None and format not in _FORMATS:
        known = ", ".join(FORMATS)
        raise ConfigError(
            f"trace format {format!r} is unknown, expected one of {known}"
        )
    settings = ReadSettings(block_tokens, tokenizer, arrivals or Arrivals())
    collector = _Collector(settings, format, skip_bad=skip_bad)
    for item in read_records(pathlib.Path(path)):
        collector.take(item)
    return collector.finish(os.fspath(path))


class _Collector:
    """Puts records through the reader of their format, and counts bad ones."""

    def __init__(
        self, settings: ReadSettings, format_name: str | None, *, skip_bad: bool
    ) -> None:
        self._settings = settings
        self._skip_bad = skip_bad
        self._store = StoredRequests()
        self._num_skipped = 0
        self._format_name = ""
        self._reader: FormatReader | None = None
        if format_name is not None:
            self._read_as(format_name)

    def take(self, item: Record | TraceError) -> None:
        """Read one record, all of it or nothing."""
        try:
            if isinstance(item, TraceError):
                raise item
            reader = self._reader or self._read_as(_recognise(item))
            requests = reader.read(item)
        except TraceError as error:
            if error.is_fatal or not self._skip_bad:
                raise
            self._num_skipped += 1
            logger.debug("left out: %s", error)
            return
        for request in requests:
            self._store.add(request)

    def _read_as(self, format_name: str) -> FormatReader:
        self._format_name = format_name
        self._reader = _FORMATS[format_name].make(self._settings)
        return self._reader

    def finish(self, path: str) -> Trace:
        """Make the trace of all that was read."""
        if self._reader is None:
            raise TraceError(path, 0, "holds no record of a trace", is_fatal=True)
        for request in self._reader.finish():
            self._store.add(request)
        if self._num_skipped:
            logger.warning(
                "%s: %d records left out, they cannot be read", path, self._num_skipped
            )
        if not self._reader.block_tokens:
            problem = "holds no record that tells the size of the blocks"
            raise TraceError(path, 0, problem, is_fatal=True)
        self._store.settle(
            self._settings.arrivals, is_absolute=self._reader.is_absolute
        )
        num_joined = self._settings.num_joined(self._reader.block_tokens)
        self._store.join_blocks(num_joined)
        return Trace(
            self._reader.block_tokens * num_joined,
            self._store,
            self._num_skipped,
            self._format_name,
        )


def _recognise(record: Record) -> str:
    for name, known in _FORMATS.items():
        if known.recognises(record.value):
            return name
    problem = (
        f"no known trace format, found {shorten(record.value)}; name one of "
        f"{', '.join(FORMATS)}"
    )
    raise TraceError(record.path, record.line, problem)
