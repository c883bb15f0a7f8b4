"""A complete engine configuration without a model: only the cache's layers are real."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm.config import (
    CacheConfig,
    KVTransferConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.v1.kv_cache_interface import MambaSpec

from kvcellar.testing.oracle.layouts.recipe import LayerSpecs, Recipe

# The engine wants some model; nothing of it is ever loaded or run.
_STAND_IN = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 512,
    "max_position_embeddings": 1 << 20,
}


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """The engine's limits, by its own names."""

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    async_scheduling: bool


def engine_config(
    recipe: Recipe,
    layers: LayerSpecs,
    limits: EngineLimits,
    extra_config: dict[str, Any],
) -> Any:
    """A ``VllmConfig`` of the layout, with our connector in it.

    Args:
        extra_config: the connector's settings.
    """
    model = _stand_in_model(limits.max_model_len)
    config = VllmConfig(
        model_config=model,
        scheduler_config=SchedulerConfig(
            max_model_len=limits.max_model_len,
            max_num_seqs=limits.max_num_seqs,
            max_num_batched_tokens=limits.max_num_batched_tokens,
            async_scheduling=limits.async_scheduling,
            is_encoder_decoder=False,
        ),
        cache_config=_cache_config(layers),
        speculative_config=_drafter(model, recipe.num_draft_tokens),
        kv_transfer_config=_connector(extra_config),
    )
    config.cache_config.kv_cache_layout = recipe.kv_cache_layout
    # The CPU platform turns it off for its runner's sake; the scheduler, which is all
    # that runs here, works the same on every platform.
    config.scheduler_config.async_scheduling = limits.async_scheduling
    return config


def _stand_in_model(max_model_len: int) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(_STAND_IN))
        return ModelConfig(
            model=folder,
            skip_tokenizer_init=True,
            dtype="bfloat16",
            max_model_len=max_model_len,
        )


def _cache_config(layers: LayerSpecs) -> Any:
    specs = layers.values()
    blocks = [spec.block_size for spec in specs if spec.prefix_cacheable]
    config = CacheConfig(block_size=min(blocks), enable_prefix_caching=True)
    states = [spec for spec in specs if isinstance(spec, MambaSpec)]
    if states:
        config.mamba_cache_mode = states[0].mamba_cache_mode
        config.mamba_block_size = states[0].block_size
        config.mamba_page_size_padded = states[0].page_size_padded
    return config


def _drafter(model: Any, num_draft_tokens: int) -> Any:
    """An MTP drafter of one module, whose layers are in the layout already.

    A drafter that needs no checkpoint is configured and then renamed: the engine's own
    MTP configuration inspects a model class that is of no interest here.
    """
    if not num_draft_tokens:
        return None
    drafter = SpeculativeConfig(
        method="ngram",
        num_speculative_tokens=num_draft_tokens,
        prompt_lookup_max=1,
        target_model_config=model,
        target_parallel_config=ParallelConfig(),
    )
    drafter.method = "mtp"
    return drafter


def _connector(extra_config: dict[str, Any]) -> Any:
    return KVTransferConfig(
        kv_connector="CellarConnector",
        kv_connector_module_path="kvcellar.integrations.vllm",
        kv_role="kv_both",
        kv_load_failure_policy="recompute",
        kv_connector_extra_config={"status_socket": False} | extra_config,
    )


@contextmanager
def model_runner(*, is_v2: bool) -> Iterator[None]:
    """What is started meanwhile believes in one of vLLM's two model runners."""
    name = "VLLM_USE_V2_MODEL_RUNNER"
    before = os.environ.get(name)
    os.environ[name] = str(int(is_v2))
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
