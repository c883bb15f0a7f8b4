"""Speed of host copies, as a share of one thread's memcpy measured in the same rounds.

Random pages of one group (8 layer pages per block, layer-outermost) are stored to and
loaded from random host cells through the transfer engine, as a worker does it. Each
round measures, one after the other and for the same number of bytes:

* memcpy: one ``memmove`` from buffer to buffer, and again in a second thread while the
  main thread runs Python without a pause;
* engine: from submit to result, while the main thread sleeps, and again while it runs
  Python;
* with ``--per-page``, the last once more, with one Python call per page in place of the
  compiled loop.

Shares are medians of the rounds' own ratios to memcpy under the same conditions, so
that neither a change of the machine's speed between rounds nor two threads' fight for
memory shows. "main" is the main thread's speed as a share of its speed beside that
memcpy. Run with ``PYTHONPATH=src`` from the repository.
"""

import argparse
import ctypes
import functools
import json
import mmap
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from kvcellar.device.cpu import CpuDevice
from kvcellar.device.kernel import Kernel, best_kernel, python_kernel
from kvcellar.device.regions import PageTensor, regions_from_tensors
from kvcellar.layout.groups import AttentionKind, GroupLayout, make_layout
from kvcellar.layout.host import plan_geometry
from kvcellar.layout.units import format_bytes
from kvcellar.tiers.memory import HostMemory
from kvcellar.transfer.engine import TransferEngine
from kvcellar.transfer.jobs import CopyJob, Direction, GroupCopy

NUM_LAYERS = 8
PAYLOADS = [4096, 16384, 32768, 65536, 262144, 1048576]
CACHE_BYTES = 384 * 2**20
JOB_BYTES = 128 * 2**20


@dataclass
class Row:
    """Medians of one payload size and direction; speeds in 10**9 bytes per second."""

    payload_bytes: int
    direction: str
    memcpy_gbps: float
    engine_gbps: float
    engine_share: float
    busy_memcpy_gbps: float
    busy_engine_gbps: float
    busy_engine_share: float
    busy_main_share: float
    per_page_engine_share: float | None = None
    per_page_main_share: float | None = None


class Rig:
    """A device cache, an arena, and engines between them; all memory touched once."""

    def __init__(self, payload_bytes: int) -> None:
        row = NUM_LAYERS * payload_bytes
        self.num_blocks = CACHE_BYTES // row
        self.num_job_bytes = JOB_BYTES // row * row
        group = GroupLayout(0, AttentionKind.FULL, 16, row, row, NUM_LAYERS)
        self.layout = make_layout(
            [group],
            hash_block_tokens=16,
            alignment_tokens=16,
            scheduler_block_tokens=16,
        )
        self.geometry = plan_geometry(self.layout, CACHE_BYTES)
        self.memory = HostMemory(self.geometry)
        self.memory.array[:] = 1
        self.cache = np.frombuffer(mmap.mmap(-1, CACHE_BYTES), dtype=np.uint8)
        self.cache[:] = 2
        self.pages = PageTensor(
            storage_address=self.cache.ctypes.data,
            storage_bytes=CACHE_BYTES,
            offset_bytes=0,
            layer_stride_bytes=payload_bytes * self.num_blocks,
            block_stride_bytes=payload_bytes,
            num_layers=NUM_LAYERS,
            payload_bytes=payload_bytes,
        )
        self.engine = TransferEngine(self._device(best_kernel()))
        self.per_page_engine = TransferEngine(self._device(python_kernel()))

    def _device(self, kernel: Kernel) -> CpuDevice:
        return CpuDevice(
            self.layout,
            self.geometry,
            [regions_from_tensors([self.pages], self.num_blocks)],
            num_blocks=self.num_blocks,
            host_address=self.memory.address,
            kernel=kernel,
        )

    def job(self, direction: Direction, seed: int) -> CopyJob:
        """``num_job_bytes`` of random pages."""
        rng = np.random.default_rng(seed)
        num_job_blocks = JOB_BYTES // (NUM_LAYERS * self.pages.payload_bytes)
        num_cells = self.geometry.num_slabs * self.geometry.classes[0].cells_per_slab
        device = rng.permutation(self.num_blocks)[:num_job_blocks]
        host = rng.permutation(num_cells)[:num_job_blocks]
        return CopyJob(seed, direction, (GroupCopy(0, device, host),))

    def memcpy(self, direction: Direction) -> None:
        """The same number of bytes in one piece."""
        addresses = [self.memory.address, self.cache.ctypes.data]
        if direction is Direction.LOAD:
            addresses.reverse()
        ctypes.memmove(addresses[0], addresses[1], self.num_job_bytes)

    def close(self) -> None:
        """End the threads, then give the memory back."""
        self.engine.close()
        self.per_page_engine.close()
        self.memory.close()


