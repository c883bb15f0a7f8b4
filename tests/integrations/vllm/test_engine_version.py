"""An engine that nothing was tested with is refused at the start, in one sentence."""

import logging
import sys

import pytest

pytest.importorskip("vllm")

import vllm
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole

import kvcellar.integrations.vllm as ours
from kvcellar.errors import IncompatibleError
from kvcellar.integrations.vllm.connector import CellarConnector
from kvcellar.testing.oracle.layouts import build


@pytest.fixture
def set_version(monkeypatch):
    """Let the engine pretend to be another version."""
    return lambda version: monkeypatch.setattr(vllm, "__version__", version)


@pytest.mark.parametrize("version", ["0.31.0", "0.34.0"])
def test_a_start_is_refused(set_version, version):
    """While vLLM puts its configuration together: nothing is loaded yet."""
    set_version(version)
    with pytest.raises(IncompatibleError, match=f"vLLM is version {version}, and"):
        CellarConnector.requires_piecewise_for_cudagraph({"mode": "lazy"})


@pytest.mark.parametrize("role", list(KVConnectorRole), ids=lambda role: role.name)
def test_either_half_refuses_as_well(set_version, role):
    """For an engine that does not ask the class about graphs."""
    layout = build("gemma-3-27b", extra_config={"host_memory": "64MiB"})
    set_version("0.34.0")
    with pytest.raises(IncompatibleError, match=r"0\.34\.0"):
        CellarConnector(layout.vllm_config, role, layout.worker_config)


def test_it_starts_with_a_warning_if_the_user_asks_for_it(set_version):
    """The warning names version and range."""
    texts = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: texts.append(record.getMessage())
    logger = logging.getLogger("vllm.kvcellar")
    set_version("0.35.1")
    logger.addHandler(handler)
    try:
        extra = {"allow_untested_vllm": True}
        assert not CellarConnector.requires_piecewise_for_cudagraph(extra)
    finally:
        logger.removeHandler(handler)
    (text,) = texts
    assert "0.35.1" in text


def test_an_engine_without_what_we_import_is_told_by_version(set_version, monkeypatch):
    """Instead of a traceback that names one of vLLM's modules."""
    module = "kvcellar.integrations.vllm.connector"
    monkeypatch.setitem(sys.modules, module, None)
    set_version("0.20.0")
    with pytest.raises(IncompatibleError, match=r"version 0\.20\.0") as caught:
        _ = ours.CellarConnector
    assert isinstance(caught.value.__cause__, ImportError)


def test_a_broken_installation_of_a_tested_version_is_not_blamed(monkeypatch):
    """What is missing is told as it is."""
    module = "kvcellar.integrations.vllm.connector"
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError):
        _ = ours.CellarConnector
