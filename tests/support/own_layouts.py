"""Cache layouts of a test's own making, planned by the engine as it plans a model's."""

import importlib
from unittest import mock

import torch
from vllm.v1.kv_cache_interface import MambaSpec

from kvcellar.testing.oracle.layouts.recipe import LAYER_OUTER, Recipe
from kvcellar.testing.oracle.layouts.specs import SMALL, full, stack

# By its full name, since the package shows the function of the same name.
_build = importlib.import_module("kvcellar.testing.oracle.layouts.build")


def state(block_tokens, attention):
    """A small recurrent layer, its page as long as the ``attention`` layer's."""
    return MambaSpec(
        block_size=block_tokens,
        shapes=((3, 4), (4, 4)),
        dtypes=(torch.bfloat16, torch.bfloat16),
        page_size_padded=attention.page_size_bytes,
        mamba_cache_mode="align",
    )


def hybrid_layers(block_tokens):
    """One recurrent and one full layer with equal blocks."""
    attention = full(SMALL, block_tokens)
    return stack("SF", S=state(block_tokens, attention), F=attention)


def plan(layers, *, prompt_tokens, draft=0, order=LAYER_OUTER, **limits):
    """An engine's configuration for layers of our own making.

    Args:
        layers: the engine's spec of each layer.
        prompt_tokens: a long prompt.
        draft: tokens per step of an MTP drafter.
        limits: what ``kvcellar.testing.oracle.layouts.build`` takes.
    """
    recipe = Recipe("scripted", lambda _: dict(layers), prompt_tokens, order, draft)
    with mock.patch.dict(_build._RECIPES, {"scripted": recipe}):
        return _build.build("scripted", **{"extra_config": {}} | limits)


def keep_every_state(layout):
    """The engine keeps all window and state boundaries, not the needed ones alone."""
    layout.scheduler_config.prefix_cache_retention_interval = None
    return layout
