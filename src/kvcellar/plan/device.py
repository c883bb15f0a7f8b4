"""What the engine's own cache holds, by the engine's own counting."""

import bisect
from dataclasses import dataclass

from kvcellar.attention import rule_for
from kvcellar.errors import ConfigError
from kvcellar.layout.groups import CacheLayout
from kvcellar.layout.models import ModelLayout

_NULL_BLOCKS = 1  # the engine never hands out its first block


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """The device cache of one server.

    Attributes:
        memory_bytes: KV cache memory of each GPU.
        row_bytes: what a block of any group takes there, on the rank with the least.
        num_blocks: blocks of the pool.
        num_tokens: the engine's "KV cache size": requests of the longest context that
            run at once, times that length.
        max_model_tokens: the longest context.
        max_concurrency: those requests.
        in_flight_tokens: scheduled and not settled, at most; windows hold them besides.
        longest_request_tokens: longest request for which there is room.
        blocks_per_prompt: blocks that keep one typical prompt resumable.
        num_prompts: typical prompts that the engine's own prefix cache holds, at most.
        num_running: typical prompts that can be computed at once.
    """

    memory_bytes: int
    row_bytes: int
    num_blocks: int
    num_tokens: int
    max_model_tokens: int
    max_concurrency: float
    in_flight_tokens: int
    longest_request_tokens: int
    blocks_per_prompt: int
    num_prompts: int
    num_running: int

    @property
    def log_line(self) -> str:
        """What the engine says at its start, behind the kind of the device."""
        return (
            f"KV cache size: {self.num_tokens:,} tokens, Maximum concurrency for "
            f"{self.max_model_tokens:,} tokens per request: {self.max_concurrency:.2f}x"
        )


def plan_device(
    model: ModelLayout,
    memory_bytes: int,
    max_model_tokens: int,
    in_flight_tokens: int,
    prompt_tokens: int,
) -> DevicePlan:
    """Count blocks, and what they hold.

    Args:
        memory_bytes: KV cache memory of each GPU.
        prompt_tokens: length of the typical prompt.

    Raises:
        ConfigError: there is not room for a single request of one token.

    Source: get_kv_cache_config_from_groups and get_kv_cache_capacity,
    v1/core/kv_cache_utils.py, vLLM 0.32.
    """
    row_bytes = max(stage.row_bytes for stage in model.stages)
    num_blocks = memory_bytes // row_bytes

    def blocks_of(num_tokens: int) -> int:
        return model.blocks_per_request(num_tokens, in_flight_tokens)

    if num_blocks < blocks_of(1):
        raise ConfigError(
            f"device_memory={memory_bytes} holds {num_blocks} blocks of {model.name}, "
            f"each of {row_bytes} bytes, and any request takes {blocks_of(1)}; give at "
            f"least {blocks_of(1) * row_bytes} bytes"
        )
    share = num_blocks / blocks_of(max_model_tokens)
    tail = blocks_per_prompt(model.layout, prompt_tokens)
    return DevicePlan(
        memory_bytes=memory_bytes,
        row_bytes=row_bytes,
        num_blocks=num_blocks,
        num_tokens=int(share * max_model_tokens),
        max_model_tokens=max_model_tokens,
        max_concurrency=share,
        in_flight_tokens=in_flight_tokens,
        longest_request_tokens=bisect.bisect_right(
            range(1, max_model_tokens + 1), num_blocks, key=blocks_of
        ),
        blocks_per_prompt=tail,
        num_prompts=(num_blocks - _NULL_BLOCKS) // tail if tail else 0,
        num_running=num_blocks // blocks_of(prompt_tokens),
    )


def blocks_per_prompt(layout: CacheLayout, prompt_tokens: int) -> int:
    """Blocks of the pool that resuming at the end of a prompt reads.

    Blocks that have left their window count as free: they go as soon as room is needed.
    """
    unit = layout.alignment_tokens
    boundary = max(prompt_tokens // unit, 1) * unit
    return sum(len(rule_for(group).needed(boundary)) for group in layout.groups)
