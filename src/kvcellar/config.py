"""The settings a user writes into ``kv_connector_extra_config``.

One table, ``_KEYS``, names every key, the setting it fills and how its value is read.
vLLM's own connectors' names stand beside ours, so that an existing configuration keeps
its meaning. Whatever is not in the table is refused: a typo must not become a default.
"""

import difflib
import logging
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction

from kvcellar.errors import ConfigError
from kvcellar.versions import ALLOW_KEY

logger = logging.getLogger(__name__)

DEFAULT_HOST_MEMORY_BYTES = 8 * 2**30  # the default of vLLM's own connector
DEFAULT_SPACED_SHARE = 0.25
DEFAULT_LEASE_SHARE = 0.25
TENANT_NAMES = ("cache_salt", "tag")
EVICTION_POLICIES = ("lru", "lru-2", "lrfu", "s3-fifo", "lhd", "adaptive")
ADMISSIONS = ("all", "second-touch")
SHARINGS = ("auto", "on", "off")
PLACEMENTS = ("geometric", "fixed", "junctions", "turn-end", "prompt-end")

UNIT_BYTES = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_UNIT_BY_LOWER = {unit.lower(): unit for unit in UNIT_BYTES}
_NO_MACHINE_HAS_BYTES = 2**60
_BYTES_PATTERN = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)")
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


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a user can set, checked and in base units.

    Attributes:
        host_memory_bytes: host memory of the whole server, shared by all its ranks.
        host_memory_bytes_per_rank: host memory of one rank; wins over that of the
            whole server.
        mode: ``"eager"`` stores a chunk as soon as it is complete, ``"lazy"`` when
            the device is about to lose it.
        eviction_policy: who goes when room is needed; one of ``EVICTION_POLICIES``.
        placement: which boundaries get a checkpoint; one of ``PLACEMENTS``, each a set
            of rules in ``core/placements/sets.py``.
        superseded_first: whether a checkpoint that a deeper one on the same unbranched
            path has replaced goes before everything else; if not set, the order of
            eviction decides, and under LRU it does.
        admission: what host memory takes: ``"all"``, or with ``"second-touch"`` only
            what an earlier prompt had too.
        chunk_tokens: tokens per chunk, and so the distance of resume points; if not
            set, the smallest that fits the model.
        blocks_per_chunk: the same as a multiple of the smallest chunk.
        min_load_tokens: fewer tokens than this are recomputed, not loaded.
        cost_rule: whether a load that is measured to take longer than recomputing is
            given up.
        max_load_tokens: most tokens loaded for one request; no limit if not set.
        max_store_tokens: tokens of a request beyond this are not stored; no limit if
            not set.
        store_decoded: whether generated tokens are stored as well as the prompt.
        decode_checkpoint_tokens: generated tokens between two checkpoints, rounded up
            to whole chunks; if not set, 256.
        spaced_checkpoint_share: bytes of the checkpoints inside a long prefill, as a
            share of the bytes of its chunks; 0 for no such checkpoints, as in lazy
            mode.
        lease_share: most host memory, as a share, that requests may keep by a lease.
        tenant_share: most host memory, as a share, that one tenant's requests may fill;
            no bound if not set.
        tenant_by: what names the tenant of a request; one of ``TENANT_NAMES``.
        share_replicated: whether ranks of one machine that hold the same bytes keep one
            copy in host memory: ``"auto"`` where the engine declares it and the machine
            allows it, ``"on"`` also for KV heads that ranks repeat, and then a start
            where nothing can be shared is refused, ``"off"`` never.
        dead_state: whether state that no resumed layer reads is left out, on the
            models for which that is proven.
        status_socket: whether the engine answers ``kvcellar why``, ``top`` and
            ``/kvcellar/status`` on a socket of this user's.
        allow_untested_vllm: whether a vLLM outside the tested range is served.
    """

    host_memory_bytes: int = DEFAULT_HOST_MEMORY_BYTES
    host_memory_bytes_per_rank: int | None = None
    mode: str = "eager"
    eviction_policy: str = "adaptive"
    placement: str = "geometric"
    superseded_first: bool | None = None
    admission: str = "all"
    chunk_tokens: int | None = None
    blocks_per_chunk: int | None = None
    min_load_tokens: int = 0
    cost_rule: bool = True
    max_load_tokens: int | None = None
    max_store_tokens: int | None = None
    store_decoded: bool = True
    decode_checkpoint_tokens: int | None = None
    spaced_checkpoint_share: float = DEFAULT_SPACED_SHARE
    lease_share: float = DEFAULT_LEASE_SHARE
    tenant_share: float | None = None
    tenant_by: str = "cache_salt"
    share_replicated: str = "auto"
    dead_state: bool = True
    status_socket: bool = True
    allow_untested_vllm: bool = False


@dataclass(frozen=True, slots=True)
class HostBudget:
    """Host memory that a server may take.

    Attributes:
        num_bytes: of all its ranks together, or of each.
        is_per_rank: whether each rank has that much.
    """

    num_bytes: int
    is_per_rank: bool = False


def host_budget(settings: Settings) -> HostBudget:
    """What the user gave: one memory for all ranks, or one for each."""
    if settings.host_memory_bytes_per_rank is not None:
        return HostBudget(settings.host_memory_bytes_per_rank, is_per_rank=True)
    return HostBudget(settings.host_memory_bytes)


def parse_bytes(value: object, key: str) -> int:
    """Read a number of bytes: an int, digits, or digits with a unit (``"8GiB"``).

    ``GB`` is 10**9 and ``GiB`` is 2**30. Case and a space before the unit are free;
    a fraction such as ``"1.5GiB"`` is read if it is a whole number of bytes.

    Raises:
        ConfigError: anything else, with the key, the value and what to write.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        num_bytes = value
    elif isinstance(value, str):
        num_bytes = _bytes_of_text(value, key)
    else:
        raise _refusal(key, value, f"write {_BYTES_HINT}")
    if num_bytes <= 0:
        raise _refusal(key, value, "give a size above zero")
    if num_bytes >= _NO_MACHINE_HAS_BYTES:
        raise _refusal(key, value, "give a size that one machine can have")
    return num_bytes


