"""Hundreds of wrong configurations: each refused, none silently, nothing mapped.

A refusal has the key, the value as it was given, and what to do about it.
"""

import mmap
import os
import random
import re

import pytest
from doctor_facts import GOOD_MACHINE, GOOD_SOFTWARE
from wrong_configurations import wrong_arguments, wrong_settings, wrong_sizes

from kvcellar.config import SETTING_KEYS, rank_bytes, settings_from_extra_config
from kvcellar.errors import CellarError, ConfigError
from kvcellar.layout.groups import with_chosen_chunk
from kvcellar.layout.host import plan_geometry
from kvcellar.layout.models import model_layout
from kvcellar.serve.address import free_port
from kvcellar.serve.command import ServeSettings
from kvcellar.serve.preflight import check_settings
from kvcellar.tiers.machine import MachineMemory
from kvcellar.tiers.memory import HostMemory

GIB = 2**30
SETTINGS = wrong_settings()
ARGUMENTS = list(wrong_arguments())
SIZED = list(wrong_sizes())
NUM_ASKED_FOR = 200
NUM_MIXED = 200

RIGHT = {
    "host_memory": "1GiB",
    "eviction_policy": "lru",
    "admission": "all",
    "min_load_tokens": 16,
    "dead_state": True,
}


REMEDIES = frozenset(
    ("give", "keep", "leave", "lower", "name", "raise", "remove", "use", "write")
)


@pytest.fixture(autouse=True)
def nothing_is_mapped(monkeypatch):
    """Host memory is one mapping, of no file or of one without a name; none is made."""

    def refuse(*_, **__):
        raise AssertionError("memory was mapped before the refusal")

    monkeypatch.setattr(mmap, "mmap", refuse)
    monkeypatch.setattr(os, "memfd_create", refuse)


def has_remedy(sentence):
    """Whether one of its later clauses says what to do, or names the right key."""
    later = re.split(r"[;:] ", sentence)[1:]
    return "the nearest known key is" in sentence or any(
        clause.split()[0] in REMEDIES for clause in later
    )


def refused(told, action, *arguments):
    """Run what must be refused; check the sentence."""
    with pytest.raises(CellarError) as caught:
        action(*arguments)
    sentence = str(caught.value)
    missing = [text for text in told if text not in sentence]
    assert [] == missing, sentence
    assert has_remedy(sentence), f"no remedy: {sentence}"
    assert not sentence.endswith("."), sentence
    assert "\n" not in sentence
    return sentence


def test_there_are_enough_and_every_key_has_some():
    """At least 200 different ones in all, and some for each key there is."""
    written = {repr(wrong.content) for wrong in (*SETTINGS, *ARGUMENTS)}
    assert len(written) == len(SETTINGS) + len(ARGUMENTS)
    assert len(written) + len(SIZED) >= NUM_ASKED_FOR
    assert SETTING_KEYS <= {key for wrong in SETTINGS for key in wrong.content}


@pytest.mark.parametrize("wrong", SETTINGS, ids=lambda wrong: repr(wrong.content))
def test_a_wrong_setting_is_refused(wrong):
    """Unknown keys, wrong types, impossible values, contradictions."""
    refused(wrong.told, settings_from_extra_config, wrong.content)


@pytest.mark.parametrize("seed", range(NUM_MIXED))
def test_one_mistake_among_right_settings_is_found(seed):
    """Wherever it stands, the refusal is about the mistake."""
    rng = random.Random(seed)
    wrong = rng.choice(SETTINGS)
    entries = [
        (key, value)
        for key, value in RIGHT.items()
        if key not in wrong.content and rng.random() < 0.7
    ]
    position = rng.randint(0, len(entries))
    entries[position:position] = wrong.content.items()
    settings_from_extra_config(RIGHT)
    refused(wrong.told, settings_from_extra_config, dict(entries))


@pytest.mark.parametrize("wrong", ARGUMENTS, ids=lambda wrong: " ".join(wrong.content))
def test_a_wrong_argument_is_refused(wrong):
    """Before vLLM is started: numbers, contradictions, addresses, sizes."""
    arguments = wrong.content
    if not any(word.startswith(("--port", "--host")) for word in arguments):
        arguments = ("--port", str(free_port()), *arguments)
    settings = ServeSettings("google/gemma-3-270m", GIB, "eager", arguments)
    refused(wrong.told, check_settings, settings, GOOD_MACHINE, GOOD_SOFTWARE)


def cut(model, extra):
    """What the connector does with its settings before it maps memory."""
    settings = settings_from_extra_config({"host_memory": "8GiB"} | extra)
    chosen = (settings.chunk_tokens, settings.blocks_per_chunk)
    layout = with_chosen_chunk(model_layout(model).layout, *chosen)
    plan_geometry(layout, rank_bytes(settings, 1))


@pytest.mark.parametrize(
    "wrong", SIZED, ids=lambda wrong: f"{wrong.model}-{wrong.extra}"
)
def test_a_size_that_does_not_fit_the_model_is_refused(wrong):
    """Chunks that are no multiple, memories without room for one cell of each size."""
    cut(wrong.model, {})
    refused(wrong.told, cut, wrong.model, wrong.extra)


@pytest.mark.parametrize("num_ranks", [1, 2, 8])
@pytest.mark.parametrize("num_gib", [65, 512, 2**20])
def test_more_than_the_machine_has_is_refused(num_ranks, num_gib):
    """All ranks of the machine together; the sum, the bound and what to do."""
    settings = settings_from_extra_config({"host_memory_per_rank": num_gib * GIB})
    geometry = plan_geometry(
        model_layout("llama-3.1-8b").layout, rank_bytes(settings, 1)
    )
    machine = MachineMemory(64 * GIB, 60 * GIB)
    wanted = num_ranks * geometry.arena_bytes
    told = (f"host memory of {wanted} bytes", "64.00 GiB", "lower host_memory")

    def take():
        HostMemory(geometry, machine_bytes=wanted, machine=machine)

    refused(told, take)


def test_memory_that_is_mapped_would_be_seen():
    """The guard of this file is no dummy: right sizes do come as far as the mapping."""
    geometry = plan_geometry(model_layout("llama-3.1-8b").layout, GIB)
    with pytest.raises(AssertionError, match="memory was mapped"):
        HostMemory(geometry, machine_bytes=GIB, machine=MachineMemory(8 * GIB, 8 * GIB))


def test_right_settings_pass():
    """The refusals above are not because everything is refused."""
    settings_from_extra_config(RIGHT)
    port = ("--port", str(free_port()))
    settings = ServeSettings("google/gemma-3-270m", GIB, "lazy", (*port, "-tp", "2"))
    check_settings(settings, GOOD_MACHINE, GOOD_SOFTWARE)
    with pytest.raises(ConfigError, match="mode"):
        check_settings(
            ServeSettings("google/gemma-3-270m", GIB, "later", port),
            GOOD_MACHINE,
            GOOD_SOFTWARE,
        )
