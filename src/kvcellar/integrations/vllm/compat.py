"""Every place where we lean on the inside of vLLM rather than on its contract.

Tested with vLLM 0.32; a version that moves one of these fails here, with its name.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from kvcellar.errors import IncompatibleError


def group_managers(kv_cache_manager: Any) -> Sequence[Any]:
    """One manager per cache group; ``req_to_blocks`` maps a request to its table.

    Raises:
        IncompatibleError: this vLLM keeps its block tables elsewhere.
    """
    coordinator = getattr(kv_cache_manager, "coordinator", None)
    managers = getattr(coordinator, "single_type_managers", None)
    if not managers or not hasattr(managers[0], "req_to_blocks"):
        raise IncompatibleError(
            "this vLLM does not keep its block tables where kvcellar looks for them "
            "(coordinator.single_type_managers[i].req_to_blocks); use vLLM 0.32"
        )
    return tuple(managers)


class EngineTables:
    """One request's block tables, read where the engine keeps them.

    Valid within one scheduler call only; nothing is copied.
    """

    __slots__ = ("_rows",)

    def __init__(self, managers: Sequence[Any], request_id: str) -> None:
        self._rows = [m.req_to_blocks.get(request_id, ()) for m in managers]

    def block_id(self, group_id: int, index: int) -> int:
        """Device block id; 0 beyond the table and where the window has moved on.

        The engine's null block has id 0 and is never transferred.
        """
        row = self._rows[group_id]
        return row[index].block_id if index < len(row) else 0


class StepTables(EngineTables):
    """Block tables of a request in the step that computes its tokens.

    Recurrent state is overwritten in place, so a table says nothing about which
    boundary a state block stands for. Only the blocks that the engine hands over hold
    a boundary's state, until the step has run.
    """

    __slots__ = ("_handed_over", "_managers")

    def __init__(
        self,
        managers: Sequence[Any],
        request_id: str,
        handed_over: Iterable[tuple[int, int, int]],
    ) -> None:
        super().__init__(managers, request_id)
        self._managers = managers
        self._handed_over = {(g, tokens): block for g, block, tokens in handed_over}

    @property
    def boundaries(self) -> list[int]:
        """Boundaries whose state is handed over, in tokens."""
        return [tokens for _, tokens in self._handed_over]

    def block_id(self, group_id: int, index: int) -> int:
        """As ``EngineTables``; for recurrent state what was handed over, or 0."""
        manager = self._managers[group_id]
        if getattr(manager, "has_positionally_stable_blocks", True):
            return super().block_id(group_id, index)
        boundary = (index + 1) * manager.block_size
        return self._handed_over.get((group_id, boundary), 0)


class DevicePins:
    """Blocks that a copy still reads: referenced, so the engine does not reuse them."""

    def __init__(self, block_pool: Any) -> None:
        self._pool = block_pool
        self._blocks: dict[int, list[Any]] = {}

    def pin(self, job_id: int, groups: Sequence[Sequence[int]]) -> None:
        """Reference the blocks, given per group in table order, for one job."""
        blocks = self._pool.blocks
        tail_first = [blocks[b] for group in groups for b in reversed(group)]
        self._pool.touch(tail_first)
        self._blocks[job_id] = tail_first

    def release(self, job_id: int) -> None:
        """Drop the job's references, each group's tail first, as the engine does."""
        blocks = self._blocks.pop(job_id, None)
        if blocks:
            self._pool.free_blocks(blocks)

    def holds_last_reference(self) -> bool:
        """Whether some block would become free if its copy ended."""
        return any(b.ref_cnt == 1 for blocks in self._blocks.values() for b in blocks)