_BYTES_HINT = 'a number of bytes such as 8589934592, or "8GiB"'


def _bytes_of_text(text: str, key: str) -> int:
    match = _BYTES_PATTERN.fullmatch(text.strip())
    if match is None:
        raise _refusal(key, text, f"write {_BYTES_HINT}")
    number, unit = match.groups()
    known = _UNIT_BY_LOWER.get(unit.lower() or "b")
    if known is None:
        raise _refusal(key, text, f"use one of the units {', '.join(UNIT_BYTES)}")
    num_bytes = Fraction(number) * UNIT_BYTES[known]
    if num_bytes.denominator != 1:
        raise _refusal(key, text, "give a whole number of bytes")
    return int(num_bytes)


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


def rank_bytes(settings: Settings, world_size: int) -> int:
    """Host memory of one of ``world_size`` ranks, in bytes."""
    if settings.host_memory_bytes_per_rank is not None:
        return settings.host_memory_bytes_per_rank
    return settings.host_memory_bytes // world_size


def describe_host_memory(
    settings: Settings, world_size: int, num_sharing: int = 1
) -> str:
    """The multiplication behind :func:`rank_bytes`, for the start-up log.

    Args:
        num_sharing: ranks that keep one copy of the same bytes.
    """
    per_rank = rank_bytes(settings, world_size)
    if num_sharing > 1:
        arena, count = per_rank * num_sharing, world_size // num_sharing
        return (
            f"{count} arena(s), each shared by {num_sharing} ranks that hold the same "
            f"bytes, x {arena} bytes ({arena / 2**30:.2f} GiB) = {count * arena} bytes "
            f"({count * arena / 2**30:.2f} GiB) of host memory"
        )
    return (
        f"{world_size} rank(s) x {per_rank} bytes ({per_rank / 2**30:.2f} GiB) = "
        f"{world_size * per_rank} bytes "
        f"({world_size * per_rank / 2**30:.2f} GiB) of host memory"
    )


def nearest_key(key: object, known: Collection[str]) -> str:
    """The known key that a wrong one is most like; case and hyphens count nothing."""
    plain = str(key).lower().replace("-", "_")
    return difflib.get_close_matches(plain, known, n=1, cutoff=0.0)[0]


