"""vLLM's own DeepSeek-V4 compressor kernels under the dead-state rule.

The CPU kernels of the installed engine write states and compressed entries. A resume
from a cache of NaNs, with only the rule's state blocks restored, must leave the same
compressed bytes as the uninterrupted run.
"""

from dataclasses import dataclass
from typing import Any

import pytest

from kvcellar.attention.hybrid import HybridRules
from kvcellar.layout.dead_state import with_dead_state_rule
from kvcellar.testing.compressed_model import toy_layout
from kvcellar.testing.compressor import CompressorShape

pytest.importorskip("vllm")

import torch
from vllm import _custom_ops as ops
from vllm.models.deepseek_v4.cpu.cpu_utils import map_local_to_global_slots_cpu

pytestmark = pytest.mark.skipif(
    not hasattr(torch.ops._C, "compress_norm_rope_store_cpu"),
    reason="this vLLM was built without the CPU compressor",
)

NUM_TOKENS = 520
STATES = 2  # position of the compressor's states in the toy layout
ROPE_SIZE = 64
NUM_ENTRIES_PER_BLOCK = 64
# Channels of an entry, and bytes of its record: of the model itself and its indexer.
RECORD_BYTES = {512: 584, 128: 132}


@dataclass
class Kernels:
    """One layer's inputs and the engine's kernels over a paged state cache."""

    ratio: int
    block: int
    size: int

    def __post_init__(self) -> None:
        """Random inputs; blocks lie in the cache in random order."""
        generator = torch.Generator().manual_seed(3)
        self.series = 2 if self.ratio == 4 else 1
        width = self.series * self.size

        def random(*shape: int) -> Any:
            return torch.randn(*shape, generator=generator)

        self.values = random(NUM_TOKENS, width)
        self.scores = random(NUM_TOKENS, width)
        self.bias = random(self.ratio, width)
        self.norm = 1 + random(self.size) / 4
        self.cos_sin = random(NUM_TOKENS, ROPE_SIZE)
        num_blocks = NUM_TOKENS // self.block
        self.table = torch.randperm(num_blocks, generator=generator)[None]

    def blank(self) -> tuple[Any, Any]:
        """States full of NaN, and entries of a byte that a record seldom has."""
        shape = (self.table.shape[1], self.block, 2 * self.series * self.size)
        num_entries = NUM_TOKENS // self.ratio
        num_blocks = -(-num_entries // NUM_ENTRIES_PER_BLOCK)
        entry_bytes = NUM_ENTRIES_PER_BLOCK * RECORD_BYTES[self.size]
        entries = torch.full((num_blocks, entry_bytes), 0xA5, dtype=torch.uint8)
        return torch.full(shape, float("nan")), entries

    def run(self, first: int, end: int, states: Any, entries: Any) -> None:
        """Compute tokens ``[first, end)``, as DeepseekV4CPUCompressor.forward does."""
        positions = torch.arange(first, end)
        zeros = torch.zeros_like(positions)
        slots = self.slots(positions[:, None], zeros)[:, 0]
        step = slice(first, end)
        ops.save_partial_states_cpu(
            self.values[step], self.scores[step], self.bias, positions, states, slots
        )
        window = self.series * self.ratio
        read = positions[:, None] - window + 1 + torch.arange(window)
        is_last = (positions + 1) % self.ratio == 0
        entry_slots = torch.where(is_last, positions // self.ratio, -1)
        is_main = self.size == 512
        store = (
            ops.compress_norm_rope_store_cpu
            if is_main
            else ops.compress_norm_rope_store_indexer_cpu
        )
        store(
            states,
            self.slots(read, zeros),
            positions,
            entry_slots,
            self.norm,
            1e-6,
            self.cos_sin,
            entries,
            NUM_ENTRIES_PER_BLOCK,
            self.ratio,
        )

    def slots(self, positions: Any, requests: Any) -> Any:
        """Rows of the paged cache."""
        return map_local_to_global_slots_cpu(
            positions, requests, self.table, self.block
        )

    def restored(self, source: Any, blocks: range) -> Any:
        """A cache of NaNs with some blocks of another one, by index in the prompt."""
        states, _ = self.blank()
        physical = self.table[0, list(blocks)]
        states[physical] = source[physical]
        return states

    def needed(self, boundary: int, *, rule: bool) -> range:
        """State blocks that a resume restores."""
        shape = CompressorShape(self.ratio, self.size, has_overlap=self.ratio == 4)
        layout = toy_layout(
            [shape],
            window_tokens=8,
            state_block_tokens=[self.block],
            alignment_tokens=128,
        )
        if rule:
            layout = with_dead_state_rule(layout, {STATES: self.ratio})
        return HybridRules(layout).rules[STATES].needed(boundary)


@pytest.fixture(
    params=[(4, 4, 512), (4, 4, 128), (128, 8, 512)],
    ids=["c4", "c4-indexer", "c128"],
)
def layer(request: pytest.FixtureRequest) -> Kernels:
    """The three compressors that a DeepSeek-V4 has."""
    return Kernels(*request.param)


def entries_from(layer: Kernels, first: int, boundary: int, blocks: range) -> bool:
    """Whether a run resumed at ``first`` leaves the uninterrupted run's bytes."""
    states, right = layer.blank()
    layer.run(0, boundary, states, right)
    before = states.clone()
    mine = right.clone()
    layer.run(boundary, NUM_TOKENS, states, right)
    assert not torch.equal(mine, right)  # there is something to leave
    resumed = layer.restored(before, blocks)
    cut = boundary + 130
    layer.run(first, cut, resumed, mine)
    layer.run(cut, NUM_TOKENS, resumed, mine)
    return bool(torch.equal(mine, right))


@pytest.mark.parametrize("boundary", [128, 256, 384])
def test_the_engine_s_kernels_leave_the_same_bytes(
    layer: Kernels, boundary: int
) -> None:
    """All entries after the boundary equal, to the bit, with the rule's blocks only."""
    assert entries_from(layer, boundary, boundary, layer.needed(boundary, rule=True))


def test_the_declared_window_leaves_them_too(layer: Kernels) -> None:
    """The comparison itself holds with all that the engine keeps."""
    assert entries_from(layer, 256, 256, layer.needed(256, rule=False))


def test_a_token_recomputed_below_the_boundary_breaks_them(layer: Kernels) -> None:
    """Rolled back by one token, the rule's blocks are too few; the window is enough."""
    assert not entries_from(layer, 255, 256, layer.needed(256, rule=True))
    assert entries_from(layer, 255, 256, layer.needed(256, rule=False))


def test_no_block_breaks_ratio_4_only(layer: Kernels) -> None:
    """Ratio 4 needs its one block; ratio 128 needs none."""
    assert entries_from(layer, 256, 256, range(0)) == (layer.ratio == 128)


def test_inside_a_group_the_rule_breaks_ratio_128(layer: Kernels) -> None:
    """At 200 ratio 128 is in the middle of a group."""
    held = entries_from(layer, 200, 200, layer.needed(200, rule=True))
    assert held == (layer.ratio == 4)
