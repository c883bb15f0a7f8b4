import dataclasses
import importlib.util
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvcellar.errors import ConfigError
from kvcellar.serve import preflight
from kvcellar.serve.address import free_port
from kvcellar.serve.command import ServeSettings
from kvcellar.serve.preflight import check_settings, machine_memory_bytes


@pytest.fixture
def good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServeSettings:
    """Settings that pass, on a machine of 16 GiB of which 8 are available."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    info = tmp_path / "meminfo"
    info.write_text("MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n")
    monkeypatch.setattr(preflight, "_MEMORY_INFO", info)
    monkeypatch.setattr(preflight, "_CGROUP_LIMITS", (tmp_path / "memory.max",))
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    return ServeSettings(str(model), 2**30, "eager", ("--port", str(free_port())))


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def with_arguments(settings: ServeSettings, *arguments: str) -> ServeSettings:
    given = settings.vllm_arguments + arguments
    return dataclasses.replace(settings, vllm_arguments=given)


def test_good_settings_pass(good: ServeSettings):
    """A start that can succeed is not refused."""
    check_settings(good)


def test_hub_names_pass(good: ServeSettings):
    """A name with one slash is the hub's, and vLLM's own matter."""
    check_settings(dataclasses.replace(good, model="google/gemma-3-270m"))


@pytest.mark.parametrize(
    "model", ["/no/such", "./no", "../no", "~/no/such", "a/b/c", ""]
)
def test_missing_folders_are_refused(good: ServeSettings, model: str):
    """A path that does not exist is named."""
    with pytest.raises(ConfigError, match=f"model='{model}' does not exist"):
        check_settings(dataclasses.replace(good, model=model))


def test_folder_without_a_model_is_refused(good: ServeSettings, tmp_path: Path):
    """A folder needs a config.json."""
    with pytest.raises(ConfigError, match=r"has no config\.json"):
        check_settings(dataclasses.replace(good, model=str(tmp_path)))


def test_file_is_refused_unless_it_is_gguf(good: ServeSettings, tmp_path: Path):
    """A model's folder is wanted, not one of its files."""
    for name in ("weights.safetensors", "weights.gguf"):
        (tmp_path / name).touch()
    check_settings(dataclasses.replace(good, model=str(tmp_path / "weights.gguf")))
    wrong = str(tmp_path / "weights.safetensors")
    with pytest.raises(ConfigError, match="is a file"):
        check_settings(dataclasses.replace(good, model=wrong))


def test_more_memory_than_the_machine_has_is_refused(good: ServeSettings):
    """Both numbers stand in the refusal."""
    greedy = dataclasses.replace(good, host_memory_bytes=16 * 2**30 + 1)
    with pytest.raises(ConfigError, match=r"16\.0 GiB\) is more than the 16\.0 GiB"):
        check_settings(greedy)


def test_more_memory_than_is_available_warns(
    good: ServeSettings, caplog: pytest.LogCaptureFixture
):
    """What the machine has but does not have free is allowed, with a warning."""
    with caplog.at_level(logging.WARNING, logger="kvcellar.serve.preflight"):
        preflight.logger.addHandler(caplog.handler)
        check_settings(dataclasses.replace(good, host_memory_bytes=9 * 2**30))
        preflight.logger.removeHandler(caplog.handler)
    assert "only 8.0 GiB are available now" in caplog.text


def test_control_group_limits_the_machine(good: ServeSettings, tmp_path: Path):
    """A container's limit counts if it is smaller; "max" is no limit."""
    limit = tmp_path / "memory.max"
    limit.write_text("max\n")
    assert machine_memory_bytes() == 16 * 2**30
    limit.write_text(f"{2**29}\n")
    assert machine_memory_bytes() == 2**29
    with pytest.raises(ConfigError, match=r"the 0\.5 GiB of this machine"):
        check_settings(good)


@pytest.mark.parametrize("num_bytes", [0, -1])
def test_no_memory_is_refused(good: ServeSettings, num_bytes: int):
    """Zero and less are refused by the connector's own rules."""
    with pytest.raises(ConfigError, match="host_memory"):
        check_settings(dataclasses.replace(good, host_memory_bytes=num_bytes))


def test_unknown_mode_is_refused(good: ServeSettings):
    """A mode is checked by the connector's own rules before vLLM starts."""
    with pytest.raises(ConfigError, match="mode='quick'"):
        check_settings(dataclasses.replace(good, mode="quick"))


@pytest.mark.parametrize(
    "argument",
    [
        "--no-enable-prefix-caching",
        "--no_enable_prefix_caching",
        "--kv-transfer-config={}",
        "--kv_offloading_size=4",
        "--model=other",
    ],
)
def test_contradicting_vllm_arguments_are_refused(good: ServeSettings, argument: str):
    """An argument that would undo or double kvcellar is named."""
    name = argument.partition("=")[0].replace("_", "-")
    with pytest.raises(ConfigError, match=f"^{name} cannot be given"):
        check_settings(with_arguments(good, argument))


def test_port_in_use_is_refused(good: ServeSettings, taken_port: int):
    """A port that something listens on is named."""
    busy = with_arguments(good, "--host", "127.0.0.1", "--port", str(taken_port))
    with pytest.raises(ConfigError, match=f"port={taken_port} is already in use"):
        check_settings(busy)


def test_missing_vllm_is_refused(good: ServeSettings, monkeypatch: pytest.MonkeyPatch):
    """Without vLLM the refusal says how to install it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match="vllm is not installed"):
        check_settings(good)
