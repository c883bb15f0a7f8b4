"""Configurations with one mistake each, made from the tables of what is right."""

import random
from dataclasses import dataclass

import pytest

from kvcellar.config import SETTING_KEYS, settings_from_extra_config
from kvcellar.errors import ConfigError

GIB = 2**30

_WRONG_SIZES = (
    *(0, -1, True, 1.5, None, [], "", "8 G iB", "-8GiB", "0MiB", "8GiBs", "1e9"),
    *("0.3B", "lots", 2**60, "4096TiB TiB", "2000000TiB"),
)
_WRONG_SWITCHES = ("true", "false", 0, 1, None, [True], "on")
_WRONG_NAMES = ("", "LRU ", "quick", 1, None, True, ["lru"])
_WRONG_COUNTS = (-1, "16", 1.5, True, None, [16], "1k")
_WRONG_SHARES = (-0.5, float("nan"), float("inf"), True, "0.25", None)
_WRONG_FRACTIONS = (*_WRONG_SHARES, 1.5)
_FOREIGN = (
    *("disk_path", "disk_capacity_bytes", "spec_name", "spec_module_path"),
    *("store_threshold", "secondary_tiers", "kv_offload_backend", "max_tracker_size"),
    *("backpressure", "canonical_layout", "use_page_cache", "disk_buffer_slots"),
)


@dataclass(frozen=True)
class Wrong:
    """One mistake.

    Attributes:
        content: the configuration: settings by key, or words of a command line.
        told: texts that the refusal must have: the key, and the value as given.
    """

    content: object
    told: tuple[str, ...]


# What a key reads, by what its refusal asks for.
_KINDS = {
    "a number of bytes": _WRONG_SIZES,
    "write true or false": _WRONG_SWITCHES,
    "write a whole number": _WRONG_COUNTS,
    "write a number that is not negative": _WRONG_SHARES,
    "write a number from 0 to 1": _WRONG_FRACTIONS,
    'write "': _WRONG_NAMES,
}


def _wrong_values_of(key):
    """Values of the wrong type or range for a key, whatever it is."""
    with pytest.raises(ConfigError) as caught:
        settings_from_extra_config({key: object()})
    found = [values for words, values in _KINDS.items() if words in str(caught.value)]
    assert 1 == len(found), f"{caught.value}: what does {key} read?"
    return found[0]


def wrong_values():
    """Every key with every value of a wrong type or range for it."""
    for key in sorted(SETTING_KEYS):
        for value in _wrong_values_of(key):
            yield Wrong({key: value}, (f"{key}={value!r}",))


def unknown_keys(seed=0):
    """Every key misspelt in several ways, and keys that only other connectors have."""
    rng = random.Random(seed)
    for key in sorted(SETTING_KEYS):
        position = rng.randrange(1, len(key) - 1)
        spellings = {
            key[:position] + key[position + 1 :],
            key[:position] + key[position + 1] + key[position] + key[position + 2 :],
            key.upper(),
            key.replace("_", "-"),
            f"{key}s",
        }
        for spelling in sorted(spellings - SETTING_KEYS):
            nearest = f"the nearest known key is {key!r}"
            yield Wrong({spelling: 1}, (f"{spelling!r}=1", nearest))
    for key in _FOREIGN:
        yield Wrong({key: "x"}, (f"{key}='x'", "remove it"))


def contradictions():
    """Pairs that are right alone."""
    pairs = (
        {"host_memory": "8GiB", "cpu_bytes_to_use": 4 * GIB},
        {"host_memory_per_rank": 5, "cpu_bytes_to_use_per_rank": "6"},
        {"mode": "eager", "lazy_offload": True},
        {"mode": "lazy", "lazy_offload": False},
        {"chunk_tokens": 64, "block_size": 128},
        {"chunk_tokens": 64, "blocks_per_chunk": 2},
        {"block_size": 64, "blocks_per_chunk": 4},
        {"max_store_tokens": 7, "max_offload_tokens": 8},
        {"store_decoded": True, "offload_prompt_only": True},
        {"store_decoded": False, "offload_prompt_only": False},
        {"min_load_tokens": 512, "max_load_tokens": 511},
        {"store_decoded": False, "decode_checkpoint_tokens": 256},
        {"offload_prompt_only": True, "decode_checkpoint_tokens": 256},
        {"mode": "lazy", "spaced_checkpoint_share": 0.25},
        {"lazy_offload": True, "spaced_checkpoint_share": 1},
    )
    for pair in pairs:
        yield Wrong(pair, tuple(f"{key}={value!r}" for key, value in pair.items()))


