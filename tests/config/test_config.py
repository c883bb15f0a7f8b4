"""Settings: what is read, what is refused, and what the refusal says."""

import logging
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kvcellar.config import (
    DEFAULT_HOST_MEMORY_BYTES,
    Settings,
    describe_host_memory,
    parse_bytes,
    rank_bytes,
    settings_from_extra_config,
)
from kvcellar.errors import ConfigError

GIB = 2**30
VALID: dict[str, object] = {
    "host_memory": "8GiB",
    "cpu_bytes_to_use": 8 * GIB,
    "host_memory_per_rank": "2GiB",
    "cpu_bytes_to_use_per_rank": 2 * GIB,
    "mode": "eager",
    "lazy_offload": False,
    "eviction_policy": "lru",
    "admission": "second-touch",
    "placement": "prompt-end",
    "superseded_first": False,
    "chunk_tokens": 512,
    "block_size": 512,
    "blocks_per_chunk": 2,
    "min_load_tokens": 64,
    "cost_rule": False,
    "max_load_tokens": 4096,
    "max_store_tokens": 8192,
    "max_offload_tokens": 8192,
    "store_decoded": False,
    "offload_prompt_only": True,
    "decode_checkpoint_tokens": 1024,
    "spaced_checkpoint_share": 0.5,
    "lease_share": 0.5,
    "tenant_share": 0.5,
    "tenant_by": "tag",
}
BYTE_KEYS = [key for key in VALID if "memory" in key or "bytes" in key]
SWITCH_KEYS = [
    "cost_rule",
    "lazy_offload",
    "store_decoded",
    "superseded_first",
    "offload_prompt_only",
]
INT_KEYS = [
    key
    for key, value in VALID.items()
    if key not in BYTE_KEYS + SWITCH_KEYS and isinstance(value, int)
]
NAME_KEYS = ["mode", "tenant_by", "eviction_policy", "placement", "admission"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1),
        (8 * GIB, 8 * GIB),
        ("8589934592", 8 * GIB),
        ("8GiB", 8 * GIB),
        (" 8 gib ", 8 * GIB),
        ("8 GB", 8 * 10**9),
        ("512MiB", 512 * 2**20),
        ("1.5GiB", 3 * GIB // 2),
        ("7kb", 7000),
        ("1TiB", 2**40),
        ("12B", 12),
    ],
)
def test_sizes_are_read(value: object, expected: int) -> None:
    """Ints, digits and digits with a decimal or binary unit are bytes."""
    assert expected == parse_bytes(value, "host_memory")


