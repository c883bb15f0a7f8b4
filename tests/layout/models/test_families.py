"""What each architecture's layers keep on one rank."""

from typing import Any

import pytest

from kvcellar.errors import ConfigError, IncompatibleError
from kvcellar.layout.models import model_layout
from kvcellar.layout.models.config import ModelConfig
from kvcellar.layout.models.families import ARCHITECTURES, model_layers
from kvcellar.layout.models.families.parts import ModelLayers
from kvcellar.layout.models.layer import CacheForm, StateCache
from kvcellar.layout.models.options import ServingOptions

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 4,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
}
QWEN3_NEXT = {
    "architectures": ["Qwen3NextForCausalLM"],
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}
NEMOTRON_H = {
    "architectures": ["NemotronHForCausalLM"],
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hybrid_override_pattern": "M-M*E",
    "mamba_num_heads": 128,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
}
DEEPSEEK_V4 = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "num_hidden_layers": 3,
    "num_attention_heads": 64,
    "head_dim": 512,
    "index_head_dim": 128,
    "sliding_window": 128,
    "compress_ratios": [0, 4, 128, 0],
}


def layers_of(raw: dict[str, Any], **options: Any) -> ModelLayers:
    return model_layers(ModelConfig(raw, "some-model"), ServingOptions(**options))


def forms(raw: dict[str, Any], **options: Any) -> list[tuple[CacheForm, int | None]]:
    caches = [layer.cache for layer in layers_of(raw, **options).layers]
    return [(cache.form, cache.span_tokens) for cache in caches]


def spans(**values: Any) -> list[int | None]:
    return [span for _, span in forms(LLAMA | values)]


def test_a_plain_model_attends_to_everything():
    """Each layer keeps keys and values of all heads in blocks of 16 tokens."""
    found = layers_of(LLAMA)
    assert [2 * 8 * 128 * 2 * 16] * 4 == [x.cache.page_bytes for x in found.layers]
    assert {(CacheForm.FULL, None)} == set(forms(LLAMA))


def test_one_window_for_all_layers():
    """Without types per layer, a window is every layer's."""
    assert [4096] * 4 == spans(sliding_window=4096)


def test_windows_as_the_types_say():
    """With types per layer, only the sliding ones have the window."""
    types = ["sliding_attention", "full_attention"] * 2
    assert [64, None, 64, None] == spans(sliding_window=64, layer_types=types)


def test_types_may_all_be_full():
    """A window beside them is not used."""
    assert [None] * 4 == spans(sliding_window=64, layer_types=["full_attention"] * 4)


def test_an_unused_window_is_none():
    """Qwen's configurations name a window that they do not use."""
    assert [None] * 4 == spans(sliding_window=4096, use_sliding_window=False)


def test_a_window_above_all_layers_is_none():
    """A window used only above the last layer is used nowhere."""
    assert [None] * 4 == spans(
        sliding_window=64, use_sliding_window=True, max_window_layers=4
    )


def test_a_window_above_some_layer_is_refused():
    """As in vLLM, which cannot serve it for these architectures."""
    with pytest.raises(IncompatibleError, match="max_window_layers=2"):
        spans(sliding_window=64, use_sliding_window=True, max_window_layers=2)


def test_unknown_types_of_layers_are_refused():
    """A type that is not known must not be taken for a full one."""
    with pytest.raises(IncompatibleError, match="names strange"):
        spans(layer_types=["full_attention"] * 3 + ["strange"])


def test_a_sliding_layer_needs_a_window():
    """A type without the number it needs is the configuration's mistake."""
    with pytest.raises(ConfigError, match="no sliding_window"):
        spans(layer_types=["sliding_attention"] * 4)


def test_gpt_oss_begins_with_a_window():
    """Every other layer is windowed, whatever the list says."""
    raw = LLAMA | {"architectures": ["GptOssForCausalLM"], "sliding_window": 128}
    assert [128, None, 128, None] == [span for _, span in forms(raw)]


def test_gemma3s_gaps_are_filled():
    """A sparse text part means the model library's values and a pattern of six."""
    raw = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "text_config": {"num_hidden_layers": 7, "sliding_window": 1024},
    }
    found = layers_of(raw)
    assert [1024] * 5 + [None, 1024] == [x.cache.span_tokens for x in found.layers]
    assert 2 * 4 * 256 * 2 * 16 == found.layers[0].cache.page_bytes
    assert 131072 == found.max_tokens


