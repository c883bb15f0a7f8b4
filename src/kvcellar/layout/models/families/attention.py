"""Full attention, sliding windows and local chunks, alone or in turn.

Source: the model classes in model_executor/models and ``get_kv_cache_spec`` in
model_executor/layers/attention, vLLM 0.32; values that a config.json may leave out are
those of the models' published configuration classes.
"""

from collections.abc import Sequence
from typing import Any

from kvcellar.errors import ConfigError, IncompatibleError
from kvcellar.layout.models.config import ModelConfig
from kvcellar.layout.models.families.parts import (
    ModelLayers,
    attention_block,
    heads_of,
    stack,
)
from kvcellar.layout.models.layer import CacheForm
from kvcellar.layout.models.options import ServingOptions

_GEMMA3_DEFAULTS = {
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "sliding_window": 4096,
    "max_position_embeddings": 131072,
}
_LLAMA4_DEFAULTS = {
    "num_hidden_layers": 48,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "attention_chunk_size": 8192,
    "max_position_embeddings": 131072,
}
_FULL_NAMES = ("full_attention", "attention")


def plain(config: ModelConfig, options: ServingOptions) -> ModelLayers:
    """Layers as ``layer_types`` lists them; without it, all full or all windowed."""
    types = config.sequence("layer_types", config.num_layers)
    if types is None:
        window = _uniform_window(config)
        return _layers(config, options, [window] * config.num_layers)
    return _layers(config, options, _listed_spans(config, types))


def gpt_oss(config: ModelConfig, options: ServingOptions) -> ModelLayers:
    """A window in every other layer, the first included."""
    window = config.window()
    spans = [None if i % 2 else window for i in range(config.num_layers)]
    return _layers(config, options, spans)


def gemma2(config: ModelConfig, options: ServingOptions) -> ModelLayers:
    """A window in every other layer, unless ``layer_types`` says otherwise."""
    return _interleaved(config, options, pattern_layers=2)


def gemma3(config: ModelConfig, options: ServingOptions) -> ModelLayers:
    """A window in five layers of six, unless the configuration says otherwise."""
    return _interleaved(
        config.with_defaults(_GEMMA3_DEFAULTS), options, pattern_layers=6
    )


def cohere2(config: ModelConfig, options: ServingOptions) -> ModelLayers:
    """A window in three layers of four; it sees one token more than it says."""
    return _interleaved(config, options, pattern_layers=4, extra_tokens=1)


def llama4(config: ModelConfig, options: ServingOptions) -> ModelLayers:
    """Local chunks in all layers but those without rotary embeddings."""
    config = config.with_defaults(_LLAMA4_DEFAULTS)
    chunk = None
    if config.get("attention_chunk_size"):
        chunk = config.integer("attention_chunk_size")
    spans = [chunk if is_rotary else None for is_rotary in _rotary_layers(config)]
    return _layers(config, options, spans, local=CacheForm.CHUNKED)


def _rotary_layers(config: ModelConfig) -> Sequence[Any]:
    """1 or more for layers with rotary embeddings; the list may be there but empty."""
    num_layers = config.num_layers
    listed = None
    if config.get("no_rope_layers"):
        listed = config.sequence("no_rope_layers", num_layers)
    if listed is not None:
        return listed
    interval = config.integer("no_rope_layer_interval", default=4)
    return [(i + 1) % interval for i in range(num_layers)]


def _interleaved(
    config: ModelConfig,
    options: ServingOptions,
    *,
    pattern_layers: int,
    extra_tokens: int = 0,
) -> ModelLayers:
    """Windows, with a full layer at the end of each pattern.

    Args:
        pattern_layers: length of the pattern where the configuration has none.
        extra_tokens: what the model adds to the window.
    """
    types = config.sequence("layer_types", config.num_layers)
    if types is None:
        pattern = config.integer("sliding_window_pattern", default=pattern_layers)
        types = [
            "sliding_attention" if (i + 1) % pattern else "full_attention"
            for i in range(config.num_layers)
        ]
    spans = _listed_spans(config, types)
    wider = [None if span is None else span + extra_tokens for span in spans]
    return _layers(config, options, wider)


def _layers(
    config: ModelConfig,
    options: ServingOptions,
    spans: Sequence[int | None],
    *,
    local: CacheForm = CacheForm.WINDOW,
) -> ModelLayers:
    """One cache per layer.

    Args:
        spans: window or chunk of each layer, None for full attention.
        local: form of the layers that have a span.
    """
    block = attention_block(options)
    heads = heads_of(config, options)
    full = heads.cache(block, CacheForm.FULL)
    caches = {span: heads.cache(block, local, span) for span in set(spans) if span}
    return stack(config, options, [caches.get(span or 0, full) for span in spans])


def _listed_spans(config: ModelConfig, types: Sequence[Any]) -> list[int | None]:
    unknown = sorted({str(t) for t in types} - {*_FULL_NAMES, "sliding_attention"})
    if unknown:
        raise IncompatibleError(
            f"{config.name}: layer_types names {', '.join(unknown)}, which kvcellar "
            "does not know for this architecture; it knows full_attention and "
            "sliding_attention"
        )
    if all(name in _FULL_NAMES for name in types):
        return [None] * len(types)
    window = config.window()
    if window is None:
        raise ConfigError(
            f"{config.name}: layer_types names sliding_attention, but there is no "
            "sliding_window; add it to the configuration"
        )
    return [None if name in _FULL_NAMES else window for name in types]


def _uniform_window(config: ModelConfig) -> int | None:
    """The window of all layers, or None if all are full.

    Qwen2 and its like name a window that they use only above some layer.
    """
    window = config.window()
    is_used = config.get("use_sliding_window")
    if window is None or is_used is False:
        return None
    first = config.get("max_window_layers") if is_used else None
    if first and first < config.num_layers:
        raise IncompatibleError(
            f"{config.name}: max_window_layers={first} gives some layers a window and "
            "some not, which vLLM does not serve for this architecture"
        )
    return None if first else window
