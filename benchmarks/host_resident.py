"""Pages that the kernel has really given to an arena while prompts fill it."""

import mmap
from collections.abc import Iterator

import numpy as np
from models import Model
from planner_rig import PlannerRig

from kvcellar.core import actions, events
from kvcellar.device.cpu import CpuDevice
from kvcellar.device.regions import PageTensor, regions_from_tensors
from kvcellar.tiers.memory import HostMemory
from kvcellar.transfer.jobs import CopyJob, Direction, GroupCopy

NUM_DEVICE_BLOCKS = 48
STEP_TOKENS = 8192


class FewBlocks:
    """Block tables over a device cache that is much smaller than the prompt."""

    def block_ids(self, group_id: int, indices: range) -> list[int]:
        """Some of the device's blocks, and never the null block."""
        return [1 + index % (NUM_DEVICE_BLOCKS - 1) for index in indices]


class Arena:
    """Planner, device and host memory; every planned store is carried out."""

    def __init__(self, model: Model, host_bytes: int) -> None:
        self.rig = PlannerRig(model, host_bytes)
        geometry = self.rig.offloader.slabs.geometry
        layout = model.layout
        self.memory = HostMemory(geometry)
        self._caches = []
        regions = []
        for group in layout.groups:
            size = NUM_DEVICE_BLOCKS * group.payload_bytes
            cache = np.frombuffer(mmap.mmap(-1, size), dtype=np.uint8)
            cache[:] = 1
            self._caches.append(cache)
            page = PageTensor(
                storage_address=cache.ctypes.data,
                storage_bytes=size,
                offset_bytes=0,
                layer_stride_bytes=group.payload_bytes,
                block_stride_bytes=group.payload_bytes,
                num_layers=1,
                payload_bytes=group.payload_bytes,
            )
            regions.append(regions_from_tensors([page], NUM_DEVICE_BLOCKS))
        self._device = CpuDevice(
            layout,
            geometry,
            regions,
            num_blocks=NUM_DEVICE_BLOCKS,
            host_address=self.memory.address,
        )

    def store_prompts(self, num_tokens: int) -> Iterator[None]:
        """Store different prompts of this length for ever, yielding after each."""
        seed = 0
        while True:
            seed += 1
            hashes = self.rig.hashes(num_tokens, seed)
            for first in range(0, num_tokens, STEP_TOKENS):
                last = min(first + STEP_TOKENS, num_tokens)
                event = events.TokensComputed(
                    str(seed), hashes, num_tokens, first, last, FewBlocks()
                )
                for action in self.rig.handle(event):
                    self._carry_out(action)
            self.rig.handle(events.RequestFinished(str(seed)))
            yield

    @property
    def payload_bytes(self) -> int:
        """Bytes of all cells taken."""
        return self.rig.offloader.slabs.used_bytes

    @property
    def resident_bytes(self) -> int:
        """Bytes of the mapping that the kernel has backed with memory."""
        address = self.memory.address
        with open("/proc/self/smaps") as smaps:
            is_ours = False
            for line in smaps:
                head = line.split(maxsplit=1)[0]
                if "-" in head:
                    first, last = (int(part, 16) for part in head.split("-"))
                    is_ours = first <= address < last
                elif is_ours and head == "Rss:":
                    return int(line.split()[1]) * 1024
        raise SystemExit(f"no mapping at {address:#x} in /proc/self/smaps")

    def close(self) -> None:
        """Give the memory back."""
        self._device.close()
        self.memory.close()

    def _carry_out(self, action: actions.Action) -> None:
        assert isinstance(action, (actions.Store, actions.Move))
        if isinstance(action, actions.Store):
            copies = [
                (c.position, c.device_blocks, c.host_blocks) for c in action.copies
            ]
            direction = Direction.STORE
        else:
            copies = [(m.position, [m.source], [m.destination]) for m in action.moves]
            direction = Direction.MOVE
        groups = tuple(GroupCopy(p, np.array(a), np.array(b)) for p, a, b in copies)
        self._device.copy(CopyJob(action.job_id, direction, groups))
        self.rig.handle(events.JobDone(action.job_id))
