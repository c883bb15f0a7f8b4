"""Lists of keys that are worked out when they are read; nothing is stored."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import overload


class DerivedKeys(Sequence[bytes]):
    """A sequence whose items follow from their place."""

    @abstractmethod
    def _key(self, index: int) -> bytes:
        """The key at ``index``, which is not negative."""

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return [self._key(i) for i in range(*index.indices(len(self)))]
        return self._key(index if index >= 0 else index + len(self))


class ChunkKeys(DerivedKeys):
    """The keys of a prompt's chunks, read from its prefix hashes."""

    def __init__(self, hashes: Sequence[bytes], stride: int, num_chunks: int) -> None:
        self._hashes = hashes
        self._stride = stride
        self._num_chunks = num_chunks

    def __len__(self) -> int:
        return self._num_chunks

    def __iter__(self) -> Iterator[bytes]:
        return map(self._key, range(self._num_chunks))

    def _key(self, index: int) -> bytes:
        return self._hashes[(index + 1) * self._stride - 1]
