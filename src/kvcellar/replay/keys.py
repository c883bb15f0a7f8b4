"""A request's prefix hashes, made from the trace's prefix ids when they are read."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast, overload

if TYPE_CHECKING:
    from array import array

_KEY_BYTES = 12


class PrefixKeys(Sequence[bytes]):
    """One key per hash block, as an engine would give; each is made once.

    Inside a block of the trace only equal blocks are known to agree, so a key that ends
    there is the block's id and the place within it.

    Args:
        ids: prefix ids of the full blocks known so far.
        block_tokens: tokens per id.
        hash_tokens: tokens per key.
    """

    __slots__ = ("_block_tokens", "_hash_tokens", "_ids", "_made")

    def __init__(self, ids: "array[int]", block_tokens: int, hash_tokens: int) -> None:
        self._ids = ids
        self._block_tokens = block_tokens
        self._hash_tokens = hash_tokens
        num_keys = len(ids) * block_tokens // hash_tokens
        self._made: list[bytes | None] = [None] * num_keys

    def __len__(self) -> int:
        return len(self._made)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            made = self._made[index]
            if None not in made:
                return cast("list[bytes]", made)
            return self._make_all(range(*index.indices(len(self._made))))
        found = self._made[index]
        if found is not None:
            return found
        return self._make(index if index >= 0 else index + len(self._made))

    def _make(self, index: int) -> bytes:
        end = (index + 1) * self._hash_tokens
        block, place = divmod(end - 1, self._block_tokens)
        number = self._ids[block] * self._block_tokens + place
        key = self._made[index] = number.to_bytes(_KEY_BYTES, "big", signed=True)
        return key

    def _make_all(self, indices: range) -> list[bytes]:
        """Several; at once where all of them end at the same place in their blocks."""
        size = self._block_tokens
        num_blocks, is_uneven = divmod(indices.step * self._hash_tokens, size)
        if is_uneven or num_blocks < 1:
            return [self._made[i] or self._make(i) for i in indices]
        block, place = divmod((indices.start + 1) * self._hash_tokens - 1, size)
        ids = self._ids[block : block + len(indices) * num_blocks : num_blocks]
        keys = [
            (i * size + place).to_bytes(_KEY_BYTES, "big", signed=True) for i in ids
        ]
        self._made[indices.start : indices.stop : indices.step] = keys
        return keys
