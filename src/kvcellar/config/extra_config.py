"""The settings a user writes into ``kv_connector_extra_config``.

One table, ``_KEYS``, names every key, the setting it fills and how its value is read.
vLLM's own connectors' names stand beside ours, so that an existing configuration keeps
its meaning. Whatever is not in the table is refused: a typo must not become a default.
"""

import difflib
import logging
from collections.abc import Collection, Mapping

from kvcellar.config.readers import (
    Reader,
    fraction,
    int_from,
    lazy_switch,
    one_of,
    prompt_only_switch,
    share,
    switch,
)
from kvcellar.config.settings import (
    ADMISSIONS,
    EVICTION_POLICIES,
    PLACEMENTS,
    SHARINGS,
    TENANT_NAMES,
    Settings,
)
from kvcellar.config.sizes import parse_bytes
from kvcellar.errors import ConfigError
from kvcellar.versions import ALLOW_KEY

logger = logging.getLogger(__name__)

NOT_SERVED = frozenset(
    {
        "backpressure",
        "cache_policy_module_path",
        "canonical_layout",
        "disk_buffer_slots",
        "disk_capacity_bytes",
        "disk_path",
        "kv_offload_backend",
        "max_tracker_size",
        "secondary_tiers",
        "self_describing_kv_events",
        "spec_module_path",
        "spec_name",
        "store_threshold",
        "use_page_cache",
    }
)

# key -> (setting, reader). Source of the twins: vLLM 0.32, the extra configuration of
# SimpleCPUOffloadConnector and OffloadingConnector.
_KEYS: dict[str, tuple[str, Reader]] = {
    "host_memory": ("host_memory_bytes", parse_bytes),
    "cpu_bytes_to_use": ("host_memory_bytes", parse_bytes),
    "host_memory_per_rank": ("host_memory_bytes_per_rank", parse_bytes),
    "cpu_bytes_to_use_per_rank": ("host_memory_bytes_per_rank", parse_bytes),
    "mode": ("mode", one_of("eager", "lazy")),
    "lazy_offload": ("mode", lazy_switch),
    "eviction_policy": ("eviction_policy", one_of(*EVICTION_POLICIES)),
    "placement": ("placement", one_of(*PLACEMENTS)),
    "superseded_first": ("superseded_first", switch),
    "admission": ("admission", one_of(*ADMISSIONS)),
    "chunk_tokens": ("chunk_tokens", int_from(1)),
    "block_size": ("chunk_tokens", int_from(1)),
    "blocks_per_chunk": ("blocks_per_chunk", int_from(1)),
    "min_load_tokens": ("min_load_tokens", int_from(0)),
    "cost_rule": ("cost_rule", switch),
    "max_load_tokens": ("max_load_tokens", int_from(0)),
    "max_store_tokens": ("max_store_tokens", int_from(0)),
    "max_offload_tokens": ("max_store_tokens", int_from(0)),
    "store_decoded": ("store_decoded", switch),
    "share_replicated": ("share_replicated", one_of(*SHARINGS)),
    "dead_state": ("dead_state", switch),
    "status_socket": ("status_socket", switch),
    ALLOW_KEY: ("allow_untested_vllm", switch),
    "offload_prompt_only": ("store_decoded", prompt_only_switch),
    "decode_checkpoint_tokens": ("decode_checkpoint_tokens", int_from(1)),
    "spaced_checkpoint_share": ("spaced_checkpoint_share", share),
    "lease_share": ("lease_share", fraction),
    "tenant_share": ("tenant_share", fraction),
    "tenant_by": ("tenant_by", one_of(*TENANT_NAMES)),
}

SETTING_KEYS = frozenset(_KEYS)
"""Every key of ``kv_connector_extra_config`` that is read here."""


def keys_by_setting() -> dict[str, dict[str, Reader]]:
    """Per setting the keys that fill it, ours first, each with how it is read."""
    found: dict[str, dict[str, Reader]] = {}
    for key, (setting, read) in _KEYS.items():
        found.setdefault(setting, {})[key] = read
    return found


