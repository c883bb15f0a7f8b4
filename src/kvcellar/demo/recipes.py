"""Recipes of the tiny models: real hybrid architectures with seeded random weights.

Each has the cache groups of its big relatives and costs enough to prefill that the
difference between computing and loading a prompt shows on two CPU cores.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

# Raise it when the builder changes what it makes from the same recipe.
BUILDER_VERSION = 1

_HIDDEN_SIZE = 384
_HEAD_DIM = 64


@dataclass(frozen=True, slots=True)
class TinyRecipe:
    """All that decides the bytes of one tiny model.

    Attributes:
        name: what the user calls it.
        summary: its attention kinds, in words.
        config_class: name of the configuration class in ``transformers``.
        block_tokens: the engine's block size, in tokens, that this model accepts.
        config: arguments of the configuration class.
        seed: of the random weights.
    """

    name: str
    summary: str
    config_class: str
    block_tokens: int
    config: Mapping[str, object] = field(default_factory=dict)
    seed: int = 0

    def digest(self) -> str:
        """Twelve hex digits that change with anything that changes the model."""
        text = json.dumps([BUILDER_VERSION, asdict(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


# Embeddings are not tied, or a random model only repeats its last token. The wide
# initial weights make attention pick single tokens, so that every answer depends on the
# whole prompt and a wrong block cannot go unseen.
_COMMON: dict[str, object] = {
    "hidden_size": _HIDDEN_SIZE,
    "num_attention_heads": _HIDDEN_SIZE // _HEAD_DIM,
    "num_key_value_heads": 2,
    "head_dim": _HEAD_DIM,
    "intermediate_size": 3 * _HIDDEN_SIZE,
    "max_position_embeddings": 8192,
    "initializer_range": 0.1,
    "tie_word_embeddings": False,
}

_GEMMA3: dict[str, object] = {
    **_COMMON,
    "num_hidden_layers": 6,
    "sliding_window": 256,
    "layer_types": [
        *("sliding_attention", "sliding_attention", "full_attention"),
        *("sliding_attention", "sliding_attention", "full_attention"),
    ],
    "query_pre_attn_scalar": 4,
}

RECIPES: dict[str, TinyRecipe] = {
    recipe.name: recipe
    for recipe in (
        TinyRecipe(
            name="gemma3",
            summary="sliding window of 256 tokens + full attention",
            config_class="Gemma3TextConfig",
            block_tokens=32,
            config=_GEMMA3,
        ),
        TinyRecipe(
            name="llama4",
            summary="chunked local attention of 256 tokens + full attention",
            config_class="Llama4TextConfig",
            block_tokens=128,
            config={
                **_COMMON,
                "num_hidden_layers": 8,
                "intermediate_size_mlp": 3 * _HIDDEN_SIZE,
                "attention_chunk_size": 256,
                "no_rope_layers": [1, 1, 1, 0, 1, 1, 1, 0],
                "moe_layers": [],
                "interleave_moe_layer_step": 0,  # what vLLM reads: every layer is dense
                "num_local_experts": 1,
                "use_qk_norm": False,
            },
        ),
        TinyRecipe(
            name="llama",
            summary="full attention only",
            config_class="LlamaConfig",
            block_tokens=32,
            config={**_COMMON, "num_hidden_layers": 4},
        ),
        TinyRecipe(
            name="qwen3-next",
            summary="recurrent state (gated delta rule) + full attention",
            config_class="Qwen3NextConfig",
            # A block of attention must be as large as a state: 160 tokens at least.
            block_tokens=256,
            config={
                **_COMMON,
                "num_hidden_layers": 8,
                "full_attention_interval": 4,
                "linear_num_key_heads": 2,
                "linear_num_value_heads": 4,
                "linear_key_head_dim": 64,
                "linear_value_head_dim": 64,
                # vLLM wants experts somewhere; one layer has them, the rest is dense.
                "decoder_sparse_step": 8,
                "num_experts": 4,
                "num_experts_per_tok": 2,
                "moe_intermediate_size": _HIDDEN_SIZE,
                "shared_expert_intermediate_size": _HIDDEN_SIZE,
            },
        ),
        TinyRecipe(
            name="gemma3-mqa",
            summary="as gemma3, with one KV head, which tensor-parallel ranks all hold",
            config_class="Gemma3TextConfig",
            block_tokens=32,
            config={**_GEMMA3, "num_key_value_heads": 1},
        ),
    )
}
