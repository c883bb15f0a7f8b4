"""What every byte of the simulated cache must be.

A unit (one token's entry, or one compressed entry of several tokens) of a layer is a
function of the prefix up to its last token, the group, the layer and the byte's place:
nothing else. So a byte copied from another prefix, group, layer or place shows.
"""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]

Marks = Iterable[tuple[int, int]]
"""Position and number of what a prefix depends on, from there on, besides tokens."""

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_RADIX = 0x2545F4914F6CDD1D  # odd, so that powers never vanish modulo 2**64
_64_BITS = 2**64 - 1

_GOLDEN_64, _FIRST_64, _SECOND_64 = (
    np.uint64(number) for number in (_GOLDEN, _FIRST, _SECOND)
)
_SHIFTS = tuple(np.uint64(bits) for bits in (30, 27, 31))


def _mix(values: Hashes) -> Hashes:
    """Spread the bits of 64-bit integers (the finaliser of SplitMix64)."""
    mixed = (values ^ (values >> _SHIFTS[0])) * _FIRST_64
    mixed = (mixed ^ (mixed >> _SHIFTS[1])) * _SECOND_64
    mixed ^= mixed >> _SHIFTS[2]
    return mixed


def _mix_one(value: int) -> int:
    """The same of one integer."""
    value = ((value ^ (value >> 30)) * _FIRST) & _64_BITS
    value = ((value ^ (value >> 27)) * _SECOND) & _64_BITS
    return value ^ (value >> 31)


class Powers:
    """Powers of the radix modulo 2**64, grown as needed."""

    def __init__(self) -> None:
        self._powers = np.ones(1, dtype=np.uint64)

    def first(self, count: int) -> Hashes:
        """The first ``count`` powers, **[count]**."""
        while len(self._powers) < count:
            size = len(self._powers)
            step = np.uint64(pow(_RADIX, size, 2**64))
            self._powers = np.concatenate([self._powers, self._powers * step])
        return self._powers[:count]

    def at(self, place: int) -> int:
        """One power."""
        if place >= len(self._powers):
            self.first(place + 1)
        return int(self._powers[place])


_POWERS = Powers()


def prefix_values(tokens: Sequence[int], marks: Marks) -> tuple[Hashes, int]:
    """A value per position, **[num_tokens]**, of the prefix that ends there.

    Args:
        tokens: token ids.
        marks: what else the prefix depends on: weights, adapter, salt, pictures.

    Returns:
        The values, and a running sum from which ``next_value`` goes on.
    """
    powers = _POWERS.first(len(tokens))
    terms = (np.asarray(tokens, dtype=np.uint64) + np.uint64(1)) * powers
    rest = 0
    for position, number in marks:
        term = (number * _GOLDEN * _POWERS.at(position)) & _64_BITS
        if position < len(tokens):
            terms[position : position + 1] += np.uint64(term)
        else:
            rest += term
    sums = np.cumsum(terms, dtype=np.uint64)
    total = (int(sums[-1]) if len(tokens) else 0) + rest
    return _mix(sums), total & _64_BITS


def next_value(total: int, position: int, token: int) -> tuple[int, int]:
    """The running sum and the value of a prefix that is one token longer.

    Args:
        total: running sum up to ``position``, exclusive.
        position: of the new token.
    """
    total = (total + (token + 1) * _POWERS.at(position)) & _64_BITS
    return total, _mix_one(total)


def unit_bytes(
    values: Hashes, layer_seeds: Hashes, num_bytes: int
) -> npt.NDArray[np.uint8]:
    """Content of units in each layer.

    Args:
        values: prefix value of each unit's last token, **[n]**.
        layer_seeds: one per layer, **[num_layers]**.
        num_bytes: bytes of a unit.

    Returns:
        **[n, num_layers, num_bytes]** bytes.
    """
    seeds = _mix(values[:, np.newaxis] + layer_seeds)
    num_words = -(-num_bytes // 8)
    places = np.arange(num_words, dtype=np.uint64) * _GOLDEN_64
    words = (seeds[..., np.newaxis] + places) * _FIRST_64
    return words.view(np.uint8)[..., :num_bytes]


NUM_TOKEN_IDS = 4
"""Few, so that prompts collide by chance too."""


class TokenStream:
    """An endless row of token ids that its name decides.

    Args:
        seed: of the run.
        name: whose stream; a request's own decides what the model answers to it.
    """

    __slots__ = ("_base",)

    def __init__(self, seed: int, name: str) -> None:
        digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
        self._base = int.from_bytes(digest, "little")

    def span(self, first: int, end: int) -> list[int]:
        """Token ids at the places ``[first, end)``."""
        places = np.arange(first, end, dtype=np.uint64) + np.uint64(self._base)
        tokens: list[int] = (_mix(places) % np.uint64(NUM_TOKEN_IDS)).tolist()
        return tokens

    def at(self, place: int) -> int:
        """The token id at one place."""
        return _mix_one((self._base + place) & _64_BITS) % NUM_TOKEN_IDS
