"""What a user can set: settings, sizes, and the keys they are written with."""

from kvcellar.config.extra_config import (
    NOT_SERVED,
    SETTING_KEYS,
    keys_by_setting,
    nearest_key,
    settings_from_extra_config,
)
from kvcellar.config.readers import Reader
from kvcellar.config.settings import (
    ADMISSIONS,
    DEFAULT_HOST_MEMORY_BYTES,
    DEFAULT_SPACED_SHARE,
    EVICTION_POLICIES,
    PLACEMENTS,
    SELECTIVE_POLICIES,
    HostBudget,
    Settings,
    describe_host_memory,
    host_budget,
    rank_bytes,
)
from kvcellar.config.sizes import UNIT_BYTES, parse_bytes

__all__ = [
    "ADMISSIONS",
    "DEFAULT_HOST_MEMORY_BYTES",
    "DEFAULT_SPACED_SHARE",
    "EVICTION_POLICIES",
    "NOT_SERVED",
    "PLACEMENTS",
    "SELECTIVE_POLICIES",
    "SETTING_KEYS",
    "UNIT_BYTES",
    "HostBudget",
    "Reader",
    "Settings",
    "describe_host_memory",
    "host_budget",
    "keys_by_setting",
    "nearest_key",
    "parse_bytes",
    "rank_bytes",
    "settings_from_extra_config",
]
