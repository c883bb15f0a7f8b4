"""What every byte of the simulated cache must be.

A unit (one token's entry, or one compressed entry of several tokens) of a layer is a
function of the prefix up to its last token, the group, the layer and the byte's place:
nothing else. So a byte copied from another prefix, group, layer or place shows.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_RADIX = 0x2545F4914F6CDD1D  # odd, so that powers never vanish modulo 2**64


def _mix(values: Hashes) -> Hashes:
    """Spread the bits of 64-bit integers (the finaliser of SplitMix64)."""
    mixed = (values ^ (values >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed


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


_POWERS = Powers()


def prefix_values(tokens: Sequence[int], identity: int) -> Hashes:
    """A value per position, **[num_tokens]**, of the prefix that ends there.

    Args:
        tokens: token ids.
        identity: what else the prefix depends on: weights, adapter, salt.
    """
    terms = (np.asarray(tokens, dtype=np.uint64) + np.uint64(1)) * _POWERS.first(
        len(tokens)
    )
    seed = np.uint64(identity * int(_GOLDEN) % 2**64)
    return _mix(np.cumsum(terms, dtype=np.uint64) + seed)


def unit_bytes(
    values: Hashes, layer_seeds: Hashes, num_bytes: int
) -> npt.NDArray[np.uint8]:
    """Content of units in each layer.

    Args:
        values: prefix value of each unit's last token, **[...]**.
        layer_seeds: one per layer, **[num_layers]**.
        num_bytes: bytes of a unit.

    Returns:
        **[num_layers, ..., num_bytes]** bytes.
    """
    shape = (len(layer_seeds),) + (1,) * values.ndim
    seeds = _mix(values[np.newaxis] + layer_seeds.reshape(shape))
    num_words = -(-num_bytes // 8)
    places = np.arange(num_words, dtype=np.uint64) * _GOLDEN
    words = (seeds[..., np.newaxis] + places) * _FIRST
    return words.view(np.uint8)[..., :num_bytes]
