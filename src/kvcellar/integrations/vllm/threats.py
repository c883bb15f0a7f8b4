"""Lazy mode: blocks that are stored now, since the engine may soon give them away."""

from typing import TYPE_CHECKING, Any

from kvcellar.core import events
from kvcellar.integrations.vllm.compat import DeviceBlocks, EngineTables
from kvcellar.integrations.vllm.free_queue import FreeQueueWatch, block_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm.config import VllmConfig

    from kvcellar.core.waiting import BlockKey
    from kvcellar.integrations.vllm.planner import EnginePlanner


class Threats:
    """Tells the planner which blocks are in danger.

    Args:
        planner: who is told.
        device_blocks: the engine's block pool.
        managers: its block tables, one manager per cache group.
    """

    def __init__(
        self,
        planner: "EnginePlanner",
        device_blocks: DeviceBlocks,
        managers: "Sequence[Any]",
        vllm_config: "VllmConfig",
    ) -> None:
        self._planner = planner
        self._device_blocks = device_blocks
        self._managers = managers
        self._free_queue = FreeQueueWatch(
            device_blocks, _horizon(vllm_config, managers)
        )

    def step(self) -> None:
        """Tell what has come within reach of the free queue's head."""
        threatened = self._free_queue.newly_threatened()
        if threatened:
            self._tell(threatened)

    def end(self, request_id: str) -> None:
        """With few free blocks, those that a request gives up go at once."""
        if self._device_blocks.num_free < self._free_queue.horizon:
            keys = EngineTables(self._managers, request_id).cached_keys()
            self._tell([block_key(key) for key in keys])

    def _tell(self, threatened: "Sequence[BlockKey]") -> None:
        blocks = self._device_blocks
        self._planner.handle(events.BlocksThreatened(threatened, blocks))


def _horizon(vllm_config: "VllmConfig", managers: "Sequence[Any]") -> int:
    """Blocks that two steps can take: the one that runs and the one after it."""
    scheduler = vllm_config.scheduler_config
    tokens, requests = scheduler.max_num_batched_tokens, scheduler.max_num_seqs
    per_step: int = sum(-(-tokens // m.block_size) + requests for m in managers)
    return 2 * per_step
