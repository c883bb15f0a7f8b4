"""Reading MessagePack values that follow one another in a file.

vLLM publishes its events in this encoding, and a recording is the payloads one after
the other.
"""

import importlib
from collections.abc import Iterator
from typing import BinaryIO

from kvcellar.errors import ConfigError

_NUM_CHUNK_BYTES = 2**16


class MessagePackError(ValueError):
    """The bytes are not MessagePack, or end in the middle of a value."""


def read_values(stream: BinaryIO) -> Iterator[object]:
    """Yield the values of a stream: texts, bytes, numbers, lists, dicts, None.

    Raises:
        MessagePackError: at the first byte that makes no sense, or at an early end.
        ConfigError: the package ``msgpack`` is not installed.
    """
    try:
        msgpack = importlib.import_module("msgpack")
    except ImportError as error:
        raise ConfigError(
            "this trace is in MessagePack, which needs the package msgpack: install "
            "it, or record the events as JSON lines"
        ) from error
    unpacker = msgpack.Unpacker(strict_map_key=False)
    num_bytes = end = 0
    try:
        while data := stream.read(_NUM_CHUNK_BYTES):
            num_bytes += len(data)
            unpacker.feed(data)
            for value in unpacker:
                end = unpacker.tell()
                yield value
    except (msgpack.UnpackException, TypeError) as error:
        raise MessagePackError(str(error) or type(error).__name__) from error
    except UnicodeDecodeError:
        raise
    except ValueError as error:
        raise MessagePackError(str(error)) from error
    if end != num_bytes:
        raise MessagePackError("the file ends in the middle of a value")
