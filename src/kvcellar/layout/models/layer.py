"""What one layer keeps in the engine's cache, in plain integers: page and payload.

A page is what one block costs for one layer. The payload is what of it is read; the
rest is padding to an alignment, or up to another layer's page.
"""

import dataclasses
import enum
import math
from dataclasses import dataclass
from typing import TypeAlias

from kvcellar.layout.groups import AttentionKind

DTYPE_BYTES = {"uint8": 1, "bfloat16": 2, "float16": 2, "float32": 4}
"""Bytes of one entry by name of its type; fp8 caches are stored as ``uint8``."""


class CacheForm(enum.StrEnum):
    """Forms of cache that the engine tells apart when it groups layers.

    Source: the spec classes of v1/kv_cache_interface.py, vLLM 0.32.
    """

    FULL = "full"
    LATENT = "latent"
    WINDOW = "window"
    LATENT_WINDOW = "latent_window"
    CHUNKED = "chunked"
    STATE = "state"
    RING = "ring"


KIND_BY_FORM: dict[CacheForm, AttentionKind] = {
    CacheForm.FULL: AttentionKind.FULL,
    CacheForm.LATENT: AttentionKind.FULL,
    CacheForm.WINDOW: AttentionKind.WINDOW,
    CacheForm.LATENT_WINDOW: AttentionKind.WINDOW,
    CacheForm.CHUNKED: AttentionKind.CHUNKED,
    CacheForm.STATE: AttentionKind.STATE,
}
"""How the forms remember; a ring holds nothing that a later request could read."""


@dataclass(frozen=True, slots=True)
class AttentionCache:
    """Cells of keys and values, one per head and stored state.

    Two layers are the same to the engine when these are equal.

    Attributes:
        block_tokens: tokens per block.
        num_heads: KV heads on one rank.
        key_size: entries of a key, or of a latent vector.
        value_size: entries of a value; 0 where one vector serves as both.
        span_tokens: window or local-chunk length; None for the other forms.
        tokens_per_state: tokens that one stored entry stands for.
        record_bytes: bytes of one cell where it is packed; None: from the sizes.
        alignment_bytes: pages are padded to multiples of this.
        page_padded_bytes: pages are padded to this, whatever the alignment.
        is_replayed: the window is recomputed after a hit, so it is never looked up.
        model_version: the engine's mark on caches of models it treats apart.
        compressor_ratio: tokens per compressed entry where this is a compressor's
            state. Known from the model's code; the engine does not know it.
    """

    form: CacheForm
    block_tokens: int
    num_heads: int
    key_size: int
    value_size: int
    dtype: str
    span_tokens: int | None = None
    tokens_per_state: int = 1
    record_bytes: int | None = None
    alignment_bytes: int | None = None
    page_padded_bytes: int | None = None
    is_replayed: bool = False
    model_version: str | None = None
    compressor_ratio: int | None = dataclasses.field(default=None, compare=False)

    @property
    def payload_bytes(self) -> int:
        """Bytes of one block that the layer reads."""
        cell = self.record_bytes
        if cell is None:
            cell = (self.key_size + self.value_size) * DTYPE_BYTES[self.dtype]
        return self.num_heads * (self.block_tokens // self.tokens_per_state) * cell

    @property
    def page_bytes(self) -> int:
        """Bytes of one block with its padding."""
        if self.page_padded_bytes is not None:
            return self.page_padded_bytes
        alignment = self.alignment_bytes or 1
        return -(-self.payload_bytes // alignment) * alignment

    @property
    def is_cacheable(self) -> bool:
        """Whether the layer takes part in prefix hits."""
        return self.form is not CacheForm.RING and not self.is_replayed


@dataclass(frozen=True, slots=True)
class StateCache:
    """One recurrent state per block.

    Attributes:
        block_tokens: tokens between two states that are kept.
        shapes: shape of each part of the state on one rank.
        dtypes: type of each part.
        page_padded_bytes: pages are padded to this.
        num_checkpoint_blocks: blocks a request holds on top of two, for a state set
            aside in the middle of a prefill.
    """

    block_tokens: int
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    page_padded_bytes: int | None = None
    num_checkpoint_blocks: int = 0

    form = CacheForm.STATE
    span_tokens = None
    tokens_per_state = 1
    compressor_ratio = None
    is_cacheable = True

    @property
    def payload_bytes(self) -> int:
        """Bytes of one state."""
        parts = zip(self.shapes, self.dtypes, strict=True)
        return sum(math.prod(shape) * DTYPE_BYTES[dtype] for shape, dtype in parts)

    @property
    def page_bytes(self) -> int:
        """Bytes of one state with its padding."""
        return self.page_padded_bytes or self.payload_bytes


LayerCache: TypeAlias = AttentionCache | StateCache


@dataclass(frozen=True, slots=True)
class Layer:
    """One cache of one decoder layer, which may have several.

    Attributes:
        index: number of the decoder layer; pipeline stages are cut by it.
        part: what it is within the decoder layer, such as ``"attn"``.
    """

    index: int
    part: str
    cache: LayerCache

    @property
    def name(self) -> str:
        """Unique among a model's layers."""
        return f"model.layers.{self.index}.{self.part}"


def with_page(layer: Layer, page_bytes: int) -> Layer:
    """The same layer with its page padded to ``page_bytes``."""
    cache = dataclasses.replace(layer.cache, page_padded_bytes=page_bytes)
    return dataclasses.replace(layer, cache=cache)


def with_block(layer: Layer, block_tokens: int) -> Layer:
    """The same layer with other blocks."""
    cache = dataclasses.replace(layer.cache, block_tokens=block_tokens)
    return dataclasses.replace(layer, cache=cache)
