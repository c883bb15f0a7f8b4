"""From vLLM's cache configuration to ours, by attribute access only.

Nothing of vLLM is imported: a recorded configuration of a model that does not fit on
this machine reads like a live one. Source of the attribute names:
v1/kv_cache_interface.py, vLLM 0.32.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from kvcellar.errors import IncompatibleError
from kvcellar.layout.groups import AttentionKind, CacheLayout, GroupLayout, make_layout
from kvcellar.layout.sizes import BlockSizes, GroupUnits, resolve_block_sizes

# Nearest known class wins, so a plug-in's subclass reads as what it extends. None
# marks classes that extend a known one but do not remember as it does.
_KIND_BY_CLASS: dict[str, AttentionKind | None] = {
    "FullAttentionSpec": AttentionKind.FULL,
    "MLAAttentionSpec": AttentionKind.FULL,
    "SinkFullAttentionSpec": AttentionKind.FULL,
    "RSWASpec": None,
    "SlidingWindowSpec": AttentionKind.WINDOW,
    "SlidingWindowMLASpec": AttentionKind.WINDOW,
    "ChunkedLocalAttentionSpec": AttentionKind.CHUNKED,
    "MambaSpec": AttentionKind.STATE,
}


def layout_from_kv_cache_config(  # noqa: PLR0913 - the engine's numbers, by keyword
    kv_cache_config: Any,
    *,
    hash_block_tokens: int | None = None,
    alignment_tokens: int | None = None,
    scheduler_block_tokens: int | None = None,
    chunk_tokens: int | None = None,
    payload_bytes_by_group: Mapping[int, int] | None = None,
    has_drafter: bool = False,
) -> CacheLayout:
    """Translate the groups that can be hit, and the token units they share.

    Args:
        kv_cache_config: a ``KVCacheConfig``, or an object with the same attributes.
        hash_block_tokens: overrides the configuration, as do the next two.
        chunk_tokens: None takes the smallest legal chunk.
        payload_bytes_by_group: bytes per block by group id, as the workers know them;
            needed where the engine shows its scheduler one spec for layers that
            differ.
        has_drafter: the engine drafts with layers of its own, whether or not it has
            marked their group.

    Raises:
        IncompatibleError: a group is of an unknown kind, lives in another pool, mixes
            kinds, or holds no bytes; or the units do not divide each other.
        ConfigError: ``chunk_tokens`` does not fit the model.
    """
    all_groups = list(kv_cache_config.kv_cache_groups)
    served = _served_layers(kv_cache_config)
    known_bytes = payload_bytes_by_group or {}
    groups = [
        _group_layout(i, all_groups[i], served, known_bytes.get(i))
        for i in cacheable_group_ids(kv_cache_config)
    ]
    sizes = _block_sizes(kv_cache_config, hash_block_tokens, alignment_tokens)
    return make_layout(
        groups,
        hash_block_tokens=sizes.hash_block_tokens,
        alignment_tokens=sizes.alignment_tokens,
        scheduler_block_tokens=scheduler_block_tokens or sizes.scheduler_block_tokens,
        chunk_tokens=chunk_tokens,
        has_drafter=has_drafter,
    )


def cacheable_group_ids(kv_cache_config: Any) -> tuple[int, ...]:
    """Ids of the groups that are transferred and can be hit; scratch is left out."""
    return tuple(
        index
        for index, group in enumerate(kv_cache_config.kv_cache_groups)
        if getattr(group, "enable_kv_transfer", True)
        and _is_cacheable(group.kv_cache_spec)
    )


def layer_payload_bytes(spec: Any, layer_name: str) -> int:
    """Bytes of one block of one layer that the layer reads, without page padding.

    Args:
        spec: the group's spec, whether it wraps one spec per layer or not.
    """
    return _payload_bytes(_spec_of_layer(spec, layer_name))


@dataclasses.dataclass(frozen=True, slots=True)
class _Served:
    """Layers that own bytes here, and the tensor (by number) that holds each."""

    tensor_by_layer: Mapping[str, int]
    is_known: bool

    def layers_of(self, group: Any) -> list[str]:
        return [
            name
            for name in group.layer_names
            if not self.is_known or name in self.tensor_by_layer
        ]


def _served_layers(kv_cache_config: Any) -> _Served:
    tensors = list(kv_cache_config.kv_cache_tensors)
    by_layer = {name: i for i, t in enumerate(tensors) for name in t.layers}
    return _Served(by_layer, is_known=bool(tensors))


def _group_layout(
    group_id: int, group: Any, served: _Served, known_bytes: int | None
) -> GroupLayout:
    spec = group.kv_cache_spec
    if getattr(group, "host_resident", False):
        raise IncompatibleError(
            f"group {group_id} lives in the engine's own host pool (HiSparse), which "
            "kvcellar cannot read; turn HiSparse or kvcellar off"
        )
    kind, span = _kind_and_span(group_id, spec)
    layers = served.layers_of(group)
    specs = [_spec_of_layer(spec, name) for name in layers]
    payload = known_bytes
    if payload is None:
        _refuse_collapsed(group_id, spec, layers, served)
        payload = sum(_payload_bytes(layer_spec) for layer_spec in specs)
    padded = sum(layer_spec.page_size_bytes for layer_spec in specs)
    return GroupLayout(
        group_id=group_id,
        kind=kind,
        tokens_per_block=spec.block_size,
        payload_bytes=payload,
        padded_bytes=max(padded, payload),
        num_layers=len(layers),
        span_tokens=span,
        is_draft=bool(getattr(group, "is_eagle_group", False)),
    )


def _refuse_collapsed(
    group_id: int, spec: Any, layers: list[str], served: _Served
) -> None:
    """Refuse to guess bytes where one spec stands for layers that differ.

    The engine lays out one tensor per distinct spec of a group, so a single spec over
    several tensors is the scheduler's shortened copy.
    """
    tensors = {served.tensor_by_layer[name] for name in layers if served.is_known}
    if len(tensors) > 1 and not hasattr(spec, "kv_cache_specs"):
        raise IncompatibleError(
            f"the layers of group {group_id} lie in {len(tensors)} tensors, but the "
            "engine shows one spec for all of them, so their bytes are unknown here; "
            "pass the workers' payload_bytes_by_group"
        )


def _payload_bytes(spec: Any) -> int:
    """Bytes of one block of one layer that the layer reads: no page padding.

    A recurrent layer's page holds one state; ``state_content_size_bytes`` of the other
    kinds is the size of one cell in it, so the kind decides which attribute counts.
    """
    if _known_kind(spec) is AttentionKind.STATE:
        return int(spec.state_content_size_bytes)
    return int(spec.unpadded_page_size_bytes)


def _kind_and_span(group_id: int, spec: Any) -> tuple[AttentionKind, int | None]:
    """The kind and span that all layers of a group share."""
    found = {_kind_and_span_of_layer(group_id, s) for s in _layer_specs(spec)}
    if len(found) != 1:
        listed = ", ".join(sorted(f"{kind}({span})" for kind, span in found))
        raise IncompatibleError(
            f"group {group_id} ({type(spec).__name__}) mixes layers that remember in "
            f"different ways: {listed or 'it has no layers'}; kvcellar needs one kind "
            "per group, so serve this model without it"
        )
    return found.pop()


def _kind_and_span_of_layer(
    group_id: int, spec: Any
) -> tuple[AttentionKind, int | None]:
    kind = _known_kind(spec)
    if kind is None:
        supported = sorted(name for name, known in _KIND_BY_CLASS.items() if known)
        raise IncompatibleError(
            f"group {group_id} is a {type(spec).__name__}, a kind of cache that "
            f"kvcellar does not know; supported: {', '.join(supported)}. serve this "
            "model without kvcellar"
        )
    if kind is AttentionKind.CHUNKED:
        return kind, int(spec.attention_chunk_size)
    if kind is AttentionKind.WINDOW:
        _refuse_extra_retained(group_id, spec)
        return kind, int(spec.sliding_window)
    if kind is AttentionKind.STATE:
        _refuse_uncached_state(group_id, spec)
    return kind, None


def _refuse_uncached_state(group_id: int, spec: Any) -> None:
    mode = getattr(spec, "mamba_cache_mode", "align")
    if mode != "align":
        raise IncompatibleError(
            f"group {group_id} keeps recurrent state that the engine does not cache by "
            f"prefix (mamba_cache_mode={mode!r}), so no prompt of this model can be "
            "resumed; serve it without kvcellar"
        )


def _refuse_extra_retained(group_id: int, spec: Any) -> None:
    extra = getattr(spec, "extra_retained_tokens", 0)
    if extra:
        raise IncompatibleError(
            f"group {group_id} keeps {extra} tokens below its window for a drafter "
            "with several modules, which comes with the next release; turn "
            "speculative decoding off until then"
        )


def _known_kind(spec: Any) -> AttentionKind | None:
    names = (cls.__name__ for cls in type(spec).__mro__)
    return next((_KIND_BY_CLASS[n] for n in names if n in _KIND_BY_CLASS), None)


def _layer_specs(spec: Any) -> Iterator[Any]:
    """The specs a group's spec stands for: several if it wraps one per layer."""
    wrapped = getattr(spec, "kv_cache_specs", None)
    return iter([spec] if wrapped is None else wrapped.values())


