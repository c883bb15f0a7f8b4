"""Caches of real models, and of single page sizes, cut to the memory of a check."""

from collections.abc import Sequence

from kvcellar.layout.models.catalogue import CONFIGS
from kvcellar.layout.models.config import ModelConfig
from kvcellar.layout.models.families import model_layers
from kvcellar.layout.models.grouping import group_layers
from kvcellar.layout.models.layer import KIND_BY_FORM, Layer
from kvcellar.layout.models.options import ServingOptions
from kvcellar.testing.gpu.machine import WORD_BYTES
from kvcellar.testing.gpu.rig import Shape

MODELS = ("deepseek-v4-flash", "gpt-oss-20b", "gemma-3-27b")
PAGE_BYTES = (32 * 2**10, 256 * 2**10, 2**20)
_PAGES_PER_BLOCK = 4


def model_shape(name: str, num_bytes: int) -> Shape:
    """A model's chunk group and its widest checkpoint group, as vLLM lays them out.

    Args:
        num_bytes: about as large is the cache, and host memory.
    """
    model = model_layers(ModelConfig(CONFIGS[name], name), ServingOptions())
    groups = group_layers(model.layers, is_block_outer=model.is_block_outer)
    kept = [group for group in groups if group[0].cache.is_cacheable]
    chunks = next(group for group in kept if _is_append_only(group))
    checkpoints = [group for group in kept if not _is_append_only(group)]
    chosen = (chunks, max(checkpoints, key=_payload_bytes))
    row_bytes = max(sum(layer.cache.page_bytes for layer in g) for g in chosen)
    return Shape(
        groups=tuple(_words([c.cache.payload_bytes for c in g]) for g in chosen),
        padded=tuple(_words([c.cache.page_bytes for c in g]) for g in chosen),
        num_blocks=max(num_bytes // row_bytes, 4),
        is_block_outermost=model.is_block_outer,
        host_cells=max(num_bytes // max(map(_payload_bytes, chosen)), 8),
    )


def page_shape(page_bytes: int, num_bytes: int) -> Shape:
    """Blocks of a few equal pages, layer-outermost, so that no two pages join."""
    block_bytes = _PAGES_PER_BLOCK * page_bytes
    return Shape(
        groups=(_words([page_bytes] * _PAGES_PER_BLOCK),),
        num_blocks=max(num_bytes // block_bytes, 4),
        host_cells=max(num_bytes // block_bytes, 8),
    )


def _is_append_only(group: Sequence[Layer]) -> bool:
    return KIND_BY_FORM[group[0].cache.form].is_append_only


def _payload_bytes(group: Sequence[Layer]) -> int:
    return sum(layer.cache.payload_bytes for layer in group)


def _words(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(size // WORD_BYTES for size in sizes)
