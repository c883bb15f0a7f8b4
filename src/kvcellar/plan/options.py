"""From words on a command line to a request: every value is checked by name."""

from collections.abc import Mapping

from kvcellar.config import parse_bytes
from kvcellar.errors import ConfigError
from kvcellar.plan.request import EngineLimits, PlanRequest, Traffic
from kvcellar.plan.shape import ServerShape
from kvcellar.replay.presets_choice import COST_NAMES, CostChoice

_MOST_DIGITS = 15  # beyond, a number is a slip of the hand

Options = Mapping[str, object]
"""Option names, with underscores, to words; None where an option is left out."""


def request_of(options: Options) -> PlanRequest:
    """Read all options.

    Raises:
        ConfigError: a word is not what its option takes, with key, value and remedy.
    """
    if not str(options["model"]):
        raise ConfigError(
            "model='' names nothing; give a model of the catalogue, or a config.json"
        )
    return PlanRequest(
        model=str(options["model"]),
        extra_config=_extra_config(options),
        cache_dtype=str(options.get("cache_dtype") or "auto"),
        block_tokens=_whole(options, "block_tokens"),
        state_dtype=str(options.get("state_dtype") or "auto"),
        shape=ServerShape(
            tensor_parallel=_whole(options, "tensor_parallel") or 1,
            pipeline_parallel=_whole(options, "pipeline_parallel") or 1,
            data_parallel=_whole(options, "data_parallel") or 1,
            num_nodes=_whole(options, "nodes") or 1,
        ),
        device_bytes=_size(options, "device_memory"),
        node_bytes=_size(options, "node_memory"),
        disk_bytes=_size(options, "disk"),
        limits=EngineLimits(
            max_model_tokens=_whole(options, "max_model_len"),
            step_tokens=_whole(options, "step_tokens"),
            is_async=not options.get("no_async_scheduling"),
        ),
        traffic=Traffic(
            prompt_tokens=_whole(options, "prompt_tokens"),
            num_concurrent=_whole(options, "concurrency"),
        ),
        costs=_costs(options),
    )


def _extra_config(options: Options) -> dict[str, object]:
    """The connector's settings, under the names and of the types that it reads."""
    extra = {name: options.get(name) for name in _WORD_NAMES}
    extra |= {name: _whole(options, name) for name in _CHUNK_NAMES}
    return {name: value for name, value in extra.items() if value is not None}


_WORD_NAMES = (
    "host_memory",
    "host_memory_per_rank",
    "mode",
    "eviction_policy",
    "share_replicated",
)
_CHUNK_NAMES = ("chunk_tokens", "blocks_per_chunk")


def _costs(options: Options) -> CostChoice:
    given = {name: _number(options, name) for name in COST_NAMES}
    gpu, path = options.get("gpu"), options.get("costs")
    return CostChoice(
        is_timeless=bool(options.get("no_time")),
        gpu=None if gpu is None else str(gpu),
        active_parameters=_number(options, "active_parameters"),
        costs_path=None if path is None else str(path),
        given={name: value for name, value in given.items() if value is not None},
    )


def _whole(options: Options, name: str) -> int | None:
    """A whole number of at least 1; None if it is left out."""
    word = options.get(name)
    if word is None:
        return None
    text = str(word)
    is_whole = text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
    if not is_whole or int(text) < 1:
        raise ConfigError(
            f"{name}={text!r} cannot be used; write a whole number of at least 1"
        )
    return int(text)


def _number(options: Options, name: str) -> float | None:
    word = options.get(name)
    if word is None:
        return None
    try:
        return float(str(word))
    except ValueError as cause:
        raise ConfigError(
            f"{name}={word!r} cannot be used; write a number such as 8e9"
        ) from cause


def _size(options: Options, name: str) -> int | None:
    word = options.get(name)
    return None if word is None else parse_bytes(word, name)
