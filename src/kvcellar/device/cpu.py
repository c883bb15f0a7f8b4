"""The device when the model runs on the CPU: both sides are plain memory."""

from collections.abc import Sequence

from kvcellar.device.addresses import group_addresses
from kvcellar.device.memcpy import copy_runs_function
from kvcellar.device.regions import Region
from kvcellar.device.runs import concatenate, merged, overlaps_itself
from kvcellar.errors import ClosedError, InvariantError
from kvcellar.layout.groups import CacheLayout
from kvcellar.layout.host import HostGeometry
from kvcellar.transfer.jobs import CopyJob, Direction


class CpuDevice:
    """Copies by address, in one call per job that holds no interpreter lock.

    Whoever makes it keeps the engine's tensors and the host memory alive until
    ``close``. A forward pass on the CPU is over when its Python call returns, so there
    is nothing to fence.

    Args:
        layout: this rank's cache layout.
        geometry: the cut of this rank's arena.
        regions: for each layout position, from ``regions_from_tensors``.
        num_blocks: blocks in the device cache.
        host_address: address of the arena.

    Raises:
        IncompatibleError: regions and layout disagree about a group's bytes.
    """

    def __init__(
        self,
        layout: CacheLayout,
        geometry: HostGeometry,
        regions: Sequence[Sequence[Region]],
        *,
        num_blocks: int,
        host_address: int,
    ) -> None:
        pairs = zip(range(len(layout.groups)), regions, strict=True)
        self._groups = [
            group_addresses(
                position,
                layout,
                geometry,
                tuple(group_regions),
                num_blocks=num_blocks,
                host_address=host_address,
            )
            for position, group_regions in pairs
        ]
        self._copy_runs = copy_runs_function()
        self._is_closed = False

    def fence(self) -> None:
        """Nothing is queued on a CPU."""

    def copy(self, job: CopyJob, fence: object = None) -> int:
        """Copy all of ``job`` or, if anything in it is out of range, nothing.

        Raises:
            InvariantError: a block, cell or group is out of range, or a move writes
                what it reads.
            ClosedError: after ``close``.
        """
        del fence
        if self._is_closed:
            raise ClosedError(f"job {job.job_id} came after the device was closed")
        runs = concatenate(
            [
                merged(self._groups[copy.position].runs(copy, job.direction))
                for copy in job.copies
                if len(copy.host_blocks) or len(copy.device_blocks)
            ]
        )
        if not len(runs.lengths):
            return 0
        if job.direction is Direction.MOVE and overlaps_itself(runs):
            raise InvariantError(
                f"job {job.job_id} moves a cell that the same job overwrites"
            )
        self._copy_runs(runs.destinations, runs.sources, runs.lengths)
        return runs.num_bytes

    def close(self) -> None:
        """Refuse further copies."""
        self._is_closed = True