@pytest.mark.parametrize(
    "value",
    [
        *(0, -1, True, 1.5, 8e9, None, b"8", "", "GiB", "0", "0GiB", "-8GiB", "1e9"),
        *("nan", "inf", "8 G iB", "0.3B", "1.5", ".5GiB", "8GiB 2", "١GiB", "8,5GiB"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(value: object) -> None:
    """The refusal names the key and the value."""
    with pytest.raises(ConfigError) as refusal:
        parse_bytes(value, "host_memory")
    assert str(refusal.value).startswith(f"host_memory={value!r} cannot be used; ")


def test_unknown_unit_lists_the_units() -> None:
    """Gigabits and bare letters are not guessed at."""
    for text in ("8G", "8Gb/s", "8Gbit", "8gigs"):
        with pytest.raises(ConfigError, match="cannot be used") as refusal:
            parse_bytes(text, "host_memory")
        if "/" not in text:
            assert "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB" in str(refusal.value)


@given(
    st.integers(1, 2**29), st.sampled_from(["", "B", "kB", "MB", "GB", "MiB", "GiB"])
)
def test_unit_multiplies(number: int, unit: str) -> None:
    """A number with a unit is the number times the unit."""
    factor = parse_bytes(f"1{unit}", "k")
    assert number * factor == parse_bytes(f"{number}{unit}", "k")


def test_defaults() -> None:
    """An empty configuration is 8 GiB for the whole server, stored eagerly."""
    assert Settings() == settings_from_extra_config({})
    assert 8 * GIB == DEFAULT_HOST_MEMORY_BYTES == Settings().host_memory_bytes


def test_own_keys_fill_their_settings() -> None:
    """Every key of ours arrives in its setting."""
    extra = {
        "host_memory": "4GiB",
        "mode": "eager",
        "placement": "fixed",
        "superseded_first": False,
        "chunk_tokens": 512,
        "min_load_tokens": 64,
        "cost_rule": False,
        "max_load_tokens": 0,
        "max_store_tokens": 100,
        "store_decoded": False,
        "spaced_checkpoint_share": 1,
        "lease_share": 1,
        "tenant_share": 0.125,
        "tenant_by": "tag",
    }
    expected = Settings(
        host_memory_bytes=4 * GIB,
        placement="fixed",
        superseded_first=False,
        chunk_tokens=512,
        min_load_tokens=64,
        cost_rule=False,
        max_load_tokens=0,
        max_store_tokens=100,
        store_decoded=False,
        spaced_checkpoint_share=1.0,
        lease_share=1.0,
        tenant_share=0.125,
        tenant_by="tag",
    )
    assert expected == settings_from_extra_config(extra)
    spacing = settings_from_extra_config({"decode_checkpoint_tokens": 1024})
    assert Settings(decode_checkpoint_tokens=1024) == spacing


def test_vllm_names_keep_their_meaning() -> None:
    """A configuration written for vLLM's own connectors reads as it did there."""
    extra = {
        "cpu_bytes_to_use": 16 * GIB,
        "lazy_offload": False,
        "blocks_per_chunk": 4,
        "eviction_policy": "lru",
        "max_load_tokens": 2000,
        "max_offload_tokens": 3000,
        "offload_prompt_only": True,
    }
    expected = Settings(
        host_memory_bytes=16 * GIB,
        blocks_per_chunk=4,
        eviction_policy="lru",
        max_load_tokens=2000,
        max_store_tokens=3000,
        store_decoded=False,
    )
    assert expected == settings_from_extra_config(extra)
    assert 48 == settings_from_extra_config({"block_size": 48}).chunk_tokens


@pytest.mark.parametrize(
    ("own", "value", "twin", "same", "different"),
    [
        ("host_memory", "8GiB", "cpu_bytes_to_use", 8 * GIB, 4 * GIB),
        ("host_memory_per_rank", 5, "cpu_bytes_to_use_per_rank", "5", "6"),
        ("mode", "eager", "lazy_offload", False, True),
        ("chunk_tokens", 64, "block_size", 64, 128),
        ("max_store_tokens", 7, "max_offload_tokens", 7, 8),
        ("store_decoded", True, "offload_prompt_only", False, True),
    ],
)
def test_twins_must_agree(
    own: str, value: object, twin: str, same: object, different: object
) -> None:
    """Our key and vLLM's twin may both stand, if they say the same thing."""
    both = settings_from_extra_config({own: value, twin: same})
    assert settings_from_extra_config({own: value}) == both
    with pytest.raises(ConfigError, match=f"{own}=.* and {twin}=.*keep one of them"):
        settings_from_extra_config({own: value, twin: different})


@pytest.mark.parametrize("extra", [{"mode": "lazy"}, {"lazy_offload": True}])
def test_lazy_is_a_mode(extra: dict[str, object]) -> None:
    """Under our name and under vLLM's."""
    assert "lazy" == settings_from_extra_config(extra).mode


def test_two_ways_to_set_the_chunk_are_refused() -> None:
    """Tokens and blocks per chunk cannot be compared without the model."""
    with pytest.raises(ConfigError, match="block_size=64 and blocks_per_chunk=2"):
        settings_from_extra_config({"block_size": 64, "blocks_per_chunk": 2})


def test_per_rank_memory_wins_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """As in vLLM, the per-rank size overrides the server's; the log says so."""
    extra = {"cpu_bytes_to_use": 8 * GIB, "cpu_bytes_to_use_per_rank": GIB}
    with caplog.at_level(logging.WARNING):
        assert GIB == rank_bytes(settings_from_extra_config(extra), 4)
    assert "cpu_bytes_to_use=8589934592 is ignored" in caplog.text


def test_server_memory_is_split_over_ranks() -> None:
    """The size of the whole server, divided, never multiplied."""
    settings = Settings(host_memory_bytes=8 * GIB)
    assert [8 * GIB, 4 * GIB, GIB] == [rank_bytes(settings, n) for n in (1, 2, 8)]


def test_log_line_spells_out_the_multiplication() -> None:
    """The start-up line shows ranks, bytes per rank and the product."""
    expected = (
        "4 rank(s) x 2147483648 bytes (2.00 GiB) = 8589934592 bytes (8.00 GiB) "
        "of host memory"
    )
    assert expected == describe_host_memory(Settings(), 4)


@pytest.mark.parametrize(
    ("typo", "nearest"),
    [
        ("host_memry", "host_memory"),
        ("cpu_byte_to_use", "cpu_bytes_to_use"),
        ("lazy-offload", "lazy_offload"),
        ("min_tokens_load", "min_load_tokens"),
        ("chunk_token", "chunk_tokens"),
    ],
)
def test_unknown_key_names_the_nearest(typo: str, nearest: str) -> None:
    """A typo is refused and the intended key suggested."""
    with pytest.raises(ConfigError, match=f"'{typo}'=1; the nearest .*'{nearest}'"):
        settings_from_extra_config({typo: 1})


def test_vllm_key_without_a_meaning_here_is_refused() -> None:
    """Keys of vLLM's connectors that we cannot honour are refused as such."""
    with pytest.raises(ConfigError, match="disk_path='/x' belongs to vLLM's own"):
        settings_from_extra_config({"disk_path": "/x"})


def test_eviction_policy_lists_what_there_is() -> None:
    """Only LRU exists in this release."""
    with pytest.raises(ConfigError, match=r"eviction_policy='arc'.*\"adaptive\""):
        settings_from_extra_config({"eviction_policy": "arc"})


@pytest.mark.parametrize("key", VALID)
def test_every_key_is_accepted_alone(key: str) -> None:
    """The table of keys and this file's list of valid values agree."""
    assert isinstance(settings_from_extra_config({key: VALID[key]}), Settings)


@pytest.mark.parametrize("key", SWITCH_KEYS)
@pytest.mark.parametrize("value", ["false", "true", 0, 1, None, 0.0])
def test_switches_take_no_text(key: str, value: object) -> None:
    """The text "false" is not a switch: in Python it would read as true."""
    with pytest.raises(ConfigError, match="write true or false, without quotes"):
        settings_from_extra_config({key: value})


JUNK = st.one_of(
    st.none(),
    st.floats(),
    st.text(max_size=8).filter(lambda t: not t.strip().isascii() or not t.strip()),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=1),
    st.integers(max_value=-1),
)


def _is_a_share(key: str, value: object) -> bool:
    most = {
        "spaced_checkpoint_share": math.inf,
        "lease_share": 1.0,
        "tenant_share": 1.0,
    }.get(key, -1.0)
    return isinstance(value, float) and 0 <= value <= most and value < math.inf


@given(st.sampled_from(sorted(VALID)), JUNK)
def test_wrong_values_are_refused_with_key_and_value(key: str, value: object) -> None:
    """Whatever nonsense a key is given, the refusal names the key and the value."""
    assume(not _is_a_share(key, value))
    with pytest.raises(ConfigError) as refusal:
        settings_from_extra_config({key: value})
    assert f"{key}={value!r}" in str(refusal.value)


@pytest.mark.parametrize("value", [-0.5, float("nan"), float("inf"), True, "0.5"])
def test_a_share_is_a_number_that_is_not_negative(value: object) -> None:
    """Above 1 is allowed: checkpoints may be larger than the chunks below them."""
    with pytest.raises(ConfigError, match=r"write a number that is not negative"):
        settings_from_extra_config({"spaced_checkpoint_share": value})
    assert (
        3.0
        == settings_from_extra_config(
            {"spaced_checkpoint_share": 3}
        ).spaced_checkpoint_share
    )


@pytest.mark.parametrize("value", [-0.1, 1.1, 2, float("nan"), False, "0.5", None])
def test_a_share_of_host_memory_is_at_most_one(value: object) -> None:
    """Leases cannot be given more than there is."""
    with pytest.raises(ConfigError, match=r"write a number from 0 to 1, such as 0.25"):
        settings_from_extra_config({"lease_share": value})
    assert 0.0 == settings_from_extra_config({"lease_share": 0}).lease_share


@given(st.sampled_from(INT_KEYS), st.booleans() | st.integers().map(str))
def test_counts_take_neither_switches_nor_text(key: str, value: object) -> None:
    """A count written as text or switch is a mistake, not a number."""
    with pytest.raises(ConfigError, match="write a whole number of at least"):
        settings_from_extra_config({key: value})


@given(st.text(max_size=20).filter(lambda key: key not in VALID), st.integers())
def test_any_unknown_key_is_refused(key: str, value: int) -> None:
    """No unknown key passes, and every refusal lists the known ones."""
    with pytest.raises(ConfigError, match="known keys: admission, allow_untested_vllm"):
        settings_from_extra_config({key: value})