def main() -> None:
    """Measure all sizes and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--payloads", type=int, nargs="+", default=PAYLOADS)
    parser.add_argument(
        "--per-page", action="store_true", help="also one Python call per page"
    )
    options = parser.parse_args()
    rows: list[Row] = []
    for payload in options.payloads:
        rig = Rig(payload)
        try:
            rows += [
                measure(rig, direction, options.rounds, has_per_page=options.per_page)
                for direction in (Direction.STORE, Direction.LOAD)
            ]
        finally:
            rig.close()
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        print_table(rows)


def measure(
    rig: Rig, direction: Direction, num_rounds: int, *, has_per_page: bool
) -> Row:
    """Medians over the rounds of one size and direction; a first round warms up."""
    rounds = [
        one_round(rig, rig.job(direction, seed), has_per_page=has_per_page)
        for seed in range(num_rounds + 1)
    ][1:]

    def gbps(name: str) -> float:
        seconds = statistics.median(one[name] for one in rounds)
        return rig.num_job_bytes / seconds / 1e9

    def share(name: str, of: str) -> float:
        return statistics.median(one[of] / one[name] for one in rounds)

    return Row(
        rig.pages.payload_bytes,
        direction.value,
        gbps("memcpy"),
        gbps("engine"),
        share("engine", "memcpy"),
        gbps("busy_memcpy"),
        gbps("busy_engine"),
        share("busy_engine", "busy_memcpy"),
        share("engine_loop", "memcpy_loop"),
        share("page_engine", "busy_memcpy") if has_per_page else None,
        share("page_loop", "memcpy_loop") if has_per_page else None,
    )


def one_round(rig: Rig, job: CopyJob, *, has_per_page: bool) -> dict[str, float]:
    """Seconds per copy, and per loop of the main thread meanwhile."""
    found = {
        "memcpy": seconds_of(lambda: rig.memcpy(job.direction)),
        "engine": seconds_of(lambda: run_asleep(rig.engine, job)),
    }
    thread = threading.Thread(target=rig.memcpy, args=(job.direction,))
    found["busy_memcpy"], found["memcpy_loop"] = run_busy(thread.start, thread.is_alive)
    engines = {"engine": rig.engine}
    if has_per_page:
        engines["page"] = rig.per_page_engine
    for name, engine in engines.items():
        copy_seconds, loop_seconds = run_busy(
            functools.partial(engine.submit, job), functools.partial(has_work, engine)
        )
        collect(engine)
        key = "busy_engine" if name == "engine" else "page_engine"
        found[key], found[f"{name}_loop"] = copy_seconds, loop_seconds
    return found


def seconds_of(work: Callable[[], None]) -> float:
    """Wall-clock seconds of one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def run_asleep(engine: TransferEngine, job: CopyJob) -> None:
    """From submit to result, with the main thread asleep."""
    engine.submit(job)
    engine.wait_any(60.0)
    collect(engine)


def run_busy(
    begin: Callable[[], None], is_running: Callable[[], bool]
) -> tuple[float, float]:
    """Run Python until the copy is over; seconds of the copy, and of one loop."""
    started = time.perf_counter()
    begin()
    num_loops = 0
    while True:
        python_work()
        num_loops += 1
        if not is_running():
            break
    seconds = time.perf_counter() - started
    return seconds, seconds / num_loops


def has_work(engine: TransferEngine) -> bool:
    """Whether the copy is still to be waited for."""
    return engine.num_in_flight > 0


def collect(engine: TransferEngine) -> None:
    """Take the one result; stop if it failed."""
    (result,) = engine.poll()
    if result.error is not None:
        raise SystemExit(result.error)


def python_work() -> int:
    """Some microseconds of interpreter."""
    total = 0
    for number in range(200):
        total += number
    return total


def print_table(rows: list[Row]) -> None:
    """Print speeds and shares."""
    print(f"GB/s; {NUM_LAYERS} pages per block, random blocks and cells, one thread")
    print(f"{'':>16}  {'main thread asleep':^22}  {'main thread in Python':^30}")
    head = f"{'payload':>10} {'':5}  {'memcpy':>7} {'engine':>7} {'share':>6}"
    head += f"  {'memcpy':>7} {'engine':>7} {'share':>6} {'main':>7}"
    print(head)
    for row in rows:
        line = f"{format_bytes(row.payload_bytes):>10} {row.direction:5} "
        line += (
            f" {row.memcpy_gbps:7.2f} {row.engine_gbps:7.2f} {row.engine_share:6.0%}"
        )
        line += f"  {row.busy_memcpy_gbps:7.2f} {row.busy_engine_gbps:7.2f}"
        line += f" {row.busy_engine_share:6.0%} {row.busy_main_share:7.0%}"
        if row.per_page_engine_share is not None:
            line += f"  per page: {row.per_page_engine_share:.0%}"
            line += f", main {row.per_page_main_share:.0%}"
        print(line)


if __name__ == "__main__":
    main()
