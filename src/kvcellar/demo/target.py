"""The model the demo runs, and the arguments its server is started with."""

import json
from dataclasses import dataclass
from pathlib import Path

from kvcellar.demo.block_size import block_tokens_for
from kvcellar.demo.budget import MAX_BATCHED_TOKENS, group_spans, num_device_blocks
from kvcellar.demo.recipes import RECIPES
from kvcellar.demo.script import LONGEST_PROMPT_TOKENS, MAX_MODEL_TOKENS
from kvcellar.demo.tiny import ensure_tiny
from kvcellar.errors import ConfigError
from kvcellar.layout.models.paths import is_there
from kvcellar.serve.model import check_model

SERVED_NAME = "demo"


@dataclass(frozen=True, slots=True)
class Target:
    """One model and the device cache it is given.

    Attributes:
        path: the model's folder.
        description: for the report.
        block_tokens: the engine's block size, in tokens.
        num_device_blocks: blocks in the device cache.
    """

    path: Path
    description: str
    block_tokens: int
    num_device_blocks: int

    def vllm_arguments(self, port: int, num_ranks: int = 1) -> tuple[str, ...]:
        """The server's arguments: a small cache, eager execution, counted hits."""
        return (
            *("--host", "127.0.0.1", "--port", str(port)),
            *("--served-model-name", SERVED_NAME),
            *("--max-model-len", str(MAX_MODEL_TOKENS)),
            *("--max-num-batched-tokens", str(MAX_BATCHED_TOKENS)),
            *("--block-size", str(self.block_tokens)),
            *("--num-gpu-blocks-override", str(self.num_device_blocks)),
            *("--tensor-parallel-size", str(num_ranks)),
            "--enforce-eager",
            "--enable-prompt-tokens-details",
        )


def tiny_target(name: str) -> Target:
    """A tiny model, made first if need be."""
    path = ensure_tiny(name)
    recipe = RECIPES[name]
    description = f"tiny {name}, random weights ({recipe.summary})"
    return _target(path, description, _config_of(path), recipe.block_tokens)


def local_target(model: str) -> Target:
    """A local model with its own weights and tokenizer.

    Raises:
        ConfigError: there is no model in that folder.
    """
    check_model(model)
    path = Path(model).expanduser()
    if not (is_there(path) and path.is_dir()):
        raise ConfigError(f"model={model!r} is not a folder; give a local model")
    config = _config_of(path)
    return _target(path, str(path), config, block_tokens_for(config))


def _config_of(path: Path) -> dict[str, object]:
    try:
        config: dict[str, object] = json.loads((path / "config.json").read_text())
    except ValueError as error:
        raise ConfigError(f"{path / 'config.json'} is not JSON: {error}") from error
    return config


def _target(
    path: Path, description: str, config: dict[str, object], block_tokens: int
) -> Target:
    num_blocks = num_device_blocks(
        group_spans(config), LONGEST_PROMPT_TOKENS, MAX_MODEL_TOKENS, block_tokens
    )
    return Target(path, description, block_tokens, num_blocks)
