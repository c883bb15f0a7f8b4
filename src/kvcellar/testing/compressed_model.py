"""A toy language model that remembers as DeepSeek-V4 does: windows and compressors.

Each layer attends to the compressed entries of all closed groups and to a sliding
window of raw keys, and adds what it reads to the hidden state, so one wrong number in
one layer's cache reaches every later token's logits. The caches are paged and named by
the positions of a ``CacheLayout``, so that "resumed at b with just these blocks" can be
written down.

Not the model's own: one head, keys serve as values, no rotation, no experts, and every
entry is attended to where DeepSeek-V4's ratio-4 layers pick the best ones by a second,
smaller compressor of the same form.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from kvcellar.layout.groups import (
    AttentionKind,
    CacheLayout,
    GroupLayout,
    make_layout,
)
from kvcellar.testing.compressor import Array, Compressor, CompressorShape, PagedRows

HIDDEN_SIZE = 8
NUM_TOKEN_IDS = 16
GROUPS_PER_LAYER = 3  # window keys, compressed entries, compressor states

Cache = list[PagedRows]
"""One entry per position of the layout."""


def toy_layout(
    shapes: Sequence[CompressorShape],
    *,
    window_tokens: int,
    state_block_tokens: Sequence[int],
    alignment_tokens: int,
) -> CacheLayout:
    """The layout that an engine would declare for the model.

    Args:
        shapes: one compressor per layer.
        window_tokens: of the raw keys, in blocks of 8.
        state_block_tokens: block of each layer's compressor states.
        alignment_tokens: distance of two resume points; a multiple of every ratio.
    """
    full, window = AttentionKind.FULL, AttentionKind.WINDOW
    groups: list[GroupLayout] = []
    for shape, block in zip(shapes, state_block_tokens, strict=True):
        key_bytes = 4 * shape.size
        for kind, tokens, size, span in (
            (window, 8, 8 * key_bytes, window_tokens),
            (full, alignment_tokens, alignment_tokens // shape.ratio * key_bytes, None),
            (window, block, block * 4 * shape.state_width, shape.window_tokens),
        ):
            groups.append(GroupLayout(len(groups), kind, tokens, size, size, 1, span))
    return make_layout(
        groups,
        hash_block_tokens=4,
        alignment_tokens=alignment_tokens,
        scheduler_block_tokens=alignment_tokens,
    )


class ToyModel:
    """Random weights; deterministic to the bit however a run is cut into steps.

    Args:
        shapes: one compressor per layer.
        window_tokens: raw keys that a token sees, its own included.
        seed: of the weights.
    """

    def __init__(
        self, shapes: Sequence[CompressorShape], *, window_tokens: int, seed: int = 0
    ) -> None:
        rng = np.random.default_rng(seed)
        self.shapes = tuple(shapes)
        self._embedding = _weights(rng, NUM_TOKEN_IDS, HIDDEN_SIZE)
        self._layers = [_Layer(shape, window_tokens, rng) for shape in shapes]

    def blank_cache(
        self, layout: CacheLayout, num_tokens: int, garbage: float = float("nan")
    ) -> Cache:
        """A cache of ``num_tokens`` in which nothing has been written."""
        cache = []
        for position, group in enumerate(layout.groups):
            shape = self.shapes[position // GROUPS_PER_LAYER]
            widths = (shape.size, shape.size, shape.state_width)
            ratios = (1, shape.ratio, 1)
            kind = position % GROUPS_PER_LAYER
            rows = PagedRows(
                num_tokens,
                tokens_per_block=group.tokens_per_block,
                tokens_per_row=ratios[kind],
                width=widths[kind],
                garbage=garbage,
            )
            cache.append(rows)
        return cache

    def run(self, tokens: Sequence[int], first: int, cache: Cache) -> Array:
        """Compute ``tokens[first:]`` in one step; earlier ones come from the cache.

        Returns:
            Logits of each computed token, **[num_computed, NUM_TOKEN_IDS]**.
        """
        hidden: Array = self._embedding[list(tokens[first:])]
        for number, layer in enumerate(self._layers):
            start = number * GROUPS_PER_LAYER
            keys, entries, states = cache[start : start + GROUPS_PER_LAYER]
            hidden = layer.run(hidden, first, keys, entries, states)
        return np.stack([self._embedding @ row for row in hidden])


class _Layer:
    def __init__(
        self, shape: CompressorShape, window_tokens: int, rng: np.random.Generator
    ) -> None:
        self._compressor = Compressor(shape, HIDDEN_SIZE, rng)
        self._window_tokens = window_tokens
        self._query = _weights(rng, HIDDEN_SIZE, shape.size)
        self._key = _weights(rng, HIDDEN_SIZE, shape.size)
        self._out = _weights(rng, shape.size, HIDDEN_SIZE)

    def run(
        self,
        hidden: Array,
        first: int,
        keys: PagedRows,
        entries: PagedRows,
        states: PagedRows,
    ) -> Array:
        """As the engine does: first all rows of the step, then all entries."""
        positions = range(first, first + len(hidden))
        for position, row in zip(positions, hidden, strict=True):
            keys.rows[position] = row @ self._key
            self._compressor.save(row, position, states)
        ratio = self._compressor.shape.ratio
        for position in positions:
            entry = self._compressor.entry(position, states)
            if entry is not None:
                entries.rows[position // ratio] = entry
        return np.stack(
            [
                self._attend(row, position, keys, entries)
                for position, row in zip(positions, hidden, strict=True)
            ]
        )

    def _attend(
        self, hidden: Array, position: int, keys: PagedRows, entries: PagedRows
    ) -> Array:
        seen = position + 1
        num_entries = seen // self._compressor.shape.ratio
        window = keys.rows[max(seen - self._window_tokens, 0) : seen]
        read = np.concatenate([entries.rows[:num_entries], window])
        scores = read @ (hidden @ self._query)
        weights = np.exp(scores - scores.max())
        mixed = (weights @ read) / weights.sum() @ self._out
        output: Array = np.tanh(hidden + mixed)  # bounded, however deep or long
        return output


def restored_cache(
    cache: Cache, source: Cache, blocks: Iterable[tuple[int, range]], boundary: int
) -> Cache:
    """Write some blocks of ``source``, as they were at ``boundary``, into ``cache``.

    Args:
        blocks: (position, blocks) of what to write; the rest stays as it is.
    """
    for position, needed in blocks:
        cache[position].restore(source[position], needed, boundary)
    return cache


def _weights(rng: np.random.Generator, rows: int, columns: int) -> Array:
    values = rng.standard_normal((rows, columns)) / np.sqrt(rows)
    weights: Array = values.astype(np.float32)
    return weights
