"""Numbers in vLLM's arguments, read as vLLM reads them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kvcellar.serve.arguments import has_option, option_value

_COUNT = re.compile(r"(\d+(?:\.\d+)?)([kmgtKMGT])")
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True, slots=True)
class NumberOption:
    """One option of vLLM whose value is a whole number.

    Attributes:
        names: the long name, then the short one if there is one.
        smallest: the least value that makes sense.
        has_suffixes: whether ``32k`` is read.
        words: what else is read and stands for no number, such as ``"auto"``.
    """

    names: tuple[str, ...]
    smallest: int = 1
    has_suffixes: bool = False
    words: tuple[str, ...] = ()


_NONE = ("None", "")  # an option left open; Source: optional_type in arg_utils.py

# Source: engine/arg_utils.py and human_readable_int, vLLM 0.32.
NUMBER_OPTIONS = (
    NumberOption(("--tensor-parallel-size", "-tp")),
    NumberOption(("--pipeline-parallel-size", "-pp")),
    NumberOption(("--data-parallel-size", "-dp")),
    NumberOption(("--data-parallel-size-local", "-dpl"), smallest=0),
    NumberOption(("--decode-context-parallel-size", "-dcp")),
    NumberOption(("--prefill-context-parallel-size", "-pcp")),
    NumberOption(("--nnodes", "-n")),
    NumberOption(("--max-model-len",), has_suffixes=True, words=("auto", "-1")),
    NumberOption(("--max-num-seqs",)),
    NumberOption(("--max-num-batched-tokens",), has_suffixes=True),
    NumberOption(("--block-size",)),
    NumberOption(("--kv-cache-memory-bytes",), has_suffixes=True, words=_NONE),
    NumberOption(("--num-gpu-blocks-override",), words=_NONE),
    NumberOption(("--prefix-match-unit",), words=_NONE),
    NumberOption(("--prefix-cache-retention-interval",), smallest=0, words=_NONE),
)
_BY_NAME = {option.names[0]: option for option in NUMBER_OPTIONS}


def read_number(arguments: Sequence[str], name: str) -> int | None:
    """The value of one of ``NUMBER_OPTIONS``; None if absent, a word or no number."""
    option = _BY_NAME[name]
    text = option_value(arguments, *option.names)
    return None if text is None else parse_number(text, option)


def parse_number(text: str, option: NumberOption) -> int | None:
    """The number that ``text`` stands for; None if it is none that makes sense."""
    value = _plain(text)
    if value is None and option.has_suffixes:
        value = _with_suffix(text)
    return value if value is not None and value >= option.smallest else None


def _plain(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _with_suffix(text: str) -> int | None:
    """A fraction is read before a decimal suffix only, as in vLLM."""
    match = _COUNT.fullmatch(text.strip())
    if match is None:
        return None
    digits, suffix = match.groups()
    if suffix in _DECIMAL:
        return int(float(digits) * _DECIMAL[suffix])
    return int(digits) * _BINARY[suffix] if digits.isdecimal() else None


def wrong_number(arguments: Sequence[str], option: NumberOption) -> str | None:
    """The text given to an option that is no number for it; None if all is well."""
    if not any(has_option(arguments, name) for name in option.names):
        return None
    text = option_value(arguments, *option.names)
    if text is None:
        return ""
    if text.strip() in option.words or parse_number(text, option) is not None:
        return None
    return text
