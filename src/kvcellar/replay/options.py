"""From the options of ``kvcellar replay``, by name, to a request."""

from collections.abc import Mapping
from typing import Any

from kvcellar.replay.grid import GridAxes, sizes_of, words_of
from kvcellar.replay.grid_request import ModelChoice, ReplayRequest, TraceChoice
from kvcellar.replay.presets_choice import COST_NAMES, CostChoice
from kvcellar.replay.readers import Arrivals
from kvcellar.replay.server import ServerLimits


def request_of(options: Mapping[str, Any]) -> ReplayRequest:
    """Read what the command line names.

    Raises:
        ConfigError: a list or a size is not understood.
    """
    return ReplayRequest(
        trace=_trace(options),
        model=ModelChoice(
            options["model"],
            options["cache_dtype"],
            options["block_tokens"],
            options["tensor_parallel"],
        ),
        axes=_axes(options),
        costs=CostChoice(
            is_timeless=options["no_time"],
            gpu=options["gpu"],
            active_parameters=options["active_parameters"],
            costs_path=options["costs"],
            given={
                name: options[name] for name in COST_NAMES if options[name] is not None
            },
        ),
        limits=ServerLimits(options["max_num_seqs"], options["step_tokens"]),
        num_processes=options["processes"],
    )


def _trace(options: Mapping[str, Any]) -> TraceChoice:
    return TraceChoice(
        path=options["trace"],
        format=options["format"],
        skip_bad=options["skip_bad"],
        tokenizer=options["tokenizer"],
        block_tokens=options["trace_block_tokens"],
        arrivals=Arrivals(
            jitter_seconds=options["jitter"],
            seed=options["seed"],
            sessions_per_second=options["sessions_per_second"],
            max_gap_seconds=options["max_gap"],
        ),
        limit=options["limit"],
        speed=options["speed"],
    )


def _axes(options: Mapping[str, Any]) -> GridAxes:
    return GridAxes(
        device_memory_bytes=sizes_of(options["device_memory"], "device_memory"),
        host_memory_bytes=sizes_of(options["host_memory"], "host_memory"),
        systems=words_of(options["system"], "system"),
        policies=words_of(options["policy"], "policy"),
        modes=words_of(options["mode"], "mode"),
        placements=_if_named(options["placement"], "placement"),
        admissions=_if_named(options["admission"], "admission"),
    )


def _if_named(text: str | None, key: str) -> tuple[str | None, ...]:
    """What is named; one None leaves it to the connector's default."""
    return words_of(text, key) if text else (None,)
