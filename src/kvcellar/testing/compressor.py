"""A small reference of DeepSeek-V4's KV compressor, over a paged state cache.

Every token leaves a row behind: a value and a score per channel, the score already
biased by the token's place in its group. The last token of each group of ``ratio``
tokens turns the group's rows into one entry: per channel, a softmax over the scores
weighs the values, then the entry is RMS-normalised. Where groups overlap, a row has two
series; an entry takes the first series of the group before and the second of its own.

Rows are float32, as in the engine. Left out is what reads no state: the rotation by
position and the entry's quantisation. Tokens are computed one at a time, so that no
result depends on how a run was cut into steps.

Source: DeepSeek-V4 report, sections 2.3.1 and 2.3.2; models/deepseek_v4/compressor.py
and common/ops/fused_compress_quant_cache.py of vLLM 0.32.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
EPSILON = np.float32(1e-6)


class PagedRows:
    """One layer's rows in blocks of a cache; what was never written is garbage.

    Args:
        num_tokens: tokens to hold.
        tokens_per_block: tokens that one block covers.
        tokens_per_row: tokens that one row stands for; divides a block.
        width: numbers per row.
        garbage: what unwritten rows contain; NaN shows in everything that reads it.

    Attributes:
        rows: **[num_rows, width]**, in token order; blocks are slices of it.
    """

    def __init__(
        self,
        num_tokens: int,
        *,
        tokens_per_block: int,
        width: int,
        tokens_per_row: int = 1,
        garbage: float = float("nan"),
    ) -> None:
        self.tokens_per_row = tokens_per_row
        self.rows_per_block = tokens_per_block // tokens_per_row
        num_blocks = -(-num_tokens // tokens_per_block)
        shape = (num_blocks * self.rows_per_block, width)
        self.rows: Array = np.full(shape, garbage, dtype=np.float32)

    def restore(self, source: "PagedRows", blocks: range, boundary: int) -> None:
        """Copy blocks as they were when ``boundary`` tokens had been computed."""
        for block in blocks:
            first = block * self.rows_per_block
            end = min(first + self.rows_per_block, boundary // self.tokens_per_row)
            self.rows[first:end] = source.rows[first:end]


@dataclass(frozen=True, slots=True)
class CompressorShape:
    """Sizes of a compressor.

    Attributes:
        ratio: tokens per entry.
        size: channels of an entry.
        has_overlap: whether an entry also reads the group before; in DeepSeek-V4 for
            ratio 4 and not for ratio 128.
    """

    ratio: int
    size: int
    has_overlap: bool

    @property
    def num_series(self) -> int:
        """Series of values in a row."""
        return 2 if self.has_overlap else 1

    @property
    def window_tokens(self) -> int:
        """Tokens whose rows one entry reads: the window that the engine declares."""
        return self.num_series * self.ratio

    @property
    def state_width(self) -> int:
        """Numbers in a row: values, then scores."""
        return 2 * self.num_series * self.size


class Compressor:
    """The numerics of one layer's compressor.

    Attributes:
        value_weight, score_weight: **[hidden_size, num_series * size]**.
        score_bias: **[ratio, num_series * size]**, added by place in the group.
        norm_weight: **[size]**.
    """

    def __init__(
        self, shape: CompressorShape, hidden_size: int, rng: np.random.Generator
    ) -> None:
        self.shape = shape
        width = shape.num_series * shape.size
        self.value_weight = _random(rng, hidden_size, width)
        self.score_weight = _random(rng, hidden_size, width)
        self.score_bias = _random(rng, shape.ratio, width)
        self.norm_weight = 1 + _random(rng, shape.size) / 4

    def save(self, hidden: Array, position: int, states: PagedRows) -> None:
        """Leave the row of one token behind.

        Args:
            hidden: **[hidden_size]**.
        """
        bias = self.score_bias[position % self.shape.ratio]
        scores = hidden @ self.score_weight + bias
        values = hidden @ self.value_weight
        states.rows[position] = np.concatenate([values, scores])

    def entry(self, position: int, states: PagedRows) -> Array | None:
        """The entry that the token at ``position`` completes, **[size]**, if any."""
        if (position + 1) % self.shape.ratio:
            return None
        values, scores = self._gather(position, states)
        weights = np.exp(scores - scores.max(axis=0))
        pooled = (values * weights).sum(axis=0) / weights.sum(axis=0)
        scale = np.sqrt((pooled * pooled).mean() + EPSILON)
        normed: Array = pooled / scale * self.norm_weight
        return normed

    def _gather(self, position: int, states: PagedRows) -> tuple[Array, Array]:
        """Values and scores that the entry reads, **[num_tokens, size]** each.

        Rows before the prompt's first token have no weight, so they are left out.
        """
        ratio, size = self.shape.ratio, self.shape.size
        own = states.rows[position + 1 - ratio : position + 1]
        parts = [_series(own, self.shape.num_series - 1, size)]
        if self.shape.has_overlap and position >= ratio:
            before = states.rows[position + 1 - 2 * ratio : position + 1 - ratio]
            parts.insert(0, _series(before, 0, size))
        values = np.concatenate([part[0] for part in parts])
        return values, np.concatenate([part[1] for part in parts])


def _series(rows: Array, series: int, size: int) -> tuple[Array, Array]:
    """One series' values and scores of some rows."""
    half = rows.shape[1] // 2
    low, high = series * size, (series + 1) * size
    return rows[:, low:high], rows[:, half + low : half + high]


def _random(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)
