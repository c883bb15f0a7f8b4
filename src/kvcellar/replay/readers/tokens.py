"""From text to prefix ids: tokens, and ids of the blocks that they fill."""

import importlib
from array import array
from typing import Protocol

from kvcellar.errors import ConfigError
from kvcellar.replay.readers.ids import IdArray

DEFAULT_BLOCK_TOKENS = 16
BYTES_PER_NUMBER = 4


class Encoder(Protocol):
    """Cuts text into tokens.

    Attributes:
        bytes_per_token: width of one token in what `encode` returns.
    """

    bytes_per_token: int

    def encode(self, text: str) -> bytes:
        """Return the tokens of ``text``, one after the other, as bytes."""
        ...


class ByteEncoder:
    """Takes each byte of UTF-8 as a token: no files needed, and exact prefixes."""

    bytes_per_token = 1

    def encode(self, text: str) -> bytes:
        """Return the bytes of ``text``; lone surrogates of broken JSON are kept."""
        return text.encode("utf-8", "surrogatepass")


class TokenizerEncoder:
    """Uses a tokenizer of the transformers package, from local files only.

    Raises:
        ConfigError: the package is not installed, or there is no such tokenizer here.
    """

    bytes_per_token = BYTES_PER_NUMBER

    def __init__(self, name: str) -> None:
        try:
            transformers = importlib.import_module("transformers")
        except ImportError as error:
            raise ConfigError(
                f"tokenizer {name!r} needs the package transformers: install it, or "
                "leave the tokenizer out to count bytes as tokens"
            ) from error
        try:
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(
                name, local_files_only=True
            )
        except Exception as error:  # the library raises many kinds
            raise ConfigError(
                f"tokenizer {name!r} cannot be loaded from local files ({error}): give "
                "a folder that holds one, or leave it out to count bytes as tokens"
            ) from error

    def encode(self, text: str) -> bytes:
        """Return the token numbers, without any that mark the beginning or the end."""
        numbers = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return pack_numbers(numbers)


def pack_numbers(numbers: list[int]) -> bytes:
    """Pack token numbers as an `Encoder` with four bytes per token would.

    Raises:
        TypeError, OverflowError: one is not a token number.
    """
    return array("I", numbers).tobytes()


def make_encoder(tokenizer: str | None) -> Encoder:
    """Make the encoder that the user named, or that of bytes.

    Raises:
        ConfigError: see `TokenizerEncoder`.
    """
    return ByteEncoder() if tokenizer is None else TokenizerEncoder(tokenizer)


class PrefixTable:
    """Numbers prefixes: equal ids mean an equal block and equal blocks before it."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._ids: dict[tuple[int, bytes], int] = {}

    def ids(self, tokens: bytes, bytes_per_token: int) -> IdArray:
        """Give the ids of the full blocks of a row of tokens."""
        width = self._block_tokens * bytes_per_token
        known = self._ids
        found = array("q")
        parent = 0
        for start in range(0, len(tokens) - width + 1, width):
            key = (parent, tokens[start : start + width])
            parent = known.setdefault(key, len(known) + 1)
            found.append(parent)
        return found
