"""What a user asks of a plan."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvcellar.config import settings_from_extra_config
from kvcellar.errors import ConfigError
from kvcellar.index.capacity import TYPICAL_PROMPT_TOKENS
from kvcellar.plan.shape import ServerShape
from kvcellar.replay.presets import DEFAULT_GPU
from kvcellar.replay.presets_choice import CostChoice

# Source: EngineArgs.get_batch_defaults, engine/arg_utils.py, vLLM 0.32, API server.
_STEP_TOKENS_BY_GPU = {"b200": 16384, "h100": 8192, "h200": 8192}
_STEP_TOKENS = 2048

MODE_KEYS = frozenset({"mode", "lazy_offload"})
"""Settings that choose a mode."""


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """The engine's own options that decide what its device cache holds.

    Attributes:
        max_model_tokens: as ``--max-model-len``; None takes the model's own.
        step_tokens: as ``--max-num-batched-tokens``; None takes the GPU's default.
        is_async: whether steps are scheduled ahead, the engine's default.

    Raises:
        ConfigError: a number is not positive.
    """

    max_model_tokens: int | None = None
    step_tokens: int | None = None
    is_async: bool = True

    def __post_init__(self) -> None:
        _check_positive("max_model_len", self.max_model_tokens)
        _check_positive("step_tokens", self.step_tokens)

    def step_tokens_on(self, gpu: str | None) -> int:
        """Most prompt tokens of one step."""
        default = _STEP_TOKENS_BY_GPU.get((gpu or DEFAULT_GPU).lower(), _STEP_TOKENS)
        return self.step_tokens or default

    def in_flight_tokens(self, step_tokens: int, num_stages: int) -> int:
        """Tokens scheduled and not settled, at most.

        Source: VllmConfig.max_concurrent_batches, config/vllm.py, vLLM 0.32.
        """
        return step_tokens * (num_stages + int(self.is_async))


@dataclass(frozen=True, slots=True)
class Traffic:
    """What prompts are like.

    Attributes:
        prompt_tokens: of a typical prompt; None takes 4,096, or the longest context.
        num_concurrent: requests that run at once; None if that is not known.

    Raises:
        ConfigError: a number is not positive.
    """

    prompt_tokens: int | None = None
    num_concurrent: int | None = None

    def __post_init__(self) -> None:
        _check_positive("prompt_tokens", self.prompt_tokens)
        _check_positive("concurrency", self.num_concurrent)

    def prompt_tokens_within(self, max_model_tokens: int) -> int:
        """Length of the typical prompt.

        Raises:
            ConfigError: it is longer than the engine allows.
        """
        if self.prompt_tokens is None:
            return min(TYPICAL_PROMPT_TOKENS, max_model_tokens)
        if self.prompt_tokens > max_model_tokens:
            raise ConfigError(
                f"prompt_tokens={self.prompt_tokens} is longer than the longest "
                f"context of {max_model_tokens} tokens; give at most that, or raise "
                "max_model_len if the model allows it"
            )
        return self.prompt_tokens


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Everything that is asked for.

    Attributes:
        model: a catalogue's name, a ``config.json`` or its folder.
        extra_config: the connector's settings under their own names.
        device_bytes: KV cache memory of each GPU; None if that is not known.
        node_bytes: memory of each machine; None if that is not known.
        disk_bytes: disk that somebody would like to use.
    """

    model: str
    extra_config: Mapping[str, object] = field(default_factory=dict)
    cache_dtype: str = "auto"
    block_tokens: int | None = None
    state_dtype: str = "auto"
    shape: ServerShape = field(default_factory=ServerShape)
    device_bytes: int | None = None
    node_bytes: int | None = None
    disk_bytes: int | None = None
    limits: EngineLimits = field(default_factory=EngineLimits)
    traffic: Traffic = field(default_factory=Traffic)
    costs: CostChoice = field(default_factory=CostChoice)

    @property
    def asked_mode(self) -> str | None:
        """The mode that was asked for; None if the plan is to choose."""
        if MODE_KEYS.isdisjoint(self.extra_config):
            return None
        return settings_from_extra_config(self.extra_config).mode


def _check_positive(name: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise ConfigError(f"{name}={value} is not possible; use 1 or more")
