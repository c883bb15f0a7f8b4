"""Opening a file whatever it is compressed with, told by its first bytes."""

import gzip
import importlib
import io
import lzma
import pathlib
import zlib
from typing import BinaryIO, cast

from kvcellar.errors import ConfigError, TraceError

# Source: RFC 1952, the xz file format 1.2, RFC 8878.
_GZIP = b"\x1f\x8b"
_XZ = b"\xfd7zXZ\x00"
_ZSTD = b"\x28\xb5\x2f\xfd"
_NUM_MAGIC_BYTES = 6
_NUM_CHUNK_BYTES = 2**16

# What a decompressor raises for a file that is cut short or damaged.
DAMAGE_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError)


def open_stream(path: pathlib.Path) -> io.BufferedReader:
    """Open a plain, gzip, xz or zstd file for reading its plain bytes.

    Reading may raise one of `DAMAGE_ERRORS` where the file is damaged.

    Raises:
        TraceError: the file cannot be opened.
        ConfigError: it is compressed with zstd, and no package for that is installed.
    """
    try:
        file = path.open("rb")
        magic = file.peek(_NUM_MAGIC_BYTES)[:_NUM_MAGIC_BYTES]
    except OSError as error:
        problem = f"cannot be opened: {error.strerror}; check the name and the rights"
        raise TraceError(str(path), 0, problem, is_fatal=True) from error
    if magic.startswith(_ZSTD):
        return io.BufferedReader(_ZstdReader(file, path))
    if not magic.startswith((_GZIP, _XZ)):
        return file
    file.close()
    plain = gzip.GzipFile if magic.startswith(_GZIP) else lzma.LZMAFile
    return io.BufferedReader(cast("io.RawIOBase", plain(path)))


class _ZstdReader(io.RawIOBase):
    """Plain bytes of a zstd file.

    Frame by frame, since the library's own reader takes a file that is cut short for
    one that ends there.
    """

    def __init__(self, file: BinaryIO, path: pathlib.Path) -> None:
        try:
            zstandard = importlib.import_module("zstandard")
        except ImportError as error:
            file.close()
            raise ConfigError(
                f"{path} is compressed with zstd, which needs the package zstandard: "
                "install it, or unpack the file first"
            ) from error
        self._file = file
        self._error = zstandard.ZstdError
        self._new_frame = zstandard.ZstdDecompressor().decompressobj
        self._frame = self._new_frame()
        self._is_inside_frame = False
        self._rest = b""  # read from the file, but of the next frame
        self._plain = b""  # decompressed, but not handed out yet

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._plain:
            data = self._rest or self._file.read(_NUM_CHUNK_BYTES)
            if data:
                self._feed(data)
            elif self._is_inside_frame:
                raise EOFError("the last frame is not complete")
            else:
                return 0
        num_bytes = min(len(buffer), len(self._plain))
        buffer[:num_bytes] = self._plain[:num_bytes]
        self._plain = self._plain[num_bytes:]
        return num_bytes

    def _feed(self, data: bytes) -> None:
        if not self._is_inside_frame:
            self._frame = self._new_frame()
        try:
            self._plain = self._frame.decompress(data)
        except self._error as error:
            raise OSError(str(error)) from error
        self._is_inside_frame = not self._frame.eof
        self._rest = self._frame.unused_data if self._frame.eof else b""

    def close(self) -> None:
        self._file.close()
        super().close()
