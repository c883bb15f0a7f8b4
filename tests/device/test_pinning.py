"""Host memory that is pinned piece by piece, while copies go on."""

import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from kvcellar.device.driver import DeviceError, Runs
from kvcellar.device.pinning import PinnedMemory, PinningThread
from kvcellar.testing.fake_driver import COMPUTE, FakeDriver

PAGE = 4096
LONG_SECONDS = 30.0  # far above what any step needs; reached only by a bug


@pytest.fixture
def arena() -> np.ndarray:
    """Four pages, at a page border."""
    whole = np.zeros(5 * PAGE, dtype=np.uint8)
    start = -whole.ctypes.data % PAGE
    return whole[start : start + 4 * PAGE]


def memory_of(arena: np.ndarray, num_pieces: int = 4) -> PinnedMemory:
    places = np.arange(num_pieces + 1) * (len(arena) // num_pieces)
    return PinnedMemory(arena.ctypes.data + places)


def driver_of(cache: np.ndarray, *eager: str) -> FakeDriver:
    driver = FakeDriver(frozenset(eager))
    driver.add_device_memory(cache.ctypes.data, cache.nbytes)
    return driver


def nothing(address: int, num_bytes: int) -> None:
    """Prepare no pages."""


def store(
    memory: PinnedMemory, driver: FakeDriver, cache: np.ndarray, offset: int, size: int
) -> None:
    """Copy the cache's first bytes to ``offset`` of the arena."""
    to = np.array([memory.address + offset], dtype=np.int64)
    runs = Runs(to, np.array([cache.ctypes.data]), np.array([size]))
    memory.copy(driver, driver.new_stream("store"), runs, to)


def copies(driver: FakeDriver) -> list[tuple[str, int]]:
    return [(c.name, c.num_bytes) for c in driver.calls if c.name.startswith("copy")]


def test_thread_pins_all_pieces_from_the_lowest_on(arena: np.ndarray) -> None:
    """Each piece's pages are prepared, then registered, in the order of use."""
    memory, driver = memory_of(arena), FakeDriver()
    seen: list[tuple[int, int, int]] = []

    def prepare(address: int, num_bytes: int) -> None:
        seen.append((address, num_bytes, driver.num_registered_bytes))

    thread = PinningThread(memory, driver, prepare)
    assert thread.wait(LONG_SECONDS)
    base = memory.address
    assert [(base + i * PAGE, PAGE, i * PAGE) for i in range(4)] == seen
    assert 4 * PAGE == memory.pinned_bytes == driver.num_registered_bytes
    assert thread.close(LONG_SECONDS)
    assert 0 == memory.pinned_bytes == driver.num_registered_bytes


def test_a_run_over_pinned_and_unpinned_pieces_is_copied_in_two_ways(
    arena: np.ndarray,
) -> None:
    """Only the part that is pinned is asynchronous; every byte arrives."""
    cache = np.arange(3 * PAGE, dtype=np.uint8) % 251
    memory, driver = memory_of(arena), driver_of(cache, COMPUTE, "store")
    memory.pin(driver, 1)
    store(memory, driver, cache, PAGE // 2, 2 * PAGE)
    assert [("copy", PAGE), ("copy unpinned", PAGE)] == copies(driver)
    half = PAGE // 2
    assert cache[: 2 * PAGE].tobytes() == arena[half : half + 2 * PAGE].tobytes()
    assert not arena[:half].any()
    assert not arena[half + 2 * PAGE :].any()


def test_pinned_runs_are_cut_between_pieces(arena: np.ndarray) -> None:
    """The driver refuses a copy across two registered ranges, so none is made."""
    cache = np.arange(3 * PAGE, dtype=np.uint8) % 251
    memory, driver = memory_of(arena), driver_of(cache, COMPUTE, "store")
    for piece in range(4):
        memory.pin(driver, piece)
    store(memory, driver, cache, PAGE - 8, 16)
    assert [("copy", 16)] == copies(driver)
    assert cache[:16].tobytes() == arena[PAGE - 8 : PAGE + 8].tobytes()


def test_driver_that_refuses_leaves_the_rest_unpinned_with_the_reason(
    arena: np.ndarray, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning says how much was pinned and why no more; copies go on."""
    cache = np.ones(PAGE, dtype=np.uint8)
    memory, driver = memory_of(arena), driver_of(cache, COMPUTE, "store")
    driver.failures["register"] = 2
    with caplog.at_level(logging.WARNING, "kvcellar"):
        thread = PinningThread(memory, driver, nothing)
        assert thread.wait(LONG_SECONDS)
    (record,) = caplog.records
    assert "only 8.00 KiB of host memory could be pinned" in record.getMessage()
    assert "planted fault in register" in record.getMessage()
    for piece in range(4):
        store(memory, driver, cache, piece * PAGE, PAGE)
    assert ["copy", "copy", "copy unpinned", "copy unpinned"] == [
        name for name, _ in copies(driver)
    ]
    assert arena.all()
    assert thread.close(LONG_SECONDS)
    assert 0 == driver.num_registered_bytes


def test_pages_that_cannot_be_had_are_a_warning(
    arena: np.ndarray, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever preparing raises, the engine goes on with unpinned memory."""

    def prepare(address: int, num_bytes: int) -> None:
        raise OSError("out of huge pages")

    with caplog.at_level(logging.WARNING, "kvcellar"):
        assert PinningThread(memory_of(arena), FakeDriver(), prepare).wait(LONG_SECONDS)
    assert "out of huge pages" in caplog.text


def test_a_piece_is_not_pinned_while_it_is_copied_unpinned(arena: np.ndarray) -> None:
    """The driver never sees both at once, whichever comes first."""
    memory, driver = memory_of(arena, 1), FakeDriver()
    inside: list[str] = []
    overlaps: list[str] = []
    is_registering, may_register = threading.Event(), threading.Event()

    def register(address: int, num_bytes: int) -> None:
        inside.append("register")
        is_registering.set()
        assert may_register.wait(LONG_SECONDS)
        overlaps.extend(inside[1:])
        inside.clear()

    def copy(stream: object, runs: Runs, *, is_pinned: bool) -> None:
        if inside:
            inside.append("copy")

    driver.register, driver.copy = register, copy
    thread = PinningThread(memory, driver, nothing)
    assert is_registering.wait(LONG_SECONDS)
    cache = np.ones(PAGE, dtype=np.uint8)

    def copy_now() -> None:
        driver.attach_thread()
        store(memory, driver, cache, 0, 8)

    copier = threading.Thread(target=copy_now)
    copier.start()
    copier.join(0.05)  # time to go wrong in
    may_register.set()
    copier.join(LONG_SECONDS)
    assert thread.wait(LONG_SECONDS)
    assert [] == overlaps


def test_close_stops_after_the_running_piece(arena: np.ndarray) -> None:
    """What is left is not pinned, and what was pinned is unpinned."""
    memory, driver = memory_of(arena), FakeDriver()
    is_second, may_go_on = threading.Event(), threading.Event()

    def prepare(address: int, num_bytes: int) -> None:
        if address > memory.address:
            is_second.set()
            assert may_go_on.wait(LONG_SECONDS)

    thread = PinningThread(memory, driver, prepare)
    assert is_second.wait(LONG_SECONDS)
    assert not thread.close(0.0)  # memory must stay
    may_go_on.set()
    assert thread.close(LONG_SECONDS)
    assert 2 == sum(call.name == "register" for call in driver.calls)
    assert 0 == driver.num_registered_bytes


def test_unpinning_goes_on_after_an_error(
    arena: np.ndarray, caplog: pytest.LogCaptureFixture
) -> None:
    """The process is ending: one range that cannot be given back does not keep all."""
    memory, driver = memory_of(arena), FakeDriver()
    for piece in range(4):
        memory.pin(driver, piece)
    driver.failures["unregister"] = 1
    with caplog.at_level(logging.WARNING, "kvcellar"):
        memory.unpin_all(driver)
    assert PAGE == driver.num_registered_bytes
    assert 1 == len(caplog.records)


def test_fake_driver_refuses_what_a_real_one_does(arena: np.ndarray) -> None:
    """No page twice, whole pages only, nothing across ranges, nothing foreign."""
    cache = np.ones(PAGE, dtype=np.uint8)
    driver = driver_of(cache)
    base = arena.ctypes.data
    driver.register(base, PAGE)
    driver.register(base + PAGE, PAGE)
    with pytest.raises(DeviceError, match="part of the range"):
        driver.register(base, 2 * PAGE)
    with pytest.raises(DeviceError, match="not whole pages"):
        driver.register(base + 2 * PAGE + 8, PAGE)

    def copy(to: int, start: int, *, is_pinned: bool = True) -> None:
        runs = Runs(np.array([to]), np.array([start]), np.array([16]))
        driver.copy(driver.new_stream("store"), runs, is_pinned=is_pinned)

    with pytest.raises(DeviceError, match="lie in 2 ranges"):
        copy(base + PAGE - 8, cache.ctypes.data)
    with pytest.raises(DeviceError, match="lie in 1 ranges"):
        copy(base + 2 * PAGE - 8, cache.ctypes.data, is_pinned=False)
    with pytest.raises(DeviceError, match="lie in 0 ranges"):
        copy(base + 2 * PAGE, cache.ctypes.data)
    with pytest.raises(DeviceError, match="not one device side"):
        copy(base, base + 64)
    copy(base, cache.ctypes.data)
    with pytest.raises(DeviceError, match="still needs"):
        driver.unregister(base)


_CHILD = """
import sys
from kvcellar.device.numa import PageProvider
from kvcellar.device.pieces import cut_pieces
from kvcellar.device.pinning import PinnedMemory, PinningThread
from kvcellar.layout.host import HostGeometry, SizeClass
from kvcellar.testing.fake_driver import FakeDriver
from kvcellar.tiers.memory import HostMemory

geometry = HostGeometry(2**20, 64, (SizeClass(2**20, 1, (0,)),), (0,), (1,))
memory = HostMemory(geometry)
pinned = PinnedMemory(cut_pieces(memory.address, geometry, 2**23))
thread = PinningThread(pinned, FakeDriver(), PageProvider(None))
assert thread.wait(30.0)
print(memory.address, pinned.pinned_bytes, flush=True)
sys.stdin.read()
"""


def test_killed_process_leaves_nothing_of_its_pinned_memory() -> None:
    """The arena has no name and no inode, so kill -9 leaves the kernel nothing to keep.

    Locked pages belong to the mapping and go with it.
    """
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    with subprocess.Popen(
        [sys.executable, "-c", _CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as process:
        address, pinned_bytes = map(int, process.stdout.readline().split())
        maps = Path(f"/proc/{process.pid}/maps").read_text("ascii").splitlines()
        process.send_signal(signal.SIGKILL)
        assert -signal.SIGKILL == process.wait()
    assert 64 * 2**20 == pinned_bytes
    fields = next(line.split() for line in maps if _holds(line, address))
    assert ("00000000", "00:00", "0") == tuple(fields[2:5])  # offset, device, inode
    assert 5 == len(fields)  # and no name


def _holds(line: str, address: int) -> bool:
    begin, end = (int(text, 16) for text in line.split()[0].split("-"))
    return begin <= address < end
