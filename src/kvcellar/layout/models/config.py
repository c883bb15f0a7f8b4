"""A model's ``config.json``, read without any model library."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kvcellar.errors import ConfigError

_TEXT_PARTS = ("text_config", "language_config", "llm_config")
_LENGTH_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
_UNSCALED_ROPES = (
    "default",
    "su",
    "longrope",
    "llama3",
    "yarn",
    "deepseek_yarn",
    "deepseek_llama_scaling",
)
# What the engine assumes where a configuration names no length.
_UNKNOWN_LENGTH_TOKENS = 2048


class ModelConfig:
    """Typed access to a configuration whose text model may lie in a part of it.

    Args:
        raw: the content of ``config.json``.
        name: for messages.
    """

    def __init__(self, raw: Mapping[str, Any], name: str) -> None:
        self.name = name
        parts = (raw[key] for key in _TEXT_PARTS if raw.get(key))
        text: Mapping[str, Any] = next(parts, {})
        self._values: dict[str, Any] = {**raw, **text}
        self._architectures = raw.get("architectures")

    def with_defaults(self, defaults: Mapping[str, Any]) -> "ModelConfig":
        """The same, with values for keys that are left out; a null stays a null.

        Args:
            defaults: what the model's library assumes.
        """
        raw = {**defaults, **self._values, "architectures": self._architectures}
        return ModelConfig(_without_parts(raw), self.name)

    @property
    def architectures(self) -> tuple[str, ...]:
        """The names of model classes that the configuration gives.

        Raises:
            ConfigError: it gives none.
        """
        names = self._architectures
        if not names or isinstance(names, str):
            raise ConfigError(
                f"{self.name}: the configuration has no list 'architectures', so its "
                "layers are unknown; pass a model's own config.json"
            )
        return tuple(names)

    def get(self, key: str) -> Any:
        """The value as it stands, or None."""
        return self._values.get(key)

    def integer(self, *keys: str, default: int | None = None) -> int:
        """A positive whole number under the first of ``keys`` that has a value.

        Args:
            default: what model libraries assume where it is left out.

        Raises:
            ConfigError: it is neither there nor assumed, or no positive integer.
        """
        value = next((v for v in map(self.get, keys) if v is not None), default)
        if value is None:
            raise ConfigError(
                f"{self.name}: the configuration has no {keys[0]!r}; add it, or pass "
                "the model's own config.json"
            )
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(
                f"{self.name}: {keys[0]}={value!r} is not a positive integer"
            )
        return value

    def window(self, default: int | None = None) -> int | None:
        """Tokens of the sliding window; None where there is none."""
        if not self._values.get("sliding_window", default):
            return None
        return self.integer("sliding_window", default=default)

    def sequence(self, key: str, length: int) -> Sequence[Any] | None:
        """A list with an entry for each of ``length`` layers, or None.

        Raises:
            ConfigError: it is no list, or too short.
        """
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or len(value) < length:
            raise ConfigError(
                f"{self.name}: {key!r} must list at least {length} entries, one per "
                "layer"
            )
        return value[:length]

    @property
    def num_layers(self) -> int:
        """Decoder layers."""
        return self.integer("num_hidden_layers")

    @property
    def head_size(self) -> int:
        """Entries per head."""
        if self.get("head_dim"):
            return self.integer("head_dim")
        return self.integer("hidden_size") // self.integer("num_attention_heads")

    @property
    def dtype(self) -> str:
        """Type that the model computes in, as the engine chooses it by itself."""
        named = str(self.get("dtype") or self.get("torch_dtype") or "bfloat16")
        return "float16" if named.removeprefix("torch.") == "float16" else "bfloat16"

    @property
    def stored_cache_dtype(self) -> str:
        """The type that a quantised checkpoint asks for, else ``"auto"``.

        Source: get_kv_cache_quant_algo_string, utils/torch_utils.py, and
        model_executor/layers/attention/attention.py, vLLM 0.32.
        """
        quantised = self.get("quantization_config") or {}
        method = str(quantised.get("quant_method", ""))
        scheme = quantised.get("kv_cache_scheme")
        algorithm = quantised.get("kv_cache_quant_algo")
        is_fp8 = (method == "compressed-tensors" and scheme is not None) or (
            method.startswith("modelopt") and str(algorithm).lower() == "fp8"
        )
        return "fp8" if is_fp8 else "auto"

    @property
    def max_tokens(self) -> int:
        """Longest context that the engine allows by itself.

        A tokenizer's own limit, which the engine also minds, is not looked at.

        Source: _get_and_verify_max_len, config/model.py, vLLM 0.32.
        """
        lengths = [self.integer(k) for k in _LENGTH_KEYS if self.get(k) is not None]
        longest = min(lengths, default=_UNKNOWN_LENGTH_TOKENS)
        ropes = list(self._ropes())
        if any(_rope_type(rope) == "longrope" for rope in ropes):
            return self.integer("original_max_position_embeddings", default=longest)
        if "gemma3" in str(self.get("model_type")):
            return longest
        factors = [
            rope.get("factor") or 1.0
            for rope in ropes
            if _rope_type(rope) not in _UNSCALED_ROPES
        ]
        return int(longest * (factors[-1] if factors else 1.0))

    def _ropes(self) -> Iterator[Mapping[str, Any]]:
        """Parameters of each rotary embedding: one, or one per type of layer."""
        found = self.get("rope_scaling") or self.get("rope_parameters") or {}
        nested = [value for value in found.values() if isinstance(value, Mapping)]
        yield from nested or ([found] if found else [])


def _without_parts(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without nested text parts: they have been merged in already."""
    return {key: value for key, value in raw.items() if key not in _TEXT_PARTS}


def _rope_type(rope: Mapping[str, Any]) -> str:
    return str(rope.get("rope_type") or rope.get("type") or "default")


def read_config(path: Path) -> Mapping[str, Any]:
    """The content of ``config.json``.

    Args:
        path: the file, or the folder that holds it.

    Raises:
        ConfigError: there is no such file, or it holds no JSON object.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as cause:
        reason = cause.strerror or cause
        raise ConfigError(
            f"{file} cannot be read: {reason}; name a model's config.json, or the "
            "folder that holds it"
        ) from cause
    except ValueError as cause:
        raise ConfigError(f"{file} is not JSON: {cause}") from cause
    if not isinstance(content, dict):
        raise ConfigError(f"{file} is not a model's configuration: no JSON object")
    return content