def _refusal(key: str, value: object, advice: str) -> ConfigError:
    return ConfigError(f"{key}={value!r} cannot be used; {advice}")


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


def _int_from(smallest: int) -> Callable[[object, str], int]:
    def read(value: object, key: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < smallest:
            raise _refusal(key, value, f"write a whole number of at least {smallest}")
        return value

    return read


def _switch(value: object, key: str) -> bool:
    if not isinstance(value, bool):
        raise _refusal(key, value, "write true or false, without quotes")
    return value


def _share(value: object, key: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value < math.inf:  # type: ignore[operator]  # a number
        raise _refusal(key, value, "write a number that is not negative, such as 0.25")
    return float(value)  # type: ignore[arg-type]


def _fraction(value: object, key: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= 1:  # type: ignore[operator]  # a number
        raise _refusal(key, value, "write a number from 0 to 1, such as 0.25")
    return float(value)  # type: ignore[arg-type]


def _one_of(*allowed: str) -> Callable[[object, str], str]:
    def read(value: object, key: str) -> str:
        if not isinstance(value, str) or value not in allowed:
            listed = " or ".join(f'"{name}"' for name in allowed)
            raise _refusal(key, value, f"write {listed}")
        return value

    return read


def _lazy_switch(value: object, key: str) -> str:
    return "lazy" if _switch(value, key) else "eager"


def _prompt_only_switch(value: object, key: str) -> bool:
    return not _switch(value, key)


Reader = Callable[[object, str], object]

# key -> (setting, reader). Source of the twins: vLLM 0.32, the extra configuration of
# SimpleCPUOffloadConnector and OffloadingConnector.
_KEYS: dict[str, tuple[str, Reader]] = {
    "host_memory": ("host_memory_bytes", parse_bytes),
    "cpu_bytes_to_use": ("host_memory_bytes", parse_bytes),
    "host_memory_per_rank": ("host_memory_bytes_per_rank", parse_bytes),
    "cpu_bytes_to_use_per_rank": ("host_memory_bytes_per_rank", parse_bytes),
    "mode": ("mode", _one_of("eager", "lazy")),
    "lazy_offload": ("mode", _lazy_switch),
    "eviction_policy": ("eviction_policy", _one_of(*EVICTION_POLICIES)),
    "placement": ("placement", _one_of(*PLACEMENTS)),
    "superseded_first": ("superseded_first", _switch),
    "admission": ("admission", _one_of(*ADMISSIONS)),
    "chunk_tokens": ("chunk_tokens", _int_from(1)),
    "block_size": ("chunk_tokens", _int_from(1)),
    "blocks_per_chunk": ("blocks_per_chunk", _int_from(1)),
    "min_load_tokens": ("min_load_tokens", _int_from(0)),
    "cost_rule": ("cost_rule", _switch),
    "max_load_tokens": ("max_load_tokens", _int_from(0)),
    "max_store_tokens": ("max_store_tokens", _int_from(0)),
    "max_offload_tokens": ("max_store_tokens", _int_from(0)),
    "store_decoded": ("store_decoded", _switch),
    "share_replicated": ("share_replicated", _one_of(*SHARINGS)),
    "dead_state": ("dead_state", _switch),
    "status_socket": ("status_socket", _switch),
    ALLOW_KEY: ("allow_untested_vllm", _switch),
    "offload_prompt_only": ("store_decoded", _prompt_only_switch),
    "decode_checkpoint_tokens": ("decode_checkpoint_tokens", _int_from(1)),
    "spaced_checkpoint_share": ("spaced_checkpoint_share", _share),
    "lease_share": ("lease_share", _fraction),
    "tenant_share": ("tenant_share", _fraction),
    "tenant_by": ("tenant_by", _one_of(*TENANT_NAMES)),
}

SETTING_KEYS = frozenset(_KEYS)
"""Every key of ``kv_connector_extra_config`` that is read here."""


def keys_by_setting() -> dict[str, dict[str, Reader]]:
    """Per setting the keys that fill it, ours first, each with how it is read."""
    found: dict[str, dict[str, Reader]] = {}
    for key, (setting, read) in _KEYS.items():
        found.setdefault(setting, {})[key] = read
    return found
