"""What has to be known about a model before the engine can plan its cache."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LayerSpecs = dict[str, Any]
"""The engine's spec of every layer that keeps a cache, in registration order."""

LAYER_OUTER = "LBNHC"
"""Each layer's pages together: the engine's choice where no backend asks for another.

Source: v1/attention/backends/utils.py, ``_DEFAULT_LAYOUT_PREFERENCE``, vLLM 0.32.
"""

BLOCK_OUTER = "BLHNC"
"""All layers' pages of one block together, each layer with a page size of its own.

Source: what the DeepSeek-V4 indexer's backend asks for, vLLM 0.32.
"""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One layout by name.

    Attributes:
        layers: makes the layers' specs; True asks for the small form, which has the
            same groups but fewer layers and a few bytes per token.
        prompt_tokens: a long prompt for it: several alignment units, and more than
            any of its windows.
        kv_cache_layout: the engine's name of the physical order.
        num_draft_tokens: tokens per step of an MTP drafter, 0 without one.
    """

    name: str
    layers: Callable[[bool], LayerSpecs]
    prompt_tokens: int
    kv_cache_layout: str = LAYER_OUTER
    num_draft_tokens: int = 0
