"""Geometries that no published model has, each awkward in one way."""

import torch
from vllm.v1.kv_cache_interface import CircularBufferSpec, MambaSpec

from kvcellar.testing.oracle.layouts.recipe import (
    BLOCK_OUTER,
    LayerSpecs,
    Recipe,
    Size,
)
from kvcellar.testing.oracle.layouts.specs import (
    SMALL,
    Heads,
    chunked,
    full,
    stack,
    window,
)

REAL = Heads(8, 128)


def _full24_swa16(size: Size) -> LayerSpecs:
    """Neither block is a multiple of the other; hashes are finer than both.

    Three heads in 16 tokens take as much as two in 24, so the pages are equal.
    """
    width = size.pick(2, 128)
    attends = full(Heads(2, width), 24)
    return stack("FWFW", F=attends, W=window(Heads(3, width), 40, 16))


def _window_not_multiple(size: Size) -> LayerSpecs:
    """The window starts inside a block."""
    heads = size.pick(SMALL, REAL)
    return stack("FWFW", F=full(heads), W=window(heads, 100))


def _coarse_alignment(size: Size) -> LayerSpecs:
    """Hits are four window blocks apart, a window is two: half of them are dead."""
    heads = size.pick(SMALL, REAL)
    return stack("FWWFWW", F=full(heads, 64), W=window(heads, 32, 16))


def _ring(size: Size) -> LayerSpecs:
    """A scratch group whose blocks are shorter than the hash block."""
    heads = size.pick(SMALL, REAL)
    ring = CircularBufferSpec(
        block_size=8,
        num_kv_heads=1,
        head_size=size.pick(8, 1024),
        head_size_v=0,
        dtype=torch.float32,
    )
    windowed = window(heads, 128, 64)
    return stack("FFWRFFWR", F=full(heads, 32), W=windowed, R=ring)


def _window_1(size: Size) -> LayerSpecs:
    """A window that reads only the token being computed."""
    heads = size.pick(SMALL, REAL)
    return stack("FWFW", F=full(heads), W=window(heads, 1))


def _three_windows(size: Size) -> LayerSpecs:
    heads = size.pick(SMALL, REAL)
    widths = {"A": 24, "B": 64, "C": 160}
    windows = {letter: window(heads, width) for letter, width in widths.items()}
    return stack("FABCFABC", F=full(heads), **windows)


def _full_two_pages(size: Size) -> LayerSpecs:
    """One group whose layers have pages of two sizes."""
    heads = size.pick(SMALL, REAL)
    wide = Heads(heads.num, 2 * heads.size)
    return stack("FWFW", F=full(heads), W=full(wide))


def _chunked_odd(size: Size) -> LayerSpecs:
    """A local chunk of three blocks."""
    heads = size.pick(SMALL, REAL)
    return stack("FCFC", F=full(heads), C=chunked(heads, 48))


def _short_states(size: Size) -> LayerSpecs:
    """Recurrent state in short blocks: requests cross many boundaries."""
    attention = full(size.pick(SMALL, REAL))
    width = size.pick(4, 64)
    state = MambaSpec(
        block_size=attention.block_size,
        shapes=((3, width), (width, width)),
        dtypes=(torch.bfloat16, torch.bfloat16),
        page_size_padded=attention.page_size_bytes,
        mamba_cache_mode="align",
    )
    return stack("SSFSSF", S=state, F=attention)


RECIPES = (
    Recipe("full24-swa16", _full24_swa16, prompt_tokens=300),
    Recipe("window-not-multiple", _window_not_multiple, prompt_tokens=350),
    Recipe("coarse-alignment", _coarse_alignment, 400, BLOCK_OUTER),
    Recipe("ring", _ring, 500, BLOCK_OUTER),
    Recipe("window-1", _window_1, prompt_tokens=150),
    Recipe("three-windows", _three_windows, prompt_tokens=500),
    Recipe("full-two-pages", _full_two_pages, prompt_tokens=200),
    Recipe("chunked-odd", _chunked_odd, prompt_tokens=300),
    Recipe("short-states", _short_states, prompt_tokens=200),
)
