"""What things cost in memory at the very least, and how much memory there is."""

import math
import sys
from dataclasses import dataclass

import numpy as np

from kvcellar.attention.hybrid import HybridRules
from kvcellar.layout.groups import CacheLayout
from kvcellar.replay.configuration import Configuration
from kvcellar.replay.device_rows import DeviceRows


@dataclass(frozen=True, slots=True)
class LeastSizes:
    """Bytes of payload.

    Attributes:
        chunk_bytes: of one chunk.
        tail_bytes: of the windows and states that resuming at any boundary reads, by
            the chunk that has to have been used for them: the last, the one before,
            and so on. Never grows.
    """

    chunk_bytes: int
    tail_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Room:
    """Device and host memory together, from which anything may be served.

    Attributes:
        num_chunks: that fit, if there were nothing else.
        num_bytes: of payload that fit.
    """

    num_chunks: int
    num_bytes: int


def least_sizes(layout: CacheLayout, unit: int, block_tokens: int) -> LeastSizes:
    """Sizes in chunks of ``unit`` tokens.

    Beyond the longest window what a boundary needs repeats; the smallest of all is
    taken. Whoever left the path inside a chunk may have left blocks of it: these count
    for the chunk before, which cannot have been used less lately.

    Args:
        layout: what host memory keeps, with its own blocks.
        block_tokens: tokens per id of the trace; at most ``unit``.
    """
    rules = HybridRules(layout)
    longest = max((group.span_tokens or 0 for group in layout.groups), default=0)
    most = longest // unit + 3
    least = np.full(most, np.iinfo(np.int64).max)
    for depth in range(1, most + _period(rules, unit, block_tokens) + 1):
        by_chunk = np.zeros(most, np.int64)
        for position, blocks in rules.checkpoint_blocks(depth * unit):
            group = layout.groups[position]
            for block in blocks:
                end = -(-(block + 1) * group.tokens_per_block // block_tokens)
                chunk = min(end * block_tokens // unit, depth)
                if chunk > 0:
                    by_chunk[depth - chunk] += group.payload_bytes
        known = min(depth, most)  # of chunks before the prompt nothing is known
        least[:known] = np.minimum(least[:known], by_chunk[:known])
    tail = np.minimum.accumulate(least)
    chunk_bytes = rules.chunk_bytes * (unit // layout.chunk_tokens)
    return LeastSizes(chunk_bytes, tuple(int(size) for size in tail if size))


def _period(rules: HybridRules, unit: int, block_tokens: int) -> int:
    """Chunks after which boundaries lie the same in local chunks and in the trace's."""
    periods = (rule.period_tokens for rule in rules.rules)
    return math.lcm(unit, block_tokens, *periods) // unit


def room_of(
    configuration: Configuration, host_bytes: int, sizes: LeastSizes, unit: int
) -> Room:
    """What both memories of one rank hold together.

    Rows of the device hold at most so much payload as the fullest kind of row.

    Args:
        host_bytes: host memory of the rank; 0 for none.
        unit: tokens of a chunk.
    """
    chunk_bytes, layout = sizes.chunk_bytes, configuration.layout
    num_chunks = host_bytes // chunk_bytes if chunk_bytes else sys.maxsize
    num_bytes = host_bytes
    if configuration.num_device_rows is not None:
        rows = DeviceRows.of(layout, unit, configuration.limits.step_tokens)
        usable = rows.usable(configuration.num_device_rows)
        row_bytes = [
            layout.groups[p].payload_bytes for p in layout.checkpoint_positions
        ]
        if rows.chunk:
            num_chunks += usable // rows.chunk
            row_bytes.append(-(-chunk_bytes // rows.chunk))
        num_bytes += usable * max(row_bytes)
    return Room(num_chunks, num_bytes)
