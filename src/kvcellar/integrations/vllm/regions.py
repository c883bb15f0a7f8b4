"""From the tensors that vLLM registers to the addresses of every block's bytes."""

from typing import TYPE_CHECKING, Any

from kvcellar.device.regions import PageTensor, Region, regions_from_tensors
from kvcellar.errors import IncompatibleError
from kvcellar.integrations.vllm.translate import layer_payload_bytes
from kvcellar.layout.groups import CacheLayout

if TYPE_CHECKING:
    import torch


def group_regions(
    layout: CacheLayout, kv_cache_config: Any, kv_caches: "dict[str, torch.Tensor]"
) -> list[tuple[Region, ...]]:
    """Regions of each group of the layout, in its order.

    The configuration says where pages lie; the tensors only lend the address of the
    allocation they are all views of. Tensors that no layer of this rank uses are not
    in ``kv_caches`` and so are left out.

    Raises:
        IncompatibleError: the layers do not share one allocation, or pages would
            leave it.
    """
    address, num_bytes = _allocation(kv_caches)
    regions = []
    for group in layout.groups:
        engine_group = kv_cache_config.kv_cache_groups[group.group_id]
        names = set(engine_group.layer_names) & kv_caches.keys()
        tensors = [
            PageTensor(
                storage_address=address,
                storage_bytes=num_bytes,
                offset_bytes=tensor.offset + place * tensor.layer_stride,
                layer_stride_bytes=tensor.layer_stride,
                block_stride_bytes=tensor.block_stride,
                num_layers=1,
                payload_bytes=layer_payload_bytes(engine_group.kv_cache_spec, name),
            )
            for tensor in kv_cache_config.kv_cache_tensors
            for place, name in enumerate(tensor.layers)
            if name in names
        ]
        regions.append(regions_from_tensors(tensors, kv_cache_config.num_blocks))
    return regions


def _allocation(kv_caches: "dict[str, torch.Tensor]") -> tuple[int, int]:
    """Address and bytes of the one allocation behind all views."""
    storages = [tensor.untyped_storage() for tensor in kv_caches.values()]
    found = {(storage.data_ptr(), storage.nbytes()) for storage in storages}
    if len(found) != 1:
        raise IncompatibleError(
            f"the cache lies in {len(found)} allocations, but kvcellar knows only "
            "layouts of one; use vLLM 0.32"
        )
    return found.pop()
