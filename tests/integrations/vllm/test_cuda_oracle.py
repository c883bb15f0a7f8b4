"""vLLM's real scheduler with the CUDA device: copies as late as the rules allow."""

import random
from collections.abc import Iterable
from typing import Any

import pytest

pytest.importorskip("vllm")

from kvcellar.device.cuda import CudaDevice, RunningCopy
from kvcellar.device.pieces import cut_pieces
from kvcellar.device.pinning import PinnedMemory
from kvcellar.integrations.vllm import worker_side
from kvcellar.integrations.vllm.devices import OpenDevice, Place
from kvcellar.testing.fake_driver import COMPUTE, RANDOM, FakeDriver
from kvcellar.testing.oracle import engine as oracle_engine
from kvcellar.testing.oracle.setup import OracleOptions, make_oracle
from kvcellar.testing.oracle.transfers import SeededTransfers
from kvcellar.transfer.engine import TransferEngine
from kvcellar.transfer.jobs import CopyJob, Direction, JobResult

HASTES = (frozenset({COMPUTE}), frozenset({COMPUTE, "load"}), frozenset({RANDOM}))


class StreamedTransfers(SeededTransfers):
    """Starts each job at once and finds out at each poll what has ended."""

    def __init__(self, device: CudaDevice, rng: random.Random, **options: Any) -> None:
        super().__init__(device, rng, **options)
        self._running: list[tuple[CopyJob, RunningCopy]] = []

    @property
    def num_in_flight(self) -> int:
        return len(self._running)

    def submit(self, job: CopyJob) -> None:
        can_fail = job.direction is not Direction.MOVE
        if can_fail and self._rng.random() < self.failure_rate:
            error = "planted fault"
            self._ended.append(JobResult(job.job_id, job.direction, 0, 0.0, error))
            return
        fence = self._device.fence()
        self._running.append((job, self._device.start(job, fence)))

    def poll(self) -> list[JobResult]:
        self._collect()
        results, self._ended = self._ended, []
        return results

    def wait_for(self, job_ids: Iterable[int], timeout_seconds: float) -> bool:
        wanted = set(job_ids)
        while not wanted.isdisjoint(job.job_id for job, _ in self._running):
            self._collect()
        return True

    def drain(self, timeout_seconds: float) -> bool:
        return not self._running

    def _collect(self) -> None:
        running, self._running = self._running, []
        for job, copying in running:
            if not copying.is_done():
                self._running.append((job, copying))
                continue
            assert copying.error is None
            self.num_bytes += copying.num_bytes
            size = copying.num_bytes
            self._ended.append(JobResult(job.job_id, job.direction, size, 0.0))


@pytest.fixture
def drivers(monkeypatch: pytest.MonkeyPatch) -> list[FakeDriver]:
    """Lets every oracle made in the test run on fake accelerators; their drivers."""
    made: list[FakeDriver] = []

    def open_device(place: Place, kv_caches: dict[str, Any]) -> OpenDevice:
        eager = (
            frozenset({COMPUTE}),
            frozenset({COMPUTE, "load"}),
            frozenset({RANDOM}),
        )
        driver = FakeDriver(eager[len(made) % len(eager)], seed=len(made), patience=3)
        made.append(driver)
        storage = next(iter(kv_caches.values())).untyped_storage()
        driver.add_device_memory(storage.data_ptr(), storage.nbytes())
        memory = PinnedMemory(cut_pieces(place.memory.address, place.geometry, 2**14))
        for piece in range(1, memory.num_pieces, 2):
            memory.pin(driver, piece)
        device = CudaDevice(
            place.layout,
            place.geometry,
            place.regions,
            num_blocks=place.num_blocks,
            memory=memory,
            driver=driver,
        )
        return OpenDevice(device, TransferEngine(device), lambda _: True)

    monkeypatch.setattr(worker_side, "open_device", open_device)
    monkeypatch.setattr(oracle_engine, "SeededTransfers", StreamedTransfers)
    return made


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", ["eager", "lazy"])
@pytest.mark.parametrize(
    "name", ["llama-3.1-8b", "three-windows", "deepseek-v4-flash", "qwen3-next"]
)
def test_late_copies_never_give_a_step_wrong_bytes(
    drivers: list[FakeDriver], name: str, mode: str, seed: int
) -> None:
    """Copies that end steps later, in two streams, half of host memory unpinned.

    Every byte that a step reads is checked, and every request ends.
    """
    while len(drivers) < seed:
        drivers.append(FakeDriver())
    options = OracleOptions(name, mode, seed, failure_rate=0.02)
    oracle = make_oracle(options)
    try:
        figures = oracle.run(60)
    finally:
        oracle.close()
    assert figures.stored_chunks > 0
    calls = {(call.name, call.stream) for call in drivers[seed].calls}
    assert {("copy unpinned", "store"), ("wait", "store")} <= calls
    assert (figures.loaded_tokens > 0) == (("wait", "load") in calls)
