"""From a path to records: JSON lines, one JSON document a file, or MessagePack.

A folder is read file by file in the order of the names; what does not look like a trace
by its name is left alone. What cannot be read comes out as an error in its place, so
that the caller decides whether it ends the reading or is counted.
"""

import json
import pathlib
from collections.abc import Iterator
from io import BufferedReader

from kvcellar.errors import TraceError
from kvcellar.layout.models.paths import is_there
from kvcellar.replay.readers.msgpack import MessagePackError, read_values
from kvcellar.replay.readers.opening import DAMAGE_ERRORS, open_stream
from kvcellar.replay.readers.record import Record

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_TRACE_SUFFIXES = frozenset({".json", ".jsonl", ".ndjson", ".msgpack"})


def read_records(path: pathlib.Path) -> Iterator[Record | TraceError]:
    """Yield the records of a file or folder, and errors where there is none to yield.

    Raises:
        TraceError: a file cannot be opened, or the folder holds no trace.
        ConfigError: a file's compression needs a package that is not installed.
    """
    for file in _files(path):
        yield from _file_records(file)


def _files(path: pathlib.Path) -> list[pathlib.Path]:
    if not (is_there(path) and path.is_dir()):
        return [path]
    found = sorted(
        file
        for file in path.iterdir()
        if file.is_file() and _TRACE_SUFFIXES.intersection(file.suffixes)
    )
    if not found:
        wanted = ", ".join(sorted(_TRACE_SUFFIXES))
        problem = f"the folder holds no trace, expected files named {wanted}"
        raise TraceError(str(path), 0, problem, is_fatal=True)
    return found


def _file_records(path: pathlib.Path) -> Iterator[Record | TraceError]:
    line = 0
    with open_stream(path) as stream:
        try:
            for item in _stream_records(str(path), stream):
                line = item.line
                yield item
        except DAMAGE_ERRORS as error:
            problem = f"the file is damaged or cut short from here on: {error}"
            yield TraceError(str(path), line + 1, problem)


def _stream_records(path: str, stream: BufferedReader) -> Iterator[Record | TraceError]:
    head = stream.peek(len(_BYTE_ORDER_MARK))[: len(_BYTE_ORDER_MARK)]
    if head == _BYTE_ORDER_MARK:
        stream.read(len(_BYTE_ORDER_MARK))
    elif (
        head and head[0] >= 0x80
    ):  # JSON begins with ASCII, a MessagePack list or map not
        return _packed_records(path, stream)
    return _json_records(path, stream)


def _packed_records(path: str, stream: BufferedReader) -> Iterator[Record | TraceError]:
    number = 0
    try:
        for number, value in enumerate(read_values(stream), start=1):
            yield Record(path, number, value)
    except (MessagePackError, UnicodeDecodeError) as error:
        problem = f"not MessagePack from here on: {error}"
        yield TraceError(path, number + 1, problem)


def _json_records(path: str, stream: BufferedReader) -> Iterator[Record | TraceError]:
    has_seen_text = False
    for number, line in enumerate(stream, start=1):
        if not line.strip():
            continue
        item = _parse(path, number, line)
        if not has_seen_text and _is_document_start(line):
            yield _parse(path, number, line + stream.read())
            return
        has_seen_text = True
        yield item


def _is_document_start(line: bytes) -> bool:
    """Whether a line fails only because the document goes on in the next one."""
    try:
        json.loads(line)
    except json.JSONDecodeError as error:
        return error.pos >= len(error.doc.rstrip())
    except (ValueError, RecursionError):
        pass
    return False


def _parse(path: str, line: int, text: bytes) -> Record | TraceError:
    try:
        return Record(path, line, json.loads(text))
    except (ValueError, RecursionError) as error:
        problem = f"not JSON: {error}; expected one JSON value per line"
        return TraceError(path, line, problem)
