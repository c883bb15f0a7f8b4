"""How many device blocks to give the engine, so that its cache holds few conversations.

An estimate from the model's ``config.json`` alone; the demo proves afterwards, by what
returning requests find, that conversations were evicted.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from kvcellar.demo.block_size import text_config_of

NUM_HELD_CONVERSATIONS = 3
MAX_BATCHED_TOKENS = 2048
_SPAN_KEYS = {
    "sliding_attention": "sliding_window",
    "chunked_attention": "attention_chunk_size",
}
_STATE_KIND = "linear_attention"
# The one that the step reads and the one that it writes.
# Source: vLLM 0.32, v1/kv_cache_interface.py, ``MambaSpec.max_memory_usage_bytes``.
_RUNNING_STATES = 2


@dataclass(frozen=True, slots=True)
class GroupSpan:
    """One cache group of the engine.

    Attributes:
        span_tokens: tokens a layer looks back, or None for all of them.
        is_state: whether its layers keep one state instead, whatever the length.
    """

    span_tokens: int | None
    is_state: bool = False

    def held_blocks(self, num_tokens: int, block_tokens: int) -> int:
        """Blocks that keep a finished prompt of ``num_tokens`` resumable."""
        if self.is_state:
            return 1
        return self._blocks(num_tokens, self.span_tokens, block_tokens)

    def running_blocks(self, num_tokens: int, block_tokens: int) -> int:
        """Most blocks a running prompt has at once: its span and one batch."""
        if self.is_state:
            return _RUNNING_STATES
        span = self.span_tokens
        reach = None if span is None else span + MAX_BATCHED_TOKENS
        return self._blocks(num_tokens, reach, block_tokens)

    @staticmethod
    def _blocks(num_tokens: int, reach_tokens: int | None, block_tokens: int) -> int:
        every = math.ceil(num_tokens / block_tokens)
        if reach_tokens is None:
            return every
        return min(every, math.ceil(reach_tokens / block_tokens) + 1)


def group_spans(config: Mapping[str, object]) -> list[GroupSpan]:
    """The cache groups the engine will form from a Hugging Face configuration.

    Source: vLLM 0.32, v1/core/kv_cache_utils.py: layers of one kind are cut into groups
    as large as the rarest kind, or as the most frequent one if that is less than half
    again as large.
    """
    text_config = text_config_of(config)
    layer_types = text_config.get("layer_types")
    if not isinstance(layer_types, list) or not layer_types:
        return [GroupSpan(None)]
    spans = Counter(_group_span(text_config, str(kind)) for kind in layer_types)
    fewest, most = min(spans.values()), max(spans.values())
    size = most if most < 1.5 * fewest else fewest
    return [
        span
        for span, num_layers in spans.items()
        for _ in range(math.ceil(num_layers / size))
    ]


def num_device_blocks(
    spans: list[GroupSpan], num_tokens: int, max_model_tokens: int, block_tokens: int
) -> int:
    """Blocks for a few conversations of ``num_tokens``, and at least for one to run."""
    held = sum(span.held_blocks(num_tokens, block_tokens) for span in spans)
    running = sum(span.running_blocks(max_model_tokens, block_tokens) for span in spans)
    # One more, as the engine never hands out its null block.
    return 1 + max(NUM_HELD_CONVERSATIONS * held, running)


def _group_span(text_config: Mapping[str, object], kind: str) -> GroupSpan:
    span = text_config.get(_SPAN_KEYS.get(kind, ""))
    return GroupSpan(span if isinstance(span, int) else None, kind == _STATE_KIND)
