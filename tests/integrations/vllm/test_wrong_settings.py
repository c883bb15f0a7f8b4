"""The connector in vLLM's hands: wrong settings end it before anything is allocated."""

import mmap
import random

import pytest

pytest.importorskip("vllm")

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from wrong_configurations import wrong_settings

from kvcellar.errors import ConfigError
from kvcellar.integrations.vllm.connector import CellarConnector
from kvcellar.testing.oracle.layouts import build

SAMPLE = random.Random(0).sample(wrong_settings(), 24)


@pytest.fixture(scope="module")
def layout():
    """An engine's configuration; its settings are changed by the tests."""
    return build("gemma-3-27b", extra_config={"host_memory": "64MiB"})


@pytest.fixture(autouse=True)
def nothing_is_mapped(monkeypatch):
    """Host memory is one anonymous mapping; nobody may ask for one here."""

    def refuse(*_, **__):
        raise AssertionError("memory was mapped before the refusal")

    monkeypatch.setattr(mmap, "mmap", refuse)


def make(layout, role, extra):
    """The half of the connector that a process of vLLM makes."""
    config = layout.vllm_config.kv_transfer_config
    config.kv_connector_extra_config = dict(extra)
    is_scheduler = role is KVConnectorRole.SCHEDULER
    cache = layout.scheduler_config if is_scheduler else layout.worker_config
    return CellarConnector(layout.vllm_config, role, cache)


@pytest.mark.parametrize("role", list(KVConnectorRole), ids=lambda role: role.name)
@pytest.mark.parametrize("wrong", SAMPLE, ids=lambda wrong: repr(wrong.content))
def test_both_halves_refuse(layout, wrong, role):
    """Key, value and remedy reach whoever starts the engine."""
    with pytest.raises(ConfigError) as caught:
        make(layout, role, wrong.content)
    assert [] == [text for text in wrong.told if text not in str(caught.value)]


@pytest.mark.parametrize("wrong", SAMPLE, ids=lambda wrong: repr(wrong.content))
def test_vllm_hears_of_it_while_it_puts_its_configuration_together(wrong):
    """It asks the class about graphs then, with the settings: weights come later."""
    with pytest.raises(ConfigError):
        CellarConnector.requires_piecewise_for_cudagraph(dict(wrong.content))
    assert not CellarConnector.requires_piecewise_for_cudagraph({"mode": "lazy"})


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (
            {"host_memory": 1},
            r"1 bytes for 1 rank\(s\) is too small.*raise host_memory",
        ),
        ({"chunk_tokens": 33}, "chunk_tokens=33 does not fit this model"),
    ],
)
def test_sizes_are_refused_before_the_cache_is_registered(layout, extra, words):
    """The worker knows the engine's own blocks, and maps nothing to find that out."""
    with pytest.raises(ConfigError, match=words):
        make(layout, KVConnectorRole.WORKER, extra)


def test_a_switch_of_the_engine_is_refused(layout, monkeypatch):
    """Prefix caching off: the option to take away is named."""
    cache = layout.vllm_config.cache_config
    monkeypatch.setattr(cache, "enable_prefix_caching", False)
    with pytest.raises(ConfigError, match="remove --no-enable-prefix-caching"):
        make(layout, KVConnectorRole.WORKER, {"host_memory": "64MiB"})
