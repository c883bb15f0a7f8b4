"""What pinning costs per GiB, and how long it holds other threads' calls up."""

import threading
import time
from dataclasses import dataclass

from kvcellar.device.numa import PageProvider
from kvcellar.layout.host import HostGeometry, SizeClass
from kvcellar.testing.gpu.machine import Machine, Span
from kvcellar.tiers.memory import HostMemory

_GIB = 2**30


@dataclass(frozen=True)
class PinningSpeed:
    """Seconds per GiB of each part.

    Attributes:
        provide_seconds: for the kernel to provide pages.
        register_seconds: for the driver to lock them.
        unregister_seconds: to unlock them.
        launch_seconds: the longest that model work took to queue meanwhile.
        quiet_launch_seconds: the longest without.
    """

    num_bytes: int
    provide_seconds: float
    register_seconds: float
    unregister_seconds: float
    launch_seconds: float
    quiet_launch_seconds: float


def pinning_speed(machine: Machine, num_bytes: int, node: int | None) -> PinningSpeed:
    """Provide, register and unregister a fresh mapping.

    Args:
        node: memory node near the accelerator, if that is known.
    """
    geometry = HostGeometry(num_bytes, 1, (SizeClass(num_bytes, 1, (0,)),), (0,), (1,))
    per_gib = num_bytes / _GIB
    with HostMemory(geometry) as memory:
        quiet = _longest_launch(machine, threading.Event(), num_launches=200)
        started = time.perf_counter()
        PageProvider(node)(memory.address, num_bytes)
        provided = time.perf_counter()
        is_over, launches = threading.Event(), [0.0]
        thread = threading.Thread(target=_register, args=(machine, memory, is_over))
        thread.start()
        launches.append(_longest_launch(machine, is_over))
        thread.join()
        registered = time.perf_counter()
        machine.driver.unregister(memory.address)
        unregistered = time.perf_counter()
    return PinningSpeed(
        num_bytes,
        (provided - started) / per_gib,
        (registered - provided) / per_gib,
        (unregistered - registered) / per_gib,
        max(launches),
        quiet,
    )


def _register(machine: Machine, memory: HostMemory, is_over: threading.Event) -> None:
    try:
        machine.driver.attach_thread()
        machine.driver.register(memory.address, memory.num_bytes)
    finally:
        is_over.set()


def _longest_launch(
    machine: Machine, is_over: threading.Event, num_launches: int | None = None
) -> float:
    """Queue small work until told to stop, or so often; the slowest call."""
    longest, count = 0.0, 0
    while not is_over.is_set() and (num_launches is None or count < num_launches):
        started = time.perf_counter()
        machine.write(Span(0, 1), 0)
        longest = max(longest, time.perf_counter() - started)
        count += 1
        if count % 100 == 0:
            machine.num_wrong()  # keeps the queue short
    return longest
