"""A request's prefix hashes, made from the trace's prefix ids when they are read."""

from typing import TYPE_CHECKING

from kvcellar.core.keys import DerivedKeys

if TYPE_CHECKING:
    from array import array

_KEY_BYTES = 12


class PrefixKeys(DerivedKeys):
    """One key per hash block, as an engine would give; nothing is stored.

    Inside a block of the trace only equal blocks are known to agree, so a key that ends
    there is the block's id and the place within it.

    Args:
        ids: prefix ids of the full blocks known so far.
        block_tokens: tokens per id.
        hash_tokens: tokens per key.
    """

    __slots__ = ("_block_tokens", "_hash_tokens", "_ids")

    def __init__(self, ids: "array[int]", block_tokens: int, hash_tokens: int) -> None:
        self._ids = ids
        self._block_tokens = block_tokens
        self._hash_tokens = hash_tokens

    def __len__(self) -> int:
        return len(self._ids) * self._block_tokens // self._hash_tokens

    def _key(self, index: int) -> bytes:
        end = (index + 1) * self._hash_tokens
        block, place = divmod(end - 1, self._block_tokens)
        key = self._ids[block] * self._block_tokens + place
        return key.to_bytes(_KEY_BYTES, "big", signed=True)
