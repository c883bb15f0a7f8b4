"""Cache configurations that cannot be served: refused by group, value and remedy.

Made from a right one by one change; nothing of vLLM is needed.
"""

import itertools
import re
from types import SimpleNamespace

import pytest

from kvcellar.errors import IncompatibleError
from kvcellar.integrations.vllm.translate import layout_from_kv_cache_config
from kvcellar.layout.host import plan_geometry

COMMON = {
    "block_size": 16,
    "prefix_cacheable": True,
    "page_size_bytes": 4096,
    "unpadded_page_size_bytes": 4000,
    "state_content_size_bytes": 4000,
}
KINDS = {
    "FullAttentionSpec": {},
    "SlidingWindowSpec": {"sliding_window": 64},
    "ChunkedLocalAttentionSpec": {"attention_chunk_size": 64},
    "MambaSpec": {"mamba_cache_mode": "align"},
}


def spec(kind, **changes):
    """What the engine says of one layer's cache, by attribute."""
    named = type(kind, (SimpleNamespace,), {})
    return named(**COMMON | KINDS.get(kind, {}) | changes)


def cache(*specs, **group_changes):
    """A configuration of one layer per group; the last group is changed."""
    groups = [
        SimpleNamespace(layer_names=[f"layer{i}"], kv_cache_spec=s)
        for i, s in enumerate(specs)
    ]
    vars(groups[-1]).update(group_changes)
    return SimpleNamespace(kv_cache_groups=groups, kv_cache_tensors=[])


def translate(config, hash_tokens=16, alignment=16):
    """As an engine of one rank plans."""
    layout = layout_from_kv_cache_config(
        config, hash_block_tokens=hash_tokens, alignment_tokens=alignment
    )
    plan_geometry(layout, 2**30)


FULL = spec("FullAttentionSpec")
CHANGES = [
    ("unknown kind", spec("SpiralAttentionSpec"), {}, ("SpiralAttentionSpec",)),
    ("known to differ", spec("RSWASpec"), {}, ("RSWASpec", "supported: ")),
    (
        "states that are not cached",
        spec("MambaSpec", mamba_cache_mode="none"),
        {},
        ("mamba_cache_mode='none'",),
    ),
    (
        "tokens below the window",
        spec("SlidingWindowSpec", extra_retained_tokens=3),
        {},
        ("3 tokens below its window", "speculative decoding off"),
    ),
    ("another pool", FULL, {"host_resident": True}, ("HiSparse",)),
    (
        "no bytes",
        spec("FullAttentionSpec", unpadded_page_size_bytes=0, page_size_bytes=0),
        {},
        ("holds no bytes",),
    ),
    ("no layers", FULL, {"layer_names": []}, ("holds no bytes",)),
    (
        "a block that the hash cuts",
        spec("FullAttentionSpec", block_size=24),
        {},
        ("24",),
    ),
]
OTHERS = [spec(kind) for kind in KINDS]


@pytest.mark.parametrize(
    ("change", "others"),
    list(itertools.product(CHANGES, [1, 2, 3])),
    ids=lambda value: value[0] if isinstance(value, tuple) else f"{value} others",
)
def test_a_cache_that_cannot_be_served_is_refused(change, others):
    """The group by its number, what is wrong with it, and what to do."""
    _, wrong, group_changes, told = change
    translate(cache(*OTHERS[:others], FULL))
    with pytest.raises(IncompatibleError) as caught:
        translate(cache(*OTHERS[:others], wrong, **group_changes))
    sentence = str(caught.value)
    assert f"group {others} " in sentence
    assert [] == [text for text in told if text not in sentence], sentence
    assert re.search(r"; (turn|serve|set|use|kvcellar needs|supported)", sentence)


@pytest.mark.parametrize(
    "pair", list(itertools.combinations(KINDS, 2)), ids=lambda pair: "+".join(pair)
)
def test_a_group_of_two_kinds_is_refused(pair):
    """One block table cannot forget in two ways."""
    specs = {f"layer{i}": spec(kind) for i, kind in enumerate(pair)}
    mixed = spec("UniformTypeKVCacheSpecs", kv_cache_specs=specs)
    config = cache(FULL, mixed, layer_names=list(specs))
    with pytest.raises(IncompatibleError, match=r"group 1 .* mixes .* without it"):
        translate(config)


def test_no_group_to_keep_is_refused():
    """A model of scratch groups alone has nothing that could be found again."""
    scratch = spec("FullAttentionSpec", prefix_cacheable=False)
    with pytest.raises(IncompatibleError, match="serve it without kvcellar"):
        translate(cache(scratch, scratch))


def test_units_that_do_not_divide_are_refused():
    """Hits between two hashes could not be named."""
    with pytest.raises(IncompatibleError, match=r"40 tokens .* 16 .*prefix_match_unit"):
        translate(cache(FULL), alignment=40)
