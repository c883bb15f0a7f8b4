"""Record the cache configuration that vLLM builds for several models, as JSON.

Run it with a Python that has vLLM: ``python tests/data/record.py``. It writes one file
per model beside itself. No weights are needed: a model's layers are given as vLLM's own
layer specs, and vLLM's unmodified code forms the groups, tensors and block sizes.
"""

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).parent
GIB = 2**30
GROUP_FIELDS = ("layer_names", "is_eagle_group", "host_resident", "enable_kv_transfer")
TENSOR_FIELDS = (
    "size",
    "layers",
    "layer_stride",
    "block_stride",
    "offset",
    "host_resident",
)
SPEC_FIELDS = (
    "block_size",
    "page_size_bytes",
    "unpadded_page_size_bytes",
    "state_content_size_bytes",
    "prefix_cacheable",
    "dcp_sharded",
    "tokens_per_state",
    "sliding_window",
    "attention_chunk_size",
    "extra_retained_tokens",
    "mamba_cache_mode",
)


def full(window: int | None = None, **changes: Any) -> Any:
    """A full-attention layer, or a sliding-window one of ``window`` tokens, in bf16."""
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec

    fields = {"block_size": 16, "num_kv_heads": 2, "head_size": 64}
    fields |= {"dtype": torch.bfloat16} | changes
    if window is None:
        return FullAttentionSpec(**fields)
    return SlidingWindowSpec(**fields, sliding_window=window)


def tiny_llama() -> dict[str, Any]:
    """Two full-attention layers, blocks of 32."""
    return {f"layers.{i}": full(block_size=32) for i in range(2)}


def tiny_gemma3() -> dict[str, Any]:
    """Five sliding layers to one full, as Gemma 3."""
    return {f"layers.{i}": full(None if i == 5 else 128) for i in range(6)}


def tiny_llama4() -> dict[str, Any]:
    """Three chunked-local layers to one full, as Llama 4."""
    import torch
    from vllm.v1.kv_cache_interface import ChunkedLocalAttentionSpec

    local = ChunkedLocalAttentionSpec(
        block_size=16,
        num_kv_heads=2,
        head_size=64,
        dtype=torch.bfloat16,
        attention_chunk_size=64,
    )
    return {f"layers.{i}": full() if i == 3 else local for i in range(4)}


def tiny_qwen3_next() -> dict[str, Any]:
    """Three recurrent layers to one full, as Qwen3-Next, in align mode."""
    import torch
    from vllm.v1.kv_cache_interface import MambaSpec

    page = 256 * 2 * 2 * 64 * 2
    state = MambaSpec(
        block_size=256,
        shapes=((3, 512), (4, 64, 64)),
        dtypes=(torch.bfloat16, torch.float32),
        page_size_padded=page,
        mamba_cache_mode="align",
    )
    return {f"layers.{i}": full(block_size=256) if i == 3 else state for i in range(4)}


def gemma3_27b() -> dict[str, Any]:
    """62 layers, each sixth full, window 1024, 16 KV heads of 128."""
    wide = {"num_kv_heads": 16, "head_size": 128}
    return {
        f"layers.{i}": full(None if i % 6 == 5 else 1024, **wide) for i in range(62)
    }


def gpt_oss_20b() -> dict[str, Any]:
    """24 layers, alternating window 128 and full, 8 KV heads of 64."""
    return {
        f"layers.{i}": full(None if i % 2 else 128, num_kv_heads=8) for i in range(24)
    }


def deepseek_v4_flash() -> dict[str, Any]:
    """43 layers; the first two keep a window only, then ratios 4 and 128 alternate.

    Layer shapes as models/deepseek_v4 of vLLM 0.32 declares them for fp8 caches: a
    window of 128 tokens everywhere; with a ratio also the compressed cache and the
    compressor's state; with ratio 4 also an indexer and its compressor's state.
    """
    layers: dict[str, Any] = {}
    for i in range(43):
        name = f"model.layers.{i}.attn"
        ratio = 1 if i < 2 else (128 if i % 2 else 4)
        if ratio == 4:
            layers[f"{name}.indexer.k_cache"] = _compressed(4, 132, None)
            layers[f"{name}.indexer.compressor"] = _compressor_state(4, 128)
        layers[f"{name}.window"] = _window_mla()
        if ratio > 1:
            layers[name] = _compressed(ratio, 584, "deepseek_v4")
            layers[f"{name}.compressor"] = _compressor_state(ratio, 512)
    return layers


def _compressed(ratio: int, content_bytes: int, version: str | None) -> Any:
    import torch
    from vllm.v1.kv_cache_interface import MLAAttentionSpec

    return MLAAttentionSpec(
        block_size=256,
        num_kv_heads=1,
        head_size=512 if version else content_bytes,
        dtype=torch.uint8,
        tokens_per_state=ratio,
        state_content_bytes=content_bytes,
        model_version=version,
        cache_dtype_str="fp8_ds_mla" if version else None,
        alignment=576,
    )