def _spec_of_layer(spec: Any, layer_name: str) -> Any:
    wrapped = getattr(spec, "kv_cache_specs", None)
    return spec if wrapped is None else wrapped[layer_name]


def _is_cacheable(spec: Any) -> bool:
    return bool(getattr(spec, "prefix_cacheable", True))


def _block_sizes(
    kv_cache_config: Any, hash_tokens: int | None, alignment: int | None
) -> BlockSizes:
    """What was given, else what the engine resolved, else what the groups imply."""
    specs = [group.kv_cache_spec for group in kv_cache_config.kv_cache_groups]
    hash_tokens = hash_tokens or getattr(kv_cache_config, "hash_block_size", None)
    alignment = alignment or getattr(
        kv_cache_config, "cache_hit_alignment_tokens", None
    )
    if hash_tokens and alignment:
        scheduler = math.lcm(*(spec.block_size for spec in specs))
        return BlockSizes(scheduler, hash_tokens, alignment)
    resolved = resolve_block_sizes(
        [_units(spec) for spec in specs], prefix_match_unit=hash_tokens
    )
    return dataclasses.replace(
        resolved, alignment_tokens=alignment or resolved.alignment_tokens
    )


def _units(spec: Any) -> GroupUnits:
    layer_specs = list(_layer_specs(spec))
    kinds = {_known_kind(s) for s in layer_specs}
    is_state = AttentionKind.STATE in kinds
    ratios = {getattr(s, "tokens_per_state", 1) for s in layer_specs}
    return GroupUnits(
        block_tokens=spec.block_size,
        is_sharded=bool(getattr(spec, "dcp_sharded", False)),
        is_cacheable=_is_cacheable(spec),
        has_fine_lookup=kinds <= {AttentionKind.FULL, AttentionKind.STATE},
        is_state=is_state,
        is_aligned_state=is_state
        and all(getattr(s, "mamba_cache_mode", "none") == "align" for s in layer_specs),
        compressions=tuple(
            sorted(r for r in ratios if not isinstance(r, Fraction) and r > 1)
        ),
    )