def settings_from_extra_config(extra: Mapping[str, object]) -> Settings:
    """Check a user's ``kv_connector_extra_config`` and turn it into settings.

    Both ``host_memory`` and its per-rank form may be given, as in vLLM's own
    connector: the per-rank form wins, and a warning says so.

    Raises:
        ConfigError: an unknown key (with the nearest known one), a value of the wrong
            type or range, two keys that contradict each other, or a mode of a later
            release.
    """
    found: dict[str, tuple[str, object]] = {}
    for key, value in extra.items():
        entry = _KEYS.get(key)
        if entry is None:
            raise _unknown_key(key, value)
        setting, read = entry
        parsed = read(value, key)
        other_key, other = found.setdefault(setting, (key, parsed))
        if other != parsed:
            raise ConfigError(
                f"{other_key}={extra[other_key]!r} and {key}={value!r} set the same "
                "thing to different values; keep one of them"
            )
    _check_together(found, extra)
    values = {setting: parsed for setting, (_, parsed) in found.items()}
    return Settings(**values)  # type: ignore[arg-type]  # checked by _KEYS' readers


def _check_together(
    found: Mapping[str, tuple[str, object]], extra: Mapping[str, object]
) -> None:
    if "chunk_tokens" in found and "blocks_per_chunk" in found:
        chunk_key = found["chunk_tokens"][0]
        raise ConfigError(
            f"{chunk_key}={extra[chunk_key]!r} and blocks_per_chunk="
            f"{extra['blocks_per_chunk']!r} both set the chunk; keep one of them"
        )
    _refuse_dead_settings(found, extra)
    if "host_memory_bytes" in found and "host_memory_bytes_per_rank" in found:
        whole_key = found["host_memory_bytes"][0]
        rank_key = found["host_memory_bytes_per_rank"][0]
        logger.warning(
            "%s=%r is ignored, because %s=%r is given",
            *(whole_key, extra[whole_key], rank_key, extra[rank_key]),
        )


def _refuse_dead_settings(
    found: Mapping[str, tuple[str, object]], extra: Mapping[str, object]
) -> None:
    """Refuse pairs of which one makes the other mean nothing."""

    def given(setting: str) -> str:
        key = found[setting][0]
        return f"{key}={extra[key]!r}"

    parsed = {setting: value for setting, (_, value) in found.items()}
    least, most = parsed.get("min_load_tokens", 0), parsed.get("max_load_tokens", 0)
    if 0 < most < least:  # type: ignore[operator]  # whole numbers by their readers
        raise ConfigError(
            f"{given('max_load_tokens')} is below {given('min_load_tokens')}, so "
            "nothing would ever be loaded; raise the one or lower the other"
        )
    if "decode_checkpoint_tokens" in parsed and parsed.get("store_decoded") is False:
        raise ConfigError(
            f"{given('decode_checkpoint_tokens')} means nothing beside "
            f"{given('store_decoded')}, which stores no answers; remove one of them"
        )
    if parsed.get("spaced_checkpoint_share") and parsed.get("mode") == "lazy":
        raise ConfigError(
            f"{given('spaced_checkpoint_share')} means nothing beside {given('mode')}, "
            "which has no such checkpoints; remove one of them"
        )


def nearest_key(key: object, known: Collection[str]) -> str:
    """The known key that a wrong one is most like; case and hyphens count nothing."""
    plain = str(key).lower().replace("-", "_")
    return difflib.get_close_matches(plain, known, n=1, cutoff=0.0)[0]


def _unknown_key(key: object, value: object) -> ConfigError:
    if key in NOT_SERVED:
        return ConfigError(
            f"{key}={value!r} belongs to vLLM's own connectors and kvcellar does not "
            f"have it; remove it. known keys: {', '.join(sorted(_KEYS))}"
        )
    return ConfigError(
        f"unknown key {key!r}={value!r}; the nearest known key is "
        f"{nearest_key(key, _KEYS)!r}. "
        f"known keys: {', '.join(sorted(_KEYS))}"
    )
