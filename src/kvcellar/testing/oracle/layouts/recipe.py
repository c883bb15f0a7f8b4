"""What has to be known about a model before the engine can plan its cache."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

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


class Size(enum.Enum):
    """How many layers and bytes a layout has; its groups are the same in both."""

    SMALL = "small"
    REAL = "real"

    def pick(self, small: T, real: T) -> T:
        """The value that belongs to this size."""
        return small if self is Size.SMALL else real


@dataclass(frozen=True, slots=True)
class Recipe:
    """One layout by name.

    Attributes:
        layers: makes the layers' specs in either size.
        prompt_tokens: a long prompt for it: several alignment units, and more than
            any of its windows.
        kv_cache_layout: the engine's name of the physical order.
        num_draft_tokens: tokens per step of an MTP drafter, 0 without one.
    """

    name: str
    layers: Callable[[Size], LayerSpecs]
    prompt_tokens: int
    kv_cache_layout: str = LAYER_OUTER
    num_draft_tokens: int = 0
