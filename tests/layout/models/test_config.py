"""Reading a config.json: nested parts, defaults, lengths, types, and what is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvcellar.errors import ConfigError
from kvcellar.layout.models.config import ModelConfig, read_config


def config(**values: Any) -> ModelConfig:
    return ModelConfig(values, "some-model")


def test_the_text_part_comes_before_the_rest():
    """A multimodal model's text values win over those of the whole."""
    nested = config(num_hidden_layers=2, text_config={"num_hidden_layers": 40})
    assert 40 == nested.num_layers


def test_defaults_fill_gaps_but_not_nulls():
    """A value that is left out is assumed; an explicit null is not."""
    found = config(text_config={"a": 3}, b=None).with_defaults({"a": 1, "b": 2, "c": 4})
    assert [3, None, 4] == [found.get(key) for key in "abc"]


def test_defaults_keep_the_architectures():
    """Filling gaps does not lose the names of the model's classes."""
    found = ModelConfig({"architectures": ["A"]}, "m").with_defaults({"x": 1})
    assert ("A",) == found.architectures


def test_head_size_follows_from_the_width():
    """Without head_dim, or with a null, heads share the hidden size."""
    found = config(head_dim=None, hidden_size=512, num_attention_heads=4)
    assert 128 == found.head_size


def test_zero_is_no_window():
    """Checkpoints say 0 or null for no window."""
    assert [None, None, None, 7] == [
        config().window(),
        config(sliding_window=None).window(),
        config(sliding_window=0).window(),
        config(sliding_window=7).window(),
    ]


@pytest.mark.parametrize(
    ("values", "tokens"),
    [
        ({"max_position_embeddings": 4096}, 4096),
        ({"max_position_embeddings": 4096, "seq_length": 1024}, 1024),
        ({}, 2048),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 32768),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 8192),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 40}}, 8192),
        ({"rope_parameters": {"rope_type": "default"}}, 8192),
        ({"rope_parameters": {"full": {"rope_type": "linear", "factor": 2}}}, 16384),
    ],
)
def test_longest_context(values: dict[str, Any], tokens: int):
    """The smallest length counts, times a factor where it is not counted in yet."""
    if any(key.startswith("rope") for key in values):
        values = {"max_position_embeddings": 8192, **values}
    assert tokens == config(**values).max_tokens


def test_gemma3s_length_is_scaled_already():
    """Gemma 3 names a factor that its length includes."""
    found = config(
        model_type="gemma3_text",
        max_position_embeddings=131072,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
    )
    assert 131072 == found.max_tokens


def test_longrope_starts_with_the_original_length():
    """With two sets of factors the engine stays below the first one's limit."""
    found = config(
        max_position_embeddings=131072,
        original_max_position_embeddings=4096,
        rope_scaling={"type": "longrope"},
    )
    assert 4096 == found.max_tokens


@pytest.mark.parametrize(
    ("quantisation", "dtype"),
    [
        (None, "auto"),
        ({"quant_method": "fp8"}, "auto"),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": None}, "auto"),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": {}}, "fp8"),
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}, "fp8"),
    ],
)
def test_a_checkpoint_may_ask_for_an_8_bit_cache(quantisation: Any, dtype: str):
    """Only a checkpoint that says how its cache is scaled changes ``auto``."""
    assert dtype == config(quantization_config=quantisation).stored_cache_dtype


def test_the_models_type_is_half_or_bfloat16():
    """Caches in float32 do not exist: the engine computes such models in bfloat16."""
    assert ["float16", "bfloat16", "bfloat16"] == [
        config(torch_dtype="float16").dtype,
        config(dtype="float32").dtype,
        config().dtype,
    ]


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "40"])
def test_numbers_must_be_positive_integers(value: Any):
    """The message names the model, the key and the value."""
    with pytest.raises(ConfigError, match="some-model: num_hidden_layers="):
        config(num_hidden_layers=value).num_layers  # noqa: B018 - raises


def test_a_missing_number_is_named():
    """What is not there, and not assumed, is an error with its key."""
    with pytest.raises(ConfigError, match="no 'kv_lora_rank'"):
        config().integer("kv_lora_rank")


@pytest.mark.parametrize("value", [[1, 2], "abc", 3])
def test_lists_must_cover_all_layers(value: Any):
    """A list per layer that is too short, or no list, is refused."""
    with pytest.raises(ConfigError, match="'layer_types' must list at least 4"):
        config(layer_types=value).sequence("layer_types", 4)


@pytest.mark.parametrize("value", [None, [], "LlamaForCausalLM"])
def test_architectures_must_be_a_list(value: Any):
    """Without a list of architectures nothing is known about the layers."""
    with pytest.raises(ConfigError, match="'architectures'"):
        ModelConfig({"architectures": value}, "m").architectures  # noqa: B018 - raises


def test_a_file_and_its_folder_read_the_same(tmp_path: Path):
    """Either the file or the folder that holds it may be given."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"a": 1}))
    assert {"a": 1} == read_config(file) == read_config(tmp_path)


@pytest.mark.parametrize("text", ["{", "[1]", "\xff"])
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str):
    """What is no JSON object, or no text, is the user's mistake."""
    file = tmp_path / "config.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"config\.json is not"):
        read_config(file)


def test_a_folder_without_a_configuration_is_refused(tmp_path: Path):
    """The message says which file was looked for."""
    with pytest.raises(ConfigError, match=r"config\.json cannot be read"):
        read_config(tmp_path)
