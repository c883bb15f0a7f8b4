"""The command lines to copy."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from kvcellar.plan.figures import Figures
from kvcellar.plan.hub_names import servable_name
from kvcellar.plan.request import MODE_KEYS
from kvcellar.plan.words import option_size
from kvcellar.serve.command import ServeSettings, transfer_config

_SERVE_KNOWS = {"host_memory", "mode"}
_SIZES = {
    "host_memory",
    "cpu_bytes_to_use",
    "host_memory_per_rank",
    "cpu_bytes_to_use_per_rank",
}


@dataclass(frozen=True, slots=True)
class Commands:
    """The recommended configuration, ready to run.

    Attributes:
        kvcellar_serve: None if a setting has no option there.
        vllm_serve: the same for the engine's own command.
    """

    kvcellar_serve: str | None
    vllm_serve: str


def commands_for(
    figures: Figures,
) -> Commands:
    """Write both lines, with the mode that suits and a context that fits."""
    request, mode = figures.request, figures.mode_to_run
    model = servable_name(request.model, figures.model.name)
    host_bytes = figures.host.asked_bytes_per_server
    size = option_size(host_bytes)
    others = {
        k: v for k, v in request.extra_config.items() if k not in _SIZES | MODE_KEYS
    }
    extra = {"host_memory": size, "mode": mode, **others}
    settings = ServeSettings(model, host_bytes, mode)
    config = transfer_config(settings) | {"kv_connector_extra_config": extra}
    engine = list(_engine_options(figures))
    own = ["kvcellar", "serve", model, "--host-memory", size]
    own += ["--mode", mode] * (mode != "eager")
    theirs = ["vllm", "serve", model, "--kv-transfer-config", json.dumps(config)]
    return Commands(
        kvcellar_serve=None if extra.keys() - _SERVE_KNOWS else _line(own + engine),
        vllm_serve=_line(theirs + engine),
    )


def _engine_options(figures: Figures) -> Iterator[str]:
    """The engine's options that the plan was made for; defaults are left out."""
    request, shape = figures.request, figures.shape
    limits = request.limits
    given = {
        "--tensor-parallel-size": (shape.tensor_parallel, 1),
        "--pipeline-parallel-size": (shape.pipeline_parallel, 1),
        "--data-parallel-size": (shape.data_parallel, 1),
        "--kv-cache-dtype": (request.cache_dtype, "auto"),
        "--mamba-ssm-cache-dtype": (request.state_dtype, "auto"),
        "--block-size": (request.block_tokens, None),
        "--max-model-len": (_context_tokens(figures), None),
        "--max-num-batched-tokens": (limits.step_tokens, None),
    }
    for option, (value, default) in given.items():
        if value != default:
            yield from (option, str(value))
    if not limits.is_async:
        yield "--no-async-scheduling"


def _context_tokens(figures: Figures) -> int | None:
    """The longest context where it must be named: asked for, or all that fits."""
    device = figures.device
    if device is not None and device.max_concurrency < 1:
        return device.longest_request_tokens
    return figures.request.limits.max_model_tokens


def _line(words: list[str]) -> str:
    return shlex.join(words)
