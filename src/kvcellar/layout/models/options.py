"""How a model is served, as far as its cache depends on it."""

from dataclasses import dataclass

from kvcellar.errors import ConfigError

CACHE_DTYPES = (
    "auto",
    "bfloat16",
    "float16",
    "fp8",
    "fp8_e4m3",
    "fp8_e5m2",
    "fp8_ds_mla",
)
"""Supported values of the engine's ``--kv-cache-dtype``."""

STATE_DTYPES = ("auto", "bfloat16", "float16", "float32")
"""Values of the engine's ``--mamba-ssm-cache-dtype``; its CPU kernels take the last."""

DEFAULT_BLOCK_TOKENS = 16
"""Source: CacheConfig.DEFAULT_BLOCK_SIZE, vLLM 0.32."""

KERNEL_BLOCK_TOKENS = 16
"""Blocks are multiples of this: FlashAttention's smallest, also for latent caches.

Source: v1/attention/backends/flash_attn.py and mla/flashattn_mla.py, vLLM 0.32.
"""


@dataclass(frozen=True, slots=True)
class ServingOptions:
    """The engine's options that decide the cache's layout.

    Attributes:
        cache_dtype: one of ``CACHE_DTYPES``.
        block_tokens: the engine's ``--block-size``; None leaves it to the model.
        tensor_parallel: ranks that share each layer.
        pipeline_parallel: stages that share out the layers.
        state_dtype: type of recurrent states, one of ``STATE_DTYPES``.

    Raises:
        ConfigError: a value is unknown or not positive.
    """

    cache_dtype: str = "auto"
    block_tokens: int | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    state_dtype: str = "auto"

    def __post_init__(self) -> None:
        if self.cache_dtype not in CACHE_DTYPES:
            raise ConfigError(
                f"cache_dtype={self.cache_dtype!r} is not known to kvcellar; use one "
                f"of {', '.join(CACHE_DTYPES)}"
            )
        if self.state_dtype not in STATE_DTYPES:
            raise ConfigError(
                f"state_dtype={self.state_dtype!r} is not known to kvcellar; use one "
                f"of {', '.join(STATE_DTYPES)}"
            )
        numbers = {
            "block_tokens": 1 if self.block_tokens is None else self.block_tokens,
            "tensor_parallel": self.tensor_parallel,
            "pipeline_parallel": self.pipeline_parallel,
        }
        for name, value in numbers.items():
            if value < 1:
                raise ConfigError(f"{name}={value} is not possible; use 1 or more")

    def block_of(self, unit_tokens: int, default_tokens: int) -> int:
        """Tokens per block for kernels that need multiples of ``unit_tokens``.

        Raises:
            ConfigError: the requested block is no multiple.
        """
        block = self.block_tokens or default_tokens
        if block % unit_tokens:
            raise ConfigError(
                f"block_tokens={block} does not fit this model's attention kernels; "
                f"use a multiple of {unit_tokens}"
            )
        return block

    def fixed_block(self, block_tokens: int) -> int:
        """The only block that a model's kernels take.

        Raises:
            ConfigError: another block is requested.
        """
        if self.block_tokens not in (None, block_tokens):
            raise ConfigError(
                f"block_tokens={self.block_tokens} does not fit this model's attention "
                f"kernels; they take {block_tokens} only, so leave it out"
            )
        return block_tokens


def heads_per_rank(num_heads: int, tensor_parallel: int) -> int:
    """KV heads that one rank holds; with fewer heads than ranks, each holds one.

    Raises:
        ConfigError: neither number divides the other.

    Source: ModelConfig.get_num_kv_heads and the models' own checks, vLLM 0.32.
    """
    if num_heads % tensor_parallel == 0:
        return num_heads // tensor_parallel
    if num_heads < tensor_parallel and tensor_parallel % num_heads == 0:
        return 1
    raise ConfigError(
        f"tensor_parallel={tensor_parallel} cannot share {num_heads} KV heads; use a "
        "divisor or a multiple of that"
    )


def share_of(total: int, tensor_parallel: int, what: str) -> int:
    """One rank's share of something that only divides evenly.

    Raises:
        ConfigError: it does not.
    """
    if total % tensor_parallel:
        raise ConfigError(
            f"tensor_parallel={tensor_parallel} does not divide the model's {total} "
            f"{what}; use a divisor of that"
        )
    return total // tensor_parallel
