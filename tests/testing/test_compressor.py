"""The reference compressor equals Hugging Face's DeepSeek-V4, another author's code."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kvcellar.testing.compressor import Compressor, CompressorShape, PagedRows

HIDDEN_SIZE = 8
C4 = CompressorShape(ratio=4, size=6, has_overlap=True)
C128 = CompressorShape(ratio=128, size=6, has_overlap=False)


@pytest.fixture(scope="module")
def deepseek_v4() -> Any:
    """Transformers' implementation, or a visible skip where it is missing."""
    pytest.importorskip("torch")
    return pytest.importorskip("transformers.models.deepseek_v4.modeling_deepseek_v4")


def no_rotation(entries: Any, *, position_ids: Any, layer_type: str) -> Any:
    """A rotation by nothing: the reference leaves the rotation out."""
    del layer_type
    import torch

    angles = torch.zeros(*position_ids.shape, entries.shape[-1] // 2)
    return torch.cos(angles), torch.sin(angles)


def hugging_face_entries(
    module: Any, compressor: Compressor, hidden: Any, cuts: list[int]
) -> Any:
    """All entries of a run in steps, by transformers with the same weights."""
    import torch
    from torch import nn

    shape = compressor.shape
    is_overlapping = shape.has_overlap
    kind = module.DeepseekV4CSACompressor if shape.has_overlap else None
    kind = kind or module.DeepseekV4HCACompressor
    theirs = kind.__new__(kind)
    nn.Module.__init__(theirs)
    theirs.compress_rate, theirs.head_dim = shape.ratio, shape.size
    theirs.kv_proj = lambda x: x @ torch.from_numpy(compressor.value_weight)
    theirs.gate_proj = lambda x: x @ torch.from_numpy(compressor.score_weight)
    theirs.position_bias = torch.from_numpy(compressor.score_bias)
    theirs.kv_norm = module.DeepseekV4RMSNorm(shape.size, eps=1e-6)
    theirs.kv_norm.weight.data = torch.from_numpy(compressor.norm_weight)
    theirs.rotary_emb = no_rotation
    # Which entries a query picks is no matter of the compressor.
    theirs.indexer = lambda x, *_: torch.zeros(1, x.shape[1], 1, dtype=torch.long)
    rates = {
        "compressed_sparse_attention": shape.ratio,
        "heavily_compressed_attention": shape.ratio,
    }
    config = SimpleNamespace(sliding_window=16, compress_rates=rates)
    layer = module.DeepseekV4CSACache if is_overlapping else module.DeepseekV4HCACache
    cache = SimpleNamespace(layers=[layer(config)])
    with torch.no_grad():
        for first, end in zip([0, *cuts], [*cuts, len(hidden)], strict=True):
            step = torch.from_numpy(hidden[first:end])[None]
            positions = torch.arange(first, end)[None]
            entries, _ = theirs(step, None, positions, cache, 0)
    return entries[0, 0].numpy()


@pytest.mark.parametrize(
    "cuts", [[], [300], [1, 2, 3, 4, 5], [127, 128, 129], [256, 257, 511]]
)
@pytest.mark.parametrize("shape", [C4, C128], ids=["c4", "c128"])
def test_equals_transformers(
    deepseek_v4: Any, shape: CompressorShape, cuts: list[int]
) -> None:
    """Both ratios, in one step or in several, to float32's precision."""
    rng = np.random.default_rng(7)
    compressor = Compressor(shape, HIDDEN_SIZE, rng)
    hidden = rng.standard_normal((520, HIDDEN_SIZE)).astype(np.float32)
    states = PagedRows(len(hidden), tokens_per_block=8, width=shape.state_width)
    mine = []
    for position, row in enumerate(hidden):
        compressor.save(row, position, states)
        entry = compressor.entry(position, states)
        if entry is not None:
            mine.append(entry)
    theirs = hugging_face_entries(deepseek_v4, compressor, hidden, cuts)
    assert theirs.shape == (len(hidden) // shape.ratio, shape.size)
    np.testing.assert_allclose(np.stack(mine), theirs, rtol=2e-5, atol=2e-6)


def test_entries_come_at_group_ends_only() -> None:
    """No entry before the last token of a group, whatever the states hold."""
    compressor = Compressor(C4, HIDDEN_SIZE, np.random.default_rng(0))
    states = PagedRows(16, tokens_per_block=4, width=C4.state_width)
    hidden = np.ones(HIDDEN_SIZE, dtype=np.float32)
    made = []
    for position in range(16):
        compressor.save(hidden, position, states)
        made.append(compressor.entry(position, states) is not None)
    assert made == [False, False, False, True] * 4


def test_restore_copies_what_was_there_at_the_boundary() -> None:
    """Later rows of a block, and rows of groups not yet closed, stay garbage."""
    source = PagedRows(16, tokens_per_block=8, width=1, tokens_per_row=4, garbage=1.0)
    target = PagedRows(16, tokens_per_block=8, width=1, tokens_per_row=4)
    target.restore(source, range(1, 2), 14)
    assert np.isnan(target.rows[:, 0]).tolist() == [True, True, False, True]