def test_cohere2_sees_one_token_more():
    """Its window is one wider than it says; each fourth layer is full."""
    raw = LLAMA | {"architectures": ["Cohere2ForCausalLM"], "sliding_window": 4096}
    assert [4097] * 3 + [None] == [span for _, span in forms(raw)]


def test_gemma2_alternates():
    """A window in every other layer."""
    raw = LLAMA | {"architectures": ["Gemma2ForCausalLM"], "sliding_window": 4096}
    assert [4096, None] * 2 == [span for _, span in forms(raw)]


@pytest.mark.parametrize(
    "more", [{}, {"no_rope_layers": []}, {"no_rope_layers": [1, 1, 1, 0]}]
)
def test_llama4_has_a_full_layer_in_four(more: dict[str, Any]):
    """Layers without rotary embeddings see everything, the others a local chunk."""
    text = {"num_hidden_layers": 4, **more}
    raw = {"architectures": ["Llama4ForConditionalGeneration"], "text_config": text}
    assert [(CacheForm.CHUNKED, 8192)] * 3 + [(CacheForm.FULL, None)] == forms(raw)


def test_llama4_without_chunks_is_full():
    """An explicit null turns local attention off."""
    raw = {"architectures": ["Llama4ForCausalLM"], "attention_chunk_size": None}
    assert {(CacheForm.FULL, None)} == set(forms(raw))


@pytest.mark.parametrize(("ranks", "heads"), [(1, 8), (2, 4), (8, 1), (16, 1), (32, 1)])
def test_heads_are_split_then_repeated(ranks: int, heads: int):
    """Ranks share the KV heads; with more ranks than heads each holds one."""
    found = layers_of(LLAMA, tensor_parallel=ranks)
    assert heads * 2 * 128 * 2 * 16 == found.layers[0].cache.page_bytes


@pytest.mark.parametrize("ranks", [3, 5])
def test_heads_that_cannot_be_shared_are_refused(ranks: int):
    """The message names the heads."""
    with pytest.raises(ConfigError, match=rf"tensor_parallel={ranks} .* heads"):
        layers_of(LLAMA, tensor_parallel=ranks)


def test_kv_heads_that_cannot_be_shared_are_refused():
    """Query heads may divide where KV heads do not."""
    raw = LLAMA | {"num_attention_heads": 24, "num_key_value_heads": 8}
    with pytest.raises(ConfigError, match="tensor_parallel=12 cannot share 8 KV heads"):
        layers_of(raw, tensor_parallel=12)


@pytest.mark.parametrize(
    ("cache_dtype", "entry_bytes"),
    [("auto", 2), ("bfloat16", 2), ("float16", 2), ("fp8", 1), ("fp8_e5m2", 1)],
)
def test_bytes_follow_the_caches_type(cache_dtype: str, entry_bytes: int):
    """Eight bits halve the page."""
    found = layers_of(LLAMA, cache_dtype=cache_dtype)
    assert 2 * 8 * 128 * 16 * entry_bytes == found.layers[0].cache.page_bytes


