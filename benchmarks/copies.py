"""Speed of host copies, as a share of one thread's memcpy measured in the same rounds.

Random pages of one group (8 layer pages per block, layer-outermost) are stored to and
loaded from random host cells through the transfer engine, as a worker would do it. Each
round measures, one after the other:

* memcpy: one ``memmove`` of as many bytes from buffer to buffer;
* quiet: the engine, while the main thread waits;
* busy: the engine, while the main thread runs Python without a pause, and how much of
  its speed (measured alone in the same round) the main thread keeps;
* with ``--per-page``, busy again, but with one call per page in place of the compiled
  loop.

Shares are medians of the rounds' own ratios, so that a change of the machine's speed
between rounds does not show. Run with ``PYTHONPATH=src`` from the repository.
"""

import argparse
import ctypes
import json
import mmap
import statistics
import time
from dataclasses import asdict, dataclass

import numpy as np

from kvcellar.device.cpu import CpuDevice
from kvcellar.device.memcpy import copy_runs_in_python
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
    quiet_gbps: float
    quiet_share: float
    busy_gbps: float
    busy_share: float
    main_keeps: float
    per_page_busy_share: float | None = None
    per_page_main_keeps: float | None = None


class Rig:
    """A device cache, an arena, and the engine between them, all touched once."""

    def __init__(self, payload_bytes: int) -> None:
        row = NUM_LAYERS * payload_bytes
        self.num_blocks = CACHE_BYTES // row
        group = GroupLayout(0, AttentionKind.FULL, 16, row, row, NUM_LAYERS)
        layout = make_layout(
            [group],
            hash_block_tokens=16,
            alignment_tokens=16,
            scheduler_block_tokens=16,
        )
        geometry = plan_geometry(layout, CACHE_BYTES)
        self.cells = geometry.num_slabs * geometry.classes[0].cells_per_slab
        self.memory = HostMemory(geometry)
        self.memory.array[:] = 1
        self.cache = np.frombuffer(mmap.mmap(-1, CACHE_BYTES), dtype=np.uint8)
        self.cache[:] = 2
        pages = PageTensor(
            storage_address=self.cache.ctypes.data,
            storage_bytes=CACHE_BYTES,
            offset_bytes=0,
            layer_stride_bytes=payload_bytes * self.num_blocks,
            block_stride_bytes=payload_bytes,
            num_layers=NUM_LAYERS,
            payload_bytes=payload_bytes,
        )
        self.device = CpuDevice(
            layout,
            geometry,
            [regions_from_tensors([pages], self.num_blocks)],
            num_blocks=self.num_blocks,
            host_address=self.memory.address,
        )
        self.engine = TransferEngine(self.device)
        self.job_blocks = JOB_BYTES // row

    def job(self, direction: Direction, seed: int) -> CopyJob:
        """``JOB_BYTES`` of random pages."""
        rng = np.random.default_rng(seed)
        device = rng.permutation(self.num_blocks)[: self.job_blocks]
        host = rng.permutation(self.cells)[: self.job_blocks]
        return CopyJob(seed, direction, (GroupCopy(0, device, host),))

    def close(self) -> None:
        """End the thread, then give the memory back."""
        self.engine.close()
        self.device.close()
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
    rows = []
    for payload in options.payloads:
        rig = Rig(payload)
        try:
            for direction in (Direction.STORE, Direction.LOAD):
                rows.append(measure(rig, payload, direction, options))
        finally:
            rig.close()
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        print_table(rows, has_per_page=options.per_page)


def measure(
    rig: Rig, payload: int, direction: Direction, options: argparse.Namespace
) -> Row:
    """Medians over the rounds of one size and direction."""
    rounds = [
        one_round(rig, rig.job(direction, seed), has_per_page=options.per_page)
        for seed in range(options.rounds + 1)
    ][1:]

    def median(name: str) -> float:
        return statistics.median(one[name] for one in rounds)

    def median_share(name: str) -> float:
        return statistics.median(one[name] / one["memcpy"] for one in rounds)

    row = Row(
        payload,
        direction.value,
        median("memcpy"),
        median("quiet"),
        median_share("quiet"),
        median("busy"),
        median_share("busy"),
        median("keeps"),
    )
    if options.per_page:
        row.per_page_busy_share = median_share("page_busy")
        row.per_page_main_keeps = median("page_keeps")
    return row


