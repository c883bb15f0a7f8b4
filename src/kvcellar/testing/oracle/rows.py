"""What the workers know of each request: its prefix and its block tables.

Everything lies in matrices with a line per request, so that one look-up serves all
requests of a step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from kvcellar.testing.oracle.content import (
    Hashes,
    Marks,
    TokenStream,
    next_value,
    prefix_values,
)
from kvcellar.testing.oracle.device import Numbers

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request's prefix at the moment the engine admits it.

    Attributes:
        tokens: all token ids so far, delivered answers included.
        marks: what else its cache depends on, and from which token on.
        answers: what the model will say, by position.
    """

    tokens: Sequence[int]
    marks: Marks
    answers: TokenStream


class Row:
    """One request; its values and block ids lie in the matrices of ``Rows``.

    Attributes:
        slot: its line in the matrices.
        num_tokens: tokens known, sampled ones included, drafted ones not.
        total: running sum of the prefix, for ``next_value``.
        answers: what the model will say, by position.
        computed: tokens whose entries are in the cache.
        num_rejected: drafts that were wrong in the last step.
        drafts: token ids that a drafter guessed for this step.
        is_fresh: whether it has just been admitted, so that all it reads is checked.
        num_blocks: entries of its block table, by engine group.
    """

    __slots__ = (
        "_matrices",
        "answers",
        "computed",
        "drafts",
        "is_fresh",
        "num_blocks",
        "num_rejected",
        "num_tokens",
        "slot",
        "total",
    )

    def __init__(self, matrices: list[Numbers], slot: int) -> None:
        self._matrices = matrices
        self.slot = slot
        self.num_blocks = [0] * len(matrices)

    def start(self, prompt: Prompt, total: int, computed: int) -> None:
        """Begin, or begin again after a preemption."""
        self.num_tokens = len(prompt.tokens)
        self.total = total
        self.answers = prompt.answers
        self.computed = computed
        self.num_rejected = 0
        self.drafts: list[int] = []
        self.is_fresh = True

    @property
    def tables(self) -> list[list[int]]:
        """Device block ids by engine group."""
        return [
            matrix[self.slot, :count].tolist()
            for matrix, count in zip(self._matrices, self.num_blocks, strict=True)
        ]


class Rows:
    """All requests that the workers know, by id.

    Args:
        num_groups: the engine's cache groups, scratch included.

    Attributes:
        values: prefix value by slot and position, **[num_slots, num_positions]**.
        tables: block id by slot and place, one matrix per engine group.
    """

    def __init__(self, num_groups: int) -> None:
        self.values: Hashes = np.zeros((8, 256), dtype=np.uint64)
        self.tables: list[Numbers] = [
            np.zeros((8, 16), dtype=np.int64) for _ in range(num_groups)
        ]
        self._by_id: dict[str, Row] = {}
        self._free: list[int] = []

    def __getitem__(self, request_id: str) -> Row:
        """The row of a request that the workers know."""
        return self._by_id[request_id]

    def __contains__(self, request_id: str) -> bool:
        """Whether the workers know the request."""
        return request_id in self._by_id

    def admit(
        self,
        request_id: str,
        prompt: Prompt,
        tables: Sequence[Sequence[int]],
        computed: int,
    ) -> None:
        """Take a new request, or one that starts again, with its whole tables."""
        row = self._by_id.get(request_id)
        if row is None:
            slot = self._free.pop() if self._free else len(self._by_id)
            row = self._by_id[request_id] = Row(self.tables, slot)
        values, total = prefix_values(prompt.tokens, prompt.marks)
        row.start(prompt, total, computed)
        self._make_room(row.slot, len(values))
        self.values[row.slot, : len(values)] = values
        row.num_blocks = [0] * len(self.tables)
        self.extend_tables(row, tables)

    def drop(self, request_id: str) -> None:
        """Forget a request; its slot is free again."""
        row = self._by_id.pop(request_id, None)
        if row is not None:
            self._free.append(row.slot)

    def extend_tables(self, row: Row, tables: Sequence[Sequence[int]]) -> None:
        """Append blocks to a request's tables."""
        for group_id, block_ids in enumerate(tables):
            if not block_ids:
                continue
            first = row.num_blocks[group_id]
            end = row.num_blocks[group_id] = first + len(block_ids)
            matrix = self.tables[group_id]
            if row.slot >= len(matrix) or end > matrix.shape[1]:
                matrix = self.tables[group_id] = _grown(matrix, row.slot, end)
            matrix[row.slot, first:end] = block_ids

    def guess(self, row: Row, drafts: list[int]) -> None:
        """Put drafted tokens behind the known ones, for this step."""
        row.drafts = drafts
        self._append(row, drafts)

    def accept(self, row: Row, tokens: list[int]) -> None:
        """The right drafts and one sampled token are known now; other drafts go."""
        row.total = self._append(row, tokens)
        row.num_tokens += len(tokens)
        row.num_rejected = len(row.drafts) + 1 - len(tokens)
        row.drafts = []

    def _append(self, row: Row, tokens: list[int]) -> int:
        """Write the values of tokens behind the known ones; the running sum there."""
        first, total = row.num_tokens, row.total
        self._make_room(row.slot, first + len(tokens))
        line = self.values[row.slot]
        for position, token in enumerate(tokens, first):
            total, line[position] = next_value(total, position, token)
        return total

    def _make_room(self, slot: int, num_positions: int) -> None:
        if slot >= len(self.values) or num_positions > self.values.shape[1]:
            self.values = _grown(self.values, slot, num_positions)


def _grown(matrix: npt.NDArray[Scalar], slot: int, width: int) -> npt.NDArray[Scalar]:
    """A larger copy that has the slot and the width."""
    height = max(len(matrix), 2 * slot)
    grown = np.zeros((height + 1, max(matrix.shape[1], 2 * width)), matrix.dtype)
    grown[: len(matrix), : matrix.shape[1]] = matrix
    return grown
