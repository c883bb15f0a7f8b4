"""The device is chosen by where the engine's cache lies, and closes in order."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

import numpy as np
import torch
from page_rig import Rig, job, make_rig

from kvcellar.device.cpu import CpuDevice
from kvcellar.device.cuda import CudaDevice
from kvcellar.integrations.vllm import devices
from kvcellar.integrations.vllm.devices import OpenDevice, Place, open_device
from kvcellar.integrations.vllm.worker_side import WorkerSide
from kvcellar.testing.fake_driver import COMPUTE, FakeDriver
from kvcellar.tiers.memory import HostMemory
from kvcellar.transfer.engine import TransferEngine
from kvcellar.transfer.jobs import Direction
from kvcellar.transfer.stream_engine import StreamEngine

LONG_SECONDS = 30.0  # far above what any step needs; reached only by a bug
STREAMS = frozenset({COMPUTE, "store", "load"})


def place_of(rig: Rig) -> Place:
    return Place(
        rig.layout,
        rig.geometry,
        rig.regions(rig.cache),
        rig.num_blocks,
        HostMemory(rig.geometry),
    )


def close(opened: OpenDevice, place: Place) -> None:
    assert opened.transfers.close(LONG_SECONDS)
    assert opened.release(LONG_SECONDS)
    place.memory.close()


def test_tensors_of_the_processor_get_the_processors_device() -> None:
    """Nothing is pinned and nothing is streamed."""
    place = place_of(make_rig([[8]]))
    opened = open_device(place, {"layer": torch.zeros(1)})
    assert isinstance(opened.device, CpuDevice)
    assert isinstance(opened.transfers, TransferEngine)
    close(opened, place)


def accelerated(
    rig: Rig, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> tuple[OpenDevice, Place]:
    """Open as for a tensor on a GPU, with the fake driver behind it."""
    place = place_of(rig)
    driver.add_device_memory(rig.cache.ctypes.data, rig.cache.nbytes)
    seen: list[Any] = []

    def open_driver(cache: object, host: np.ndarray, operator: object) -> FakeDriver:
        seen.extend([cache, host.ctypes.data])
        return driver

    monkeypatch.setattr(devices, "open_driver", open_driver)
    tensor = SimpleNamespace(device=torch.device("cuda", 0))
    opened = open_device(place, {"layer": tensor})
    assert [tensor, place.memory.address] == seen
    return opened, place


def test_tensors_of_an_accelerator_get_streams_and_pinned_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A store arrives, the arena is registered, and closing gives it back."""
    rig, driver = make_rig([[8]]), FakeDriver(STREAMS)
    opened, place = accelerated(rig, driver, monkeypatch)
    assert isinstance(opened.device, CudaDevice)
    assert isinstance(opened.transfers, StreamEngine)
    opened.transfers.submit(job(Direction.STORE, (0, [1], [0])))
    assert opened.transfers.drain(LONG_SECONDS)
    assert [None] == [result.error for result in opened.transfers.poll()]
    assert rig.payload(0, 1) == place.memory.array[:8].tobytes()
    close(opened, place)
    assert 0 == driver.num_registered_bytes
    assert "register" in {call.name for call in driver.calls}


def test_memory_that_cannot_be_pinned_works_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning with the reason; stores and loads go on."""
    rig, driver = make_rig([[8]]), FakeDriver(STREAMS)
    driver.failures["register"] = 0
    opened, place = accelerated(rig, driver, monkeypatch)
    opened.transfers.submit(job(Direction.STORE, (0, [1], [0])))
    load = replace(job(Direction.LOAD, (0, [2], [0])), job_id=2)
    opened.transfers.submit(load)
    assert opened.transfers.drain(LONG_SECONDS)
    assert [None, None] == [result.error for result in opened.transfers.poll()]
    assert rig.payload(0, 1) == rig.payload(0, 2)
    close(opened, place)
    assert "planted fault in register" in caplog.text


def test_vllms_operator_is_used_where_the_build_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sources first, and in stream order; the CPU build has none."""
    assert devices.engine_operator() is None
    calls: list[tuple[object, ...]] = []
    operators = SimpleNamespace(swap_blocks_batch=lambda *a: calls.append(a))
    monkeypatch.setattr(torch.ops, "_C_cache_ops", operators)
    operator = devices.engine_operator()
    assert operator is not None
    operator("sources", "destinations", "sizes")
    assert [("sources", "destinations", "sizes", False)] == calls


@pytest.mark.parametrize("has_stopped", [True, False])
def test_host_memory_outlives_every_copy(*, has_stopped: bool) -> None:
    """It is unpinned and unmapped only if nothing runs any more."""
    released: list[str] = []
    transfers = SimpleNamespace(drain=lambda _: False, close=lambda _: has_stopped)
    side = WorkerSide.__new__(WorkerSide)
    side.transfers = transfers
    side._opened = OpenDevice(
        SimpleNamespace(), transfers, lambda _: released.append("unpinned") is None
    )
    side._memory = SimpleNamespace(close=lambda: released.append("unmapped"))
    side.close()
    assert (["unpinned", "unmapped"] if has_stopped else []) == released