def test_a_checkpoints_own_cache_type_is_used():
    """``auto`` follows a checkpoint that brings scales for an 8-bit cache."""
    quantised = {"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}
    assert "fp8" == layers_of(LLAMA | {"quantization_config": quantised}).cache_dtype


def test_the_packed_format_is_for_latent_caches():
    """Ordinary heads have no such format."""
    with pytest.raises(ConfigError, match="fp8_ds_mla"):
        layers_of(LLAMA, cache_dtype="fp8_ds_mla")


def test_blocks_must_suit_the_kernels():
    """The message says which multiples do."""
    with pytest.raises(ConfigError, match=r"block_tokens=24 .* multiple of 16"):
        layers_of(LLAMA, block_tokens=24)


def test_longer_blocks_are_taken():
    """The user's block is every layer's."""
    found = layers_of(LLAMA, block_tokens=64)
    assert {64} == {layer.cache.block_tokens for layer in found.layers}


def test_recurrent_layers_and_full_ones_share_a_page():
    """Blocks grow until an attention page holds a state, padded to that page."""
    caches = [layer.cache for layer in layers_of(QWEN3_NEXT).layers]
    assert [CacheForm.STATE] * 3 + [CacheForm.FULL] == [c.form for c in caches[:4]]
    assert {544} == {cache.block_tokens for cache in caches}
    assert {544 * 2 * 2 * 256 * 2} == {cache.page_bytes for cache in caches}
    conv, recurrent = 3 * 8192 * 2, 32 * 128 * 128 * 2
    assert conv + recurrent == caches[0].payload_bytes


def test_an_8_bit_cache_needs_twice_the_block():
    """States stay as large while attention pages halve."""
    found = layers_of(QWEN3_NEXT, cache_dtype="fp8")
    assert {1072} == {layer.cache.block_tokens for layer in found.layers}


def test_a_users_block_grows_in_its_own_steps():
    """The block is a multiple of what the user asked for."""
    found = layers_of(QWEN3_NEXT, block_tokens=128)
    assert {640} == {layer.cache.block_tokens for layer in found.layers}


def test_states_in_float32_are_larger():
    """A successor keeps its recurrent part in the type it names."""
    raw = QWEN3_NEXT | {"mamba_ssm_dtype": "float32"}
    conv, recurrent = 3 * 8192 * 2, 32 * 128 * 128 * 4
    assert conv + recurrent == layers_of(raw).layers[0].cache.payload_bytes


def test_layers_without_a_cache_count_as_layers():
    """Feed-forward layers keep nothing, but have a number."""
    found = layers_of(NEMOTRON_H)
    assert [(0, "state"), (2, "state"), (3, "full")] == [
        (layer.index, layer.cache.form) for layer in found.layers
    ]
    assert 5 == found.num_layers


def test_names_of_blocks_read_like_the_pattern():
    """Newer configurations list what older ones abbreviate."""
    names = ["mamba", "mlp", "mamba", "attention", "moe"]
    raw = {**NEMOTRON_H, "hybrid_override_pattern": None, "layers_block_type": names}
    assert layers_of(NEMOTRON_H).layers == layers_of(raw).layers


@pytest.mark.parametrize(("ranks", "num_groups"), [(1, 8), (8, 8), (16, 16)])
def test_groups_of_a_state_are_repeated_like_heads(ranks: int, num_groups: int):
    """Ranks share the groups; more ranks than groups make copies."""
    state = layers_of(NEMOTRON_H, tensor_parallel=ranks).layers[0].cache
    assert isinstance(state, StateCache)
    width = (128 * 64 + 2 * num_groups * 128) // ranks
    assert ((3, width), (128 // ranks, 64, 128)) == state.shapes


def test_an_unknown_kind_of_layer_is_refused():
    """A letter that is not known must not count as keeping nothing."""
    with pytest.raises(IncompatibleError, match="layers of type X"):
        layers_of(NEMOTRON_H | {"hybrid_override_pattern": "M*X"})


def test_recurrent_layers_as_listed():
    """A list of types wins over the interval."""
    types = ["full_attention", *["linear_attention"] * 7]
    found = layers_of(QWEN3_NEXT | {"layer_types": types})
    assert [CacheForm.FULL, *[CacheForm.STATE] * 7] == [
        layer.cache.form for layer in found.layers
    ]


def test_a_missing_pattern_is_named():
    """Without it nothing is known about the layers."""
    with pytest.raises(ConfigError, match="no hybrid_override_pattern"):
        layers_of(NEMOTRON_H | {"hybrid_override_pattern": None})


def test_nemotrons_heads_do_not_follow_its_width():
    """A configuration that leaves their size out means 128."""
    raw = {k: v for k, v in NEMOTRON_H.items() if k != "head_dim"}
    assert layers_of(NEMOTRON_H) == layers_of(raw | {"hidden_size": 4480})


def test_a_window_beside_states_is_refused():
    """Its block size is not known."""
    with pytest.raises(IncompatibleError, match="sliding window of 64"):
        layers_of(NEMOTRON_H | {"sliding_window": 64})


def test_latent_vectors_are_not_split():
    """All ranks hold the same vector per token."""
    raw = {
        "architectures": ["DeepseekV3ForCausalLM"],
        "num_hidden_layers": 2,
        "num_attention_heads": 128,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
    }
    one, eight = layers_of(raw), layers_of(raw, tensor_parallel=8)
    assert one.layers == eight.layers
    assert 576 * 2 * 16 == one.layers[0].cache.page_bytes
    assert eight.are_ranks_identical


def test_an_indexer_makes_latent_attention_sparse():
    """Its keys lie beside the vectors, which 8 bits pack into records."""
    raw = {
        "architectures": ["DeepseekV32ForCausalLM"],
        "num_hidden_layers": 1,
        "num_attention_heads": 128,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "index_topk": 2048,
        "index_head_dim": 128,
    }
    plain = layers_of(raw)
    packed = layers_of(raw, cache_dtype="fp8")
    assert [64 * 1152, 64 * 132] == [x.cache.page_bytes for x in plain.layers]
    assert [64 * 656, 64 * 132] == [x.cache.page_bytes for x in packed.layers]
    assert "fp8_ds_mla" == packed.cache_dtype
    assert packed == layers_of(raw, cache_dtype="fp8_ds_mla")


def test_deepseek_v4_layers_keep_what_their_ratio_needs():
    """A window each; by 4 also an indexer, and compressors' states with their ratio."""
    found = layers_of(DEEPSEEK_V4)
    assert [
        ("model.layers.0.attn.swa_cache", 37440, None),
        ("model.layers.1.attn.indexer.k_cache", 8640, None),
        ("model.layers.1.attn.indexer.compressor.state_cache", 8640, 4),
        ("model.layers.1.attn.swa_cache", 37440, None),
        ("model.layers.1.attn", 37440, None),
        ("model.layers.1.attn.compressor.state_cache", 32832, 4),
        ("model.layers.2.attn.swa_cache", 37440, None),
        ("model.layers.2.attn", 1728, None),
        ("model.layers.2.attn.compressor.state_cache", 32832, 128),
    ] == [
        (layer.name, layer.cache.page_bytes, layer.cache.compressor_ratio)
        for layer in found.layers
    ]


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"block_tokens": 64}, "they take 256 only"),
        ({}, {"cache_dtype": "float16"}, "cache_dtype='float16'"),
        ({}, {"tensor_parallel": 3}, "64 attention heads"),
        ({"compress_ratios": None}, {}, "no compress_ratios"),
    ],
)
def test_deepseek_v4_refuses_what_its_kernels_cannot(
    change: dict[str, Any], options: dict[str, Any], message: str
):
    """Blocks, types and ranks that do not fit are named."""
    with pytest.raises(ConfigError, match=message):
        layers_of(DEEPSEEK_V4 | change, **options)


