"""Layouts of models, worked out from their configuration: no engine, no model library.

    config.json -> layers (families/) -> groups (grouping, packing) -> ModelLayout

The rules are vLLM 0.32's, reimplemented in integers; the tests hold them against vLLM's
own code for every model here and for random mixes of layers.
"""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvcellar.errors import ConfigError
from kvcellar.layout.models.catalogue import (
    ALIASES,
    CONFIGS,
    MODEL_NAMES,
    catalogue_name,
)
from kvcellar.layout.models.config import ModelConfig, read_config
from kvcellar.layout.models.families import ARCHITECTURES
from kvcellar.layout.models.model import ModelLayout, StageLayout, plan_model
from kvcellar.layout.models.options import CACHE_DTYPES, ServingOptions
from kvcellar.layout.models.paths import is_there
from kvcellar.layout.models.plan import GroupPlan

__all__ = [
    "ARCHITECTURES",
    "CACHE_DTYPES",
    "MODEL_NAMES",
    "GroupPlan",
    "ModelLayout",
    "ServingOptions",
    "StageLayout",
    "model_layout",
]


def model_layout(
    model: str | Path | Mapping[str, Any],
    *,
    cache_dtype: str = "auto",
    block_tokens: int | None = None,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    state_dtype: str = "auto",
) -> ModelLayout:
    """The cache layout that vLLM 0.32 gives a model on GPUs, without running it.

    Prefix caching is on, and there is no speculative decoding. Blocks are those of GPUs
    of compute capability 9 (Hopper); other GPUs may need ``block_tokens``.

    Args:
        model: a name of ``MODEL_NAMES``, a checkpoint's name that has such an entry,
            a ``config.json``, its folder, or its content.
        cache_dtype: the engine's ``--kv-cache-dtype``, one of ``CACHE_DTYPES``.
        block_tokens: the engine's ``--block-size``; None leaves it to the model.
        tensor_parallel: ranks that share each layer.
        pipeline_parallel: stages that share out the layers.
        state_dtype: the engine's ``--mamba-ssm-cache-dtype``, for recurrent models.

    Raises:
        ConfigError: there is no such model or file, or the options do not fit it.
        IncompatibleError: the model's architecture is not known, or cannot be served.
    """
    options = ServingOptions(
        cache_dtype, block_tokens, tensor_parallel, pipeline_parallel, state_dtype
    )
    return plan_model(_config(model), options)


def _config(model: str | Path | Mapping[str, Any]) -> ModelConfig:
    if isinstance(model, Mapping):
        return ModelConfig(model, str(model.get("_name_or_path") or "config.json"))
    if isinstance(model, str) and (model in CONFIGS or model in ALIASES):
        name = ALIASES.get(model, model)
        return ModelConfig(CONFIGS[name], name)
    path = Path(model)
    if is_there(path):
        name = path.parent.name if path.name == "config.json" else path.name
        return ModelConfig(read_config(path), name or str(path))
    found = catalogue_name(str(model))
    if found is None:
        raise ConfigError(_unknown(str(model)))
    return ModelConfig(CONFIGS[found], found)


def _unknown(name: str) -> str:
    short = name.lower().rsplit("/", 1)[-1]
    near = difflib.get_close_matches(short, [*CONFIGS, *ALIASES], n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return (
        f"{name!r} is neither a file, a folder nor a model in the catalogue; {hint}"
        f"pass a config.json, or one of: {', '.join(MODEL_NAMES)}"
    )
