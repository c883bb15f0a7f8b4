"""What one request may ask for, in ``kv_transfer_params``.

A control changes what is kept, never an answer. So a control that cannot be understood
is left out, and the request is served: by the time it is read the request is in the
engine, where refusing it would mean stopping all others. What was left out, and why,
goes back to the caller, who warns and counts.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kvcellar.config import nearest_key

MOST_PRIORITY = 10
MOST_TAGS = 8
MOST_TAG_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class RequestControls:
    """One request's wishes; the settings hold wherever they are narrower.

    Attributes:
        max_load_tokens: most tokens loaded for it; None for no limit of its own.
        max_store_tokens: tokens beyond this are not stored; None for no limit.
        skip_load: whether it recomputes what host memory holds.
        skip_store: whether nothing of it is stored.
        keep_seconds: how long its path stays once it has ended, whatever else comes.
        keep_after_arrival_seconds: the same, counted from its arrival.
        priority: who goes first when room is needed: the lowest.
        tags: free names; the first may name the tenant.
    """

    max_load_tokens: int | None = None
    max_store_tokens: int | None = None
    skip_load: bool = False
    skip_store: bool = False
    keep_seconds: float = 0.0
    keep_after_arrival_seconds: float = 0.0
    priority: int = 0
    tags: tuple[str, ...] = ()


NO_CONTROLS = RequestControls()


@dataclass(frozen=True, slots=True)
class BadControl:
    """A control that was left out.

    Attributes:
        key: as it was written.
        message: key, value and what to write instead, in one sentence.
    """

    key: str
    message: str


class _WrongValueError(Exception):
    """A value cannot be read; the text says what to write."""


def read_controls(
    params: Mapping[object, object], wall_seconds: float
) -> tuple[RequestControls, list[BadControl]]:
    """Read what is ours in a request's ``kv_transfer_params``.

    Args:
        params: the request's; keys of other connectors are passed over.
        wall_seconds: its arrival, in seconds since the epoch as ``keep_until`` is.

    Returns:
        The controls that could be read, and those that could not.
    """
    found: dict[str, Any] = {}
    bad: list[BadControl] = []
    for given, value in params.items():
        key = str(given)  # Python callers may use anything as a key
        if _is_of_others(key):
            continue
        entry = _KEYS.get(key)
        if entry is None:
            bad.append(_unknown(key, value))
            continue
        name, read = entry
        try:
            found[name] = read(value)
        except _WrongValueError as wrong:
            bad.append(BadControl(key, f"{key}={value!r} cannot be used; {wrong}"))
    until = found.pop("keep_until", None)
    if until is not None:
        found["keep_after_arrival_seconds"] = max(until - wall_seconds, 0.0)
    return RequestControls(**found), bad


def _unknown(key: str, value: object) -> BadControl:
    nearest = nearest_key(key, _KEYS)
    return BadControl(
        key,
        f"{key}={value!r} is not known; the nearest known key is {nearest!r}, and all "
        f"are {', '.join(sorted(_KEYS))}",
    )


def _is_of_others(key: str) -> bool:
    """Whether another connector reads it: vLLM has one dictionary for all."""
    return key in _OTHERS or key.startswith(("remote_", "do_remote_", "_"))


def _tokens(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _WrongValueError("write a whole number of tokens, 0 or more")
    return value


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise _WrongValueError("write true or false, without quotes")
    return value


def _seconds(value: object) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value < math.inf:  # type: ignore[operator]  # a number
        raise _WrongValueError("write a number of seconds, 0 or more")
    return float(value)  # type: ignore[arg-type]  # a number


def _priority(value: object) -> int:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or not -MOST_PRIORITY <= value <= MOST_PRIORITY:  # type: ignore[operator]  # an int
        raise _WrongValueError(
            f"write a whole number from {-MOST_PRIORITY} to {MOST_PRIORITY}"
        )
    return value  # type: ignore[return-value]  # an int


def _tags(value: object) -> tuple[str, ...]:
    is_list = isinstance(value, list | tuple) and len(value) <= MOST_TAGS
    if not is_list or not all(map(_is_tag, value)):  # type: ignore[call-overload]  # a list
        raise _WrongValueError(
            f"write a list of at most {MOST_TAGS} names of 1 to {MOST_TAG_CHARACTERS} "
            "characters"
        )
    return tuple(value)  # type: ignore[arg-type]  # a list of text


def _is_tag(tag: object) -> bool:
    return isinstance(tag, str) and 1 <= len(tag) <= MOST_TAG_CHARACTERS


# key -> (field, reader). Source of the twins max_load_tokens and max_offload_tokens:
# OffloadingConnector, vLLM 0.32.
_KEYS: dict[str, tuple[str, Callable[[object], object]]] = {
    "max_load_tokens": ("max_load_tokens", _tokens),
    "max_store_tokens": ("max_store_tokens", _tokens),
    "max_offload_tokens": ("max_store_tokens", _tokens),
    "skip_load": ("skip_load", _switch),
    "skip_store": ("skip_store", _switch),
    "keep_seconds": ("keep_seconds", _seconds),
    "keep_until": ("keep_until", _seconds),
    "priority": ("priority", _priority),
    "tags": ("tags", _tags),
}

# Source: what vLLM 0.32's connectors look up in kv_transfer_params.
_OTHERS = frozenset(
    {
        "consumer_zmq",
        "dcp_size",
        "hidden_states_path",
        "include_output_tokens",
        "is_request_leader",
        "kv_hints",
        "pp_size",
        "prompt_token_ids",
        "tp_size",
        "transfer_id",
    }
)