def _window_mla() -> Any:
    import torch
    from vllm.v1.kv_cache_interface import SlidingWindowMLASpec

    return SlidingWindowMLASpec(
        block_size=64,
        num_kv_heads=1,
        head_size=512,
        dtype=torch.uint8,
        sliding_window=128,
        state_content_bytes=584,
        model_version="deepseek_v4",
        cache_dtype_str="fp8_ds_mla",
        alignment=576,
    )


def _compressor_state(ratio: int, head_size: int) -> Any:
    """Float32 states of the tokens still being compressed; ratio 4 overlaps by one."""
    import torch
    from vllm.v1.kv_cache_interface import SlidingWindowMLASpec

    groups = 2 if ratio == 4 else 1
    return SlidingWindowMLASpec(
        block_size=4 if ratio == 4 else 8,
        num_kv_heads=1,
        head_size=2 * groups * head_size,
        dtype=torch.float32,
        sliding_window=groups * ratio,
        alignment=576,
    )


MODELS: dict[str, Callable[[], dict[str, Any]]] = {
    build.__name__: build
    for build in (
        tiny_llama,
        tiny_gemma3,
        tiny_llama4,
        tiny_qwen3_next,
        gemma3_27b,
        gpt_oss_20b,
        deepseek_v4_flash,
    )
}


def engine_config(block_size: int, layout: str, **cache_options: Any) -> Any:
    """The few fields of a VllmConfig that vLLM's cache planning reads."""
    from vllm.v1.kv_cache_layout import KVCacheLayout

    cache = {
        "block_size": block_size,
        "enable_prefix_caching": True,
        "prefix_match_unit": None,
        "num_gpu_blocks_override": None,
        "prefix_cache_retention_interval": 0,
        "get_resolved_kv_cache_layout": lambda: KVCacheLayout[layout],
    }
    return SimpleNamespace(
        cache_config=SimpleNamespace(**(cache | cache_options)),
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=1, tensor_parallel_size=1, world_size=1
        ),
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=False),
        speculative_config=None,
        model_config=SimpleNamespace(
            max_model_len=131072,
            hf_config=SimpleNamespace(model_type="any"),
            supports_kv_cache_grouping=False,
        ),
        attention_config=SimpleNamespace(hisparse_config=None),
        kv_transfer_config=SimpleNamespace(),
        max_in_flight_tokens=8192,
    )


def cache_config(model: str) -> Any:
    """Let vLLM plan the worker's cache of ``model`` in 4 GiB, sizes resolved."""
    from vllm.v1.core import kv_cache_utils as utils
    from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs

    from kvcellar.integrations.vllm.compat import cache_planning

    planning = cache_planning()
    register_all_kvcache_specs(SimpleNamespace())
    layers = MODELS[model]()
    is_mixed = len({spec.page_size_bytes for spec in layers.values()}) > 1
    smallest = min(spec.block_size for spec in layers.values())
    engine = engine_config(smallest, "BLHNC" if is_mixed else "LBHNC")
    groups = planning.get_kv_cache_groups(engine, layers)
    config = planning.get_kv_cache_config_from_groups(engine, groups, 4 * GIB)
    shared = utils.generate_scheduler_kv_cache_config([config])
    scheduler, hash_size = utils.resolve_kv_cache_block_sizes(shared, engine)
    config.hash_block_size = hash_size
    config.cache_hit_alignment_tokens = utils.resolve_cache_hit_alignment_tokens(
        shared, engine, scheduler, hash_size
    )
    config.kv_cache_layout = engine.cache_config.get_resolved_kv_cache_layout().name
    return config


def to_json(config: Any) -> dict[str, Any]:
    """A configuration as plain data; equal layer specs are written once."""
    specs: list[dict[str, Any]] = []
    return {
        "num_blocks": config.num_blocks,
        "kv_cache_layout": config.kv_cache_layout,
        "hash_block_size": config.hash_block_size,
        "cache_hit_alignment_tokens": config.cache_hit_alignment_tokens,
        "kv_cache_tensors": [
            {name: getattr(tensor, name) for name in TENSOR_FIELDS}
            for tensor in config.kv_cache_tensors
        ],
        "kv_cache_groups": [
            {name: getattr(group, name) for name in GROUP_FIELDS}
            | {"kv_cache_spec": _spec_number(group.kv_cache_spec, specs)}
            for group in config.kv_cache_groups
        ],
        "specs": specs,
    }


def _spec_number(spec: Any, specs: list[dict[str, Any]]) -> int:
    record: dict[str, Any] = {
        "classes": [cls.__name__ for cls in type(spec).__mro__[:-1]]
    }
    for name in SPEC_FIELDS:
        try:
            value = getattr(spec, name)
        except (AttributeError, NotImplementedError):
            continue
        record[name] = float(value) if isinstance(value, Fraction) else value
    if hasattr(spec, "kv_cache_specs"):
        record["kv_cache_specs"] = {
            layer: _spec_number(inner, specs)
            for layer, inner in spec.kv_cache_specs.items()
        }
    if record not in specs:
        specs.append(record)
    return specs.index(record)


if __name__ == "__main__":
    for model in MODELS:
        text = json.dumps(to_json(cache_config(model)), indent=1)
        (HERE / f"{model}.json").write_text(text + "\n")
