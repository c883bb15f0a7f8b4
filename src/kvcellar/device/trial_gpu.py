"""A cache in a GPU's memory, for trials of copies. Needs torch and a GPU."""

import contextlib
from collections.abc import Iterator

import torch

from kvcellar.device.driver import Driver
from kvcellar.device.torch_driver import open_driver
from kvcellar.device.trial import TrialShape
from kvcellar.tiers.memory import HostMemory


@contextlib.contextmanager
def open_gpu(
    shape: TrialShape, memory: HostMemory
) -> Iterator[tuple[int, Driver, str]]:
    """The cache's address, the driver of its GPU, and the GPU's name."""
    cache = torch.full((shape.cache_bytes,), 2, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    driver = open_driver(cache, memory.array)
    yield cache.data_ptr(), driver, torch.cuda.get_device_name(cache.device)