def test_an_unknown_ratio_is_refused():
    """There is no compressor for it."""
    with pytest.raises(IncompatibleError, match="compress_ratios names 8"):
        layers_of(DEEPSEEK_V4 | {"compress_ratios": [0, 8, 4]})


def test_an_unknown_architecture_is_named_with_those_that_are_known():
    """The message says what was found and what would do."""
    with pytest.raises(IncompatibleError, match="FooForCausalLM") as caught:
        layers_of(LLAMA | {"architectures": ["FooForCausalLM"]})
    assert all(name in str(caught.value) for name in ARCHITECTURES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cache_dtype": "int3"}, "cache_dtype='int3'"),
        ({"state_dtype": "int8"}, "state_dtype='int8'"),
        ({"block_tokens": 0}, "block_tokens=0"),
        ({"tensor_parallel": 0}, "tensor_parallel=0"),
        ({"pipeline_parallel": -1}, "pipeline_parallel=-1"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str):
    """Each with its value."""
    with pytest.raises(ConfigError, match=message):
        ServingOptions(**options)


@pytest.mark.parametrize("name", ["qwen3-next", "nemotron-h"])
def test_states_are_of_the_type_that_was_asked_for(name: str):
    """The recurrent part alone; ``auto`` is the model's own choice."""
    sizes = {
        chosen: model_layout(name, state_dtype=chosen).layout.groups[0].payload_bytes
        for chosen in ("auto", "bfloat16", "float32")
    }
    assert sizes["bfloat16"] < sizes["float32"]
    own = {"qwen3-next": "bfloat16", "nemotron-h": "float32"}[name]
    assert sizes["auto"] == sizes[own]
