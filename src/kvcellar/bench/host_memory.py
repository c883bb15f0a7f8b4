"""How fast the kernel hands out host memory: what filling the cache first costs."""

import mmap
import time
from dataclasses import dataclass

from kvcellar.device.trial import TrialShape
from kvcellar.layout.host import plan_geometry
from kvcellar.tiers.memory import HostMemory

NUM_BYTES = 512 * 2**20


@dataclass(frozen=True, slots=True)
class HostMemorySpeed:
    """Mapping is instant and the first write of every page is not.

    Attributes:
        num_bytes: that were mapped and written.
        map_seconds: until the mapping was there.
        touch_bytes_per_second: first writes, one in every page.
    """

    num_bytes: int
    map_seconds: float
    touch_bytes_per_second: float


def measure_host_memory(num_bytes: int = NUM_BYTES) -> HostMemorySpeed:
    """Map memory as a server does, write to each page, and give it back.

    Raises:
        ConfigError: the machine does not have it.
    """
    layout = TrialShape(page_bytes=2**16, cache_bytes=num_bytes).layout()
    geometry = plan_geometry(layout, num_bytes)
    started = time.perf_counter()
    with HostMemory(geometry) as memory:
        mapped = time.perf_counter()
        memory.array[:: mmap.PAGESIZE] = 1
        touched = time.perf_counter()
        num_mapped = memory.num_bytes
    return HostMemorySpeed(
        num_mapped, mapped - started, num_mapped / (touched - mapped)
    )
