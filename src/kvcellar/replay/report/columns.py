"""The figures of one configuration: name, meaning, digits. All outputs read this."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kvcellar.replay.grid_cell import GridCell, Played
from kvcellar.replay.grid_misses import AVOIDABLE, MEANINGS, Reason

Value: TypeAlias = int | float | str | None
Row: TypeAlias = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Result:
    """One cell with what came of it.

    Attributes:
        offline_hit_ratio: what no order of eviction exceeds with as much memory.
        num_gpus: that share each layer; bytes and seconds of all are given.
        is_timeless: there are no times to tell.
    """

    cell: GridCell
    played: Played
    offline_hit_ratio: float
    num_gpus: int
    is_timeless: bool


@dataclass(frozen=True, slots=True)
class Column:
    """One figure.

    Attributes:
        name: with its unit.
        meaning: for people.
        read: takes it from a result.
        digits: after the decimal point; None for what is no fraction.
    """

    name: str
    meaning: str
    read: Callable[[Result], Value]
    digits: int | None = None


def row_of(result: Result) -> dict[str, Value]:
    """All figures of one configuration, rounded to their digits."""
    row: dict[str, Value] = {}
    for column in COLUMNS:
        value = column.read(result)
        if column.digits is not None and isinstance(value, float):
            value = round(value, column.digits)
        row[column.name] = value
    return row


# -- readers ---------------------------------------------------------------------------


def _of_outcome(name: str) -> Callable[[Result], Value]:
    def read(result: Result) -> Value:
        value: int = getattr(result.played.outcome, name)
        return value

    return read


def _of_cell(name: str) -> Callable[[Result], Value]:
    def read(result: Result) -> Value:
        value: Value = getattr(result.cell, name)
        return value

    return read


def _of_choice(name: str) -> Callable[[Result], Value]:
    def read(result: Result) -> Value:
        value: Value = getattr(result.cell.choice, name)
        return value

    return read


def _counter(name: str) -> Callable[[Result], Value]:
    """A count; None where vLLM's connectors have no such thing."""
    return lambda result: result.played.outcome.counters.get(name)


def _ratio(of: Callable[[Result], float]) -> Callable[[Result], Value]:
    def read(result: Result) -> Value:
        total = result.played.outcome.prompt_tokens
        return of(result) / total if total else 0.0

    return read


def _seconds(of: Callable[[Result], float]) -> Callable[[Result], Value]:
    return lambda result: None if result.is_timeless else of(result)


def _ttft(percent: float) -> Callable[[Result], Value]:
    return _seconds(lambda result: result.played.outcome.ttft_percentile(percent))


def _bytes(name: str) -> Callable[[Result], Value]:
    def read(result: Result) -> Value:
        of_one_gpu: int = getattr(result.played.outcome, name)
        return of_one_gpu * result.num_gpus

    return read


def _missed(reason: Reason) -> Column:
    return Column(
        f"missed_{reason}_tokens",
        f"computed tokens: {MEANINGS[reason]}",
        lambda result: result.played.missed_tokens[reason],
    )


def _reachable(result: Result) -> float:
    outcome, missed = result.played.outcome, result.played.missed_tokens
    found = outcome.device_tokens + outcome.host_tokens
    return found + sum(missed[reason] for reason in AVOIDABLE)


_CELL = (
    Column(
        "device_memory_bytes",
        "KV cache memory of each GPU; 0 for a device that keeps nothing",
        _of_cell("device_memory_bytes"),
    ),
    Column(
        "host_memory_bytes",
        "host memory of the whole server; 0 for none, as without kvcellar",
        _of_cell("host_memory_bytes"),
    ),
    Column(
        "system",
        "who runs host memory: kvcellar, or vLLM's simple or offloading connector",
        _of_choice("system"),
    ),
    Column("policy", "kvcellar's eviction policy", _of_choice("policy")),
    Column(
        "placement",
        "where kvcellar keeps checkpoints, where it was chosen",
        _of_choice("placement"),
    ),
    Column(
        "admission",
        "what kvcellar takes, where it was chosen",
        _of_choice("admission"),
    ),
    Column("mode", "kvcellar's eager or lazy stores", _of_choice("mode")),
)