def wrong_settings():
    """All mistakes in the connector's settings."""
    return [*wrong_values(), *unknown_keys(), *contradictions()]


_NUMBERS = (
    *("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size"),
    *("--decode-context-parallel-size", "--prefill-context-parallel-size"),
    *("--nnodes", "--max-model-len", "--max-num-seqs", "--max-num-batched-tokens"),
    *("--block-size", "--kv-cache-memory-bytes", "--num-gpu-blocks-override"),
)


_LEFT_OPEN = (  # vLLM reads these as no number at all
    ("--max-model-len", "-1"),
    ("--kv-cache-memory-bytes", ""),
    ("--num-gpu-blocks-override", ""),
)


def _wrong_numbers():
    for option in _NUMBERS:
        for value in ("0", "-1", "two", "1.5", ""):
            if (option, value) not in _LEFT_OPEN:
                yield Wrong((f"{option}={value}",), (f"{option}={value}",))
    for short in ("-tp", "-pp", "-dp", "-n"):
        yield Wrong((short, "many"), ("=many",))


def _contradicting_options():
    for spelling in (
        "--no-enable-prefix-caching",
        "--no_enable_prefix_caching",
        "--no-enable-prefix-cachin",
    ):
        yield Wrong((spelling,), ("--no-enable-prefix-caching",))
    for name in ("--kv-transfer-config", "--kv-offloading-size", "--model"):
        for spelling in sorted({name, f"--{name[2:].replace('-', '_')}"}):
            yield Wrong((f"{spelling}=1",), (name,))
    yield Wrong(("--kv-transfer-config.kv_role", "x"), ("--kv-transfer-config",))
    for key in sorted(SETTING_KEYS):
        if key not in ("block_size", "host_memory", "mode"):
            option = f"--{key.replace('_', '-')}"
            yield Wrong((option, "1"), (f"{option}=1", f'"{key}"'))


def wrong_arguments():
    """All mistakes in the words behind ``kvcellar serve MODEL --host-memory 1GiB``."""
    yield from _wrong_numbers()
    yield from _contradicting_options()
    for port in ("0", "65536", "http", "-1", "80.5"):
        yield Wrong(("--port", port), (f"port={port!r}",))
    yield Wrong(("--host", "no.such.host.invalid"), ("no.such.host.invalid",))
    yield Wrong(("-dcp", "2"), ("--decode-context-parallel-size=2",))
    yield Wrong(("-dp", "2000"), ("1.95 TiB", "2000 rank(s)", "lower host_memory"))


@dataclass(frozen=True)
class WrongSize:
    """A size that no machine, or no cell, has room for.

    Attributes:
        model: a name of the catalogue.
        extra: the connector's settings.
        told: as of ``Wrong``.
    """

    model: str
    extra: dict
    told: tuple[str, ...]


def wrong_sizes():
    """Settings that are right by themselves and impossible for a model."""
    units = {"llama-3.1-8b": 16, "deepseek-v4-flash": 256, "gpt-oss-20b": 16}
    for model, unit in units.items():
        for chunk in (1, unit - 1, unit + 1, 3 * unit + 5):
            told = (f"chunk_tokens={chunk} ", f"multiple of {unit}")
            yield WrongSize(model, {"chunk_tokens": chunk}, told)
        for num_bytes in (1, 1000, 10_000):
            told = (f"{num_bytes} bytes per rank", "raise host_memory")
            yield WrongSize(model, {"host_memory": num_bytes}, told)
        told = ("too small", "raise host_memory")
        yield WrongSize(model, {"blocks_per_chunk": 10**9}, told)
