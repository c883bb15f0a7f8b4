"""Geometries that no published model has, each awkward in one way."""

import torch
from vllm.v1.kv_cache_interface import CircularBufferSpec

from kvcellar.testing.oracle.layouts.recipe import BLOCK_OUTER, LayerSpecs, Recipe
from kvcellar.testing.oracle.layouts.specs import (
    SMALL,
    Heads,
    chunked,
    full,
    stack,
    window,
)

LARGE = Heads(8, 128)


def _heads(is_small: bool) -> Heads:  # noqa: FBT001 - a recipe's one choice
    return SMALL if is_small else LARGE


def _full24_swa16(is_small: bool) -> LayerSpecs:  # noqa: FBT001 - as above
    """Neither block is a multiple of the other; hashes are finer than both.

    Three heads in 16 tokens take as much as two in 24, so the pages are equal.
    """
    size = 2 if is_small else 128
    attends = full(Heads(2, size), 24)
    return stack("FWFW", F=attends, W=window(Heads(3, size), 40, 16))


def _window_not_multiple(is_small: bool) -> LayerSpecs:  # noqa: FBT001 - as above
    """The window starts inside a block."""
    heads = _heads(is_small)
    return stack("FWFW", F=full(heads), W=window(heads, 100))


def _coarse_alignment(is_small: bool) -> LayerSpecs:  # noqa: FBT001 - as above
    """Hits are four window blocks apart, a window is two: half of them are dead."""
    heads = _heads(is_small)
    return stack("FWWFWW", F=full(heads, 64), W=window(heads, 32, 16))


def _ring(is_small: bool) -> LayerSpecs:  # noqa: FBT001 - as above
    """A scratch group whose blocks are shorter than the hash block."""
    heads = _heads(is_small)
    ring = CircularBufferSpec(
        block_size=8,
        num_kv_heads=1,
        head_size=8 if is_small else 1024,
        head_size_v=0,
        dtype=torch.float32,
    )
    windowed = window(heads, 128, 64)
    return stack("FFWRFFWR", F=full(heads, 32), W=windowed, R=ring)


def _window_1(is_small: bool) -> LayerSpecs:  # noqa: FBT001 - as above
    """A window that reads only the token being computed."""
    heads = _heads(is_small)
    return stack("FWFW", F=full(heads), W=window(heads, 1))


def _three_windows(is_small: bool) -> LayerSpecs:  # noqa: FBT001 - as above
    heads = _heads(is_small)
    widths = {"A": 24, "B": 64, "C": 160}
    windows = {letter: window(heads, width) for letter, width in widths.items()}
    return stack("FABCFABC", F=full(heads), **windows)


def _full_two_pages(is_small: bool) -> LayerSpecs:  # noqa: FBT001 - as above
    """One group whose layers have pages of two sizes."""
    heads = _heads(is_small)
    wide = Heads(heads.num, 2 * heads.size)
    return stack("FWFW", F=full(heads), W=full(wide))


def _chunked_odd(is_small: bool) -> LayerSpecs:  # noqa: FBT001 - as above
    """A local chunk of three blocks."""
    heads = _heads(is_small)
    return stack("FCFC", F=full(heads), C=chunked(heads, 48))


RECIPES = (
    Recipe("full24-swa16", _full24_swa16, prompt_tokens=300),
    Recipe("window-not-multiple", _window_not_multiple, prompt_tokens=350),
    Recipe("coarse-alignment", _coarse_alignment, 400, BLOCK_OUTER),
    Recipe("ring", _ring, 500, BLOCK_OUTER),
    Recipe("window-1", _window_1, prompt_tokens=150),
    Recipe("three-windows", _three_windows, prompt_tokens=500),
    Recipe("full-two-pages", _full_two_pages, prompt_tokens=200),
    Recipe("chunked-odd", _chunked_odd, prompt_tokens=300),
)
