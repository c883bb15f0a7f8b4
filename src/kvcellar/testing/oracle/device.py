"""A device cache in real memory, laid out as the engine's configuration says."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kvcellar.integrations.vllm.translate import layer_payload_bytes
from kvcellar.testing.oracle.content import Hashes, unit_bytes

Numbers = npt.NDArray[np.int64]

Views = list[tuple["PageView", Hashes]]
"""Views, each with a seed per layer."""


class PageView:
    """The pages of some equal layers of one group, and how they are cut in units.

    Attributes:
        pages: **[num_blocks, num_layers, num_units, unit_bytes]**, a view.
        tokens_per_unit: tokens that one entry stands for.
    """

    def __init__(
        self, buffer: npt.NDArray[np.uint8], tensor: Any, spec: Any, num_blocks: int
    ) -> None:
        payload = layer_payload_bytes(spec, tensor.layers[0])
        is_state = hasattr(spec, "state_content_size_bytes") and not hasattr(
            spec, "head_size"
        )
        ratio = spec.block_size if is_state else getattr(spec, "tokens_per_state", 1)
        self.tokens_per_unit = int(ratio)
        self.num_units = spec.block_size // self.tokens_per_unit
        size = payload // self.num_units
        self.pages = np.lib.stride_tricks.as_strided(
            buffer[tensor.offset :],
            shape=(num_blocks, len(tensor.layers), self.num_units, size),
            strides=(tensor.block_stride, tensor.layer_stride, size, 1),
        )
        self._rest = payload - size * self.num_units

    def write(
        self, blocks: Numbers, units: Numbers, values: Hashes, seeds: Hashes
    ) -> None:
        """Fill units with what their prefix demands.

        Args:
            blocks: device block of each unit, **[n]**.
            units: place in the block, **[n]**.
            values: prefix value at the unit's last token, **[n]**.
            seeds: one per layer.
        """
        self.pages[blocks, :, units] = unit_bytes(values, seeds, self.pages.shape[-1])

    def wrong(
        self, blocks: Numbers, units: Numbers, values: Hashes, seeds: Hashes
    ) -> npt.NDArray[np.bool_]:
        """Which units have any byte that their prefix does not demand, **[n]**."""
        content = unit_bytes(values, seeds, self.pages.shape[-1])
        differs = self.pages[blocks, :, units] != content
        is_wrong: npt.NDArray[np.bool_] = np.logical_or.reduce(differs, axis=(1, 2))
        return is_wrong


class SimulatedDevice:
    """One rank's cache memory; starts as noise, so that unwritten bytes show.

    Args:
        kv_cache_config: the worker's configuration; its tensors are laid out.
        seed: of the noise.
        rank: whose cache it is; no two ranks hold the same bytes.

    Attributes:
        kv_caches: what a worker registers: every layer's view of the one allocation.
        group_pages: views by engine group id.
        views_by_cut: the same by tokens per unit and units per block.
        block_tokens: tokens per block by engine group id.
    """

    def __init__(self, kv_cache_config: Any, seed: int, rank: int = 0) -> None:
        sizes = {tensor.size for tensor in kv_cache_config.kv_cache_tensors}
        (num_bytes,) = sizes
        rng = np.random.default_rng(seed)
        self._rank = rank
        self._buffer = rng.integers(0, 256, num_bytes, dtype=np.uint8)
        backing = torch.from_numpy(self._buffer)
        self.num_blocks = kv_cache_config.num_blocks
        self.kv_caches = {
            name: backing
            for tensor in kv_cache_config.kv_cache_tensors
            for name in tensor.layers
        }
        groups = list(kv_cache_config.kv_cache_groups)
        self.block_tokens = [group.kv_cache_spec.block_size for group in groups]
        self.group_pages: list[Views] = [
            self._pages_of(kv_cache_config, group_id, group)
            for group_id, group in enumerate(groups)
        ]
        self.views_by_cut = [_by_cut(views) for views in self.group_pages]

    def _pages_of(self, kv_cache_config: Any, group_id: int, group: Any) -> Views:
        pages = []
        names = set(group.layer_names)
        for number, tensor in enumerate(kv_cache_config.kv_cache_tensors):
            if not names.intersection(tensor.layers):
                continue
            spec = _spec_of(group.kv_cache_spec, tensor.layers[0])
            view = PageView(self._buffer, tensor, spec, self.num_blocks)
            first = (self._rank << 48) + (group_id << 40) + (number << 24)
            seeds = np.arange(first, first + len(tensor.layers), dtype=np.uint64)
            pages.append((view, seeds << np.uint64(8)))
        return pages

    def copy_blocks(
        self,
        sources: Sequence[int],
        targets: Sequence[int],
        group_id: int | None = None,
    ) -> None:
        """Copy blocks inside the device.

        Args:
            group_id: whose layout they have; None copies all bytes of any group.
        """
        chosen = self.group_pages if group_id is None else [self.group_pages[group_id]]
        for pages in chosen:
            for view, _ in pages:
                view.pages[list(targets)] = view.pages[list(sources)]

    def zero_blocks(self, blocks: Sequence[int]) -> None:
        """Clear blocks, whosever they are."""
        for pages in self.group_pages:
            for view, _ in pages:
                view.pages[list(blocks)] = 0

    def make_noise(self, blocks: Sequence[int], seed: int) -> None:
        """Overwrite blocks, as a new owner would."""
        rng = np.random.default_rng(seed)
        for pages in self.group_pages:
            for view, _ in pages:
                shape = (len(blocks), *view.pages.shape[1:])
                view.pages[list(blocks)] = rng.integers(0, 256, shape, dtype=np.uint8)


def _by_cut(views: Views) -> dict[tuple[int, int], Views]:
    """Views that are cut alike, together."""
    found: dict[tuple[int, int], Views] = {}
    for view, seeds in views:
        found.setdefault((view.tokens_per_unit, view.num_units), []).append(
            (view, seeds)
        )
    return found


def _spec_of(spec: Any, layer_name: str) -> Any:
    wrapped = getattr(spec, "kv_cache_specs", None)
    return spec if wrapped is None else wrapped[layer_name]