def one_round(rig: Rig, job: CopyJob, *, has_per_page: bool) -> dict[str, float]:
    """Speeds of one round, all of the same bytes."""
    found = {"memcpy": memcpy_gbps(rig, job), "quiet": engine_gbps(rig, job)}
    alone = python_speed(seconds=0.02)
    found["busy"], speed = busy_gbps(rig, job)
    found["keeps"] = speed / alone
    if has_per_page:
        compiled = rig.device._copy_runs  # noqa: SLF001 - measured side by side
        rig.device._copy_runs = copy_runs_in_python  # noqa: SLF001
        found["page_busy"], speed = busy_gbps(rig, job)
        found["page_keeps"] = speed / alone
        rig.device._copy_runs = compiled  # noqa: SLF001
    return found


def memcpy_gbps(rig: Rig, job: CopyJob) -> float:
    """One large memmove in the job's direction."""
    addresses = [rig.memory.address, rig.cache.ctypes.data]
    if job.direction is Direction.LOAD:
        addresses.reverse()
    num_bytes = rig.job_blocks * (CACHE_BYTES // rig.num_blocks)
    started = time.perf_counter()
    ctypes.memmove(addresses[0], addresses[1], num_bytes)
    return num_bytes / (time.perf_counter() - started) / 1e9


def engine_gbps(rig: Rig, job: CopyJob) -> float:
    """From submit to result, with the main thread asleep."""
    started = time.perf_counter()
    rig.engine.submit(job)
    rig.engine.wait_any(60.0)
    return collect(rig) / (time.perf_counter() - started) / 1e9


def busy_gbps(rig: Rig, job: CopyJob) -> tuple[float, float]:
    """From submit to result, with the main thread in Python; and its loops per second."""
    started = time.perf_counter()
    rig.engine.submit(job)
    loops = 0
    while rig.engine.num_in_flight:
        python_work()
        loops += 1
    seconds = time.perf_counter() - started
    return collect(rig) / seconds / 1e9, loops / seconds


def collect(rig: Rig) -> int:
    """Bytes of the one finished job."""
    (result,) = rig.engine.poll()
    if result.error is not None:
        raise SystemExit(result.error)
    return result.num_bytes


def python_speed(seconds: float) -> float:
    """Loops per second of the main thread alone."""
    started = time.perf_counter()
    loops = 0
    while time.perf_counter() - started < seconds:
        python_work()
        loops += 1
    return loops / (time.perf_counter() - started)


def python_work() -> int:
    """Some microseconds of interpreter."""
    total = 0
    for number in range(200):
        total += number
    return total


def print_table(rows: list[Row], *, has_per_page: bool) -> None:
    """Print GB/s and shares of memcpy."""
    head = f"{'payload':>10} {'':5} {'memcpy':>7} {'quiet':>7} {'share':>6}"
    head += f" {'busy':>7} {'share':>6} {'main keeps':>10}"
    if has_per_page:
        head += f" {'| per page':>10} {'main keeps':>10}"
    print(f"speeds in GB/s; {NUM_LAYERS} pages per block, random blocks and cells")
    print(head)
    for row in rows:
        line = f"{format_bytes(row.payload_bytes):>10} {row.direction:5}"
        line += f" {row.memcpy_gbps:7.2f} {row.quiet_gbps:7.2f} {row.quiet_share:6.0%}"
        line += f" {row.busy_gbps:7.2f} {row.busy_share:6.0%} {row.main_keeps:10.0%}"
        if row.per_page_busy_share is not None:
            line += f" {row.per_page_busy_share:10.0%} {row.per_page_main_keeps:10.0%}"
        print(line)


if __name__ == "__main__":
    main()