_TOKENS = (
    Column("num_requests", "requests that were served", _of_outcome("num_requests")),
    Column(
        "num_too_long",
        "requests larger than the device cache; left out of all other figures",
        _of_outcome("num_too_long"),
    ),
    Column(
        "prompt_tokens", "prompts of the served requests", _of_outcome("prompt_tokens")
    ),
    Column(
        "device_tokens", "of these, found on the device", _of_outcome("device_tokens")
    ),
    Column(
        "host_tokens", "of these, loaded from host memory", _of_outcome("host_tokens")
    ),
    Column("computed_tokens", "of these, computed", _of_outcome("computed_tokens")),
    Column(
        "hit_ratio",
        "share of prompt tokens found on the device or in host memory",
        _of_outcome("hit_ratio"),
        6,
    ),
    Column(
        "device_hit_ratio",
        "share found on the device",
        _ratio(lambda result: result.played.outcome.device_tokens),
        6,
    ),
    Column(
        "host_hit_ratio",
        "share loaded from host memory",
        _ratio(lambda result: result.played.outcome.host_tokens),
        6,
    ),
    Column(
        "offline_hit_ratio",
        "share that at most can be found in as many bytes, one request after another "
        "and all of the trace known",
        lambda result: result.offline_hit_ratio,
        6,
    ),
    Column(
        "ceiling_hit_ratio",
        "share that an earlier request had: no cache finds more",
        _ratio(_reachable),
        6,
    ),
)

_TIMES = (
    Column(
        "ttft_p50_seconds", "time to first token, half wait no longer", _ttft(50), 4
    ),
    Column("ttft_p90_seconds", "90 % wait no longer", _ttft(90), 4),
    Column("ttft_p99_seconds", "99 % wait no longer", _ttft(99), 4),
    Column(
        "busy_gpu_seconds",
        "all GPUs together computed prompts",
        _seconds(lambda result: result.played.outcome.busy_seconds * result.num_gpus),
        3,
    ),
    Column(
        "saved_gpu_seconds",
        "prefill that hits on device and host made unnecessary",
        _seconds(lambda result: result.played.outcome.saved_seconds * result.num_gpus),
        3,
    ),
)

_TRAFFIC = (
    Column("stored_bytes", "device to host, all GPUs", _bytes("stored_bytes")),
    Column("loaded_bytes", "host to device, all GPUs", _bytes("loaded_bytes")),
    Column("stored_chunks", "chunks stored", _counter("stored_chunks")),
    Column("stored_checkpoints", "checkpoints stored", _counter("stored_checkpoints")),
)

_EVICTIONS = (
    Column(
        "evicted_chunks", "chunks evicted from host memory", _counter("evicted_chunks")
    ),
    Column(
        "dead_chunks",
        "of these, behind their path's last checkpoint: no prompt could resume there",
        _counter("dead_chunks"),
    ),
    Column(
        "evicted_checkpoints",
        "checkpoints evicted from host memory",
        _counter("evicted_checkpoints"),
    ),
    Column(
        "superseded_checkpoints",
        "of these, replaced by a deeper one of the same path",
        _counter("superseded_checkpoints"),
    ),
    Column(
        "stores_without_room",
        "stores refused because all of host memory was in use",
        _counter("stores_without_room"),
    ),
    Column(
        "stores_without_block",
        "stores whose device block had gone",
        _counter("stores_without_block"),
    ),
    Column(
        "lost_chunks",
        "chunks that left the device before they were stored; lazy mode",
        _counter("lost_chunks"),
    ),
    Column(
        "evicted_device_chunks",
        "chunks evicted from the device",
        _of_outcome("evicted_device_chunks"),
    ),
)

COLUMNS: tuple[Column, ...] = (
    *_CELL,
    *_TOKENS,
    *_TIMES,
    *(_missed(reason) for reason in Reason),
    *_TRAFFIC,
    *_EVICTIONS,
)
