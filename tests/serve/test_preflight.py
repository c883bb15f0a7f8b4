"""``kvcellar serve`` refuses by the doctor's checks, before it starts anything."""

import dataclasses
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from doctor_facts import GIB, GOOD_SOFTWARE, machine, software

from kvcellar.doctor.software import Software
from kvcellar.errors import ConfigError
from kvcellar.serve import preflight
from kvcellar.serve.address import free_port
from kvcellar.serve.command import ServeSettings
from kvcellar.serve.model import check_model
from kvcellar.serve.preflight import check_settings
from kvcellar.tiers.machine import MachineMemory

SMALL = machine(memory=MachineMemory(16 * GIB, 8 * GIB))


@pytest.fixture
def good(tmp_path: Path) -> ServeSettings:
    """Settings that pass on a machine of 16 GiB of which 8 are available."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    return ServeSettings(str(model), 2**30, "eager", ("--port", str(free_port())))


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def check(settings: ServeSettings, on=SMALL, using=GOOD_SOFTWARE) -> None:
    check_settings(settings, on, using)


def with_arguments(settings: ServeSettings, *arguments: str) -> ServeSettings:
    given = settings.vllm_arguments + arguments
    return dataclasses.replace(settings, vllm_arguments=given)


def test_good_settings_pass(good: ServeSettings):
    """A start that can succeed is not refused."""
    check(good)


def test_this_machine_is_read_where_none_is_given(good: ServeSettings):
    """The real facts of this machine let a small start pass, if vLLM is installed."""
    pytest.importorskip("vllm")
    check_settings(dataclasses.replace(good, host_memory_bytes=2**20))


def test_hub_names_pass(good: ServeSettings):
    """A name with one slash is the hub's, and vLLM's own matter."""
    check(dataclasses.replace(good, model="google/gemma-3-270m"))


@pytest.mark.parametrize(
    "model", ["/no/such", "./no", "../no", "~/no/such", "a/b/c", ""]
)
def test_missing_folders_are_refused(good: ServeSettings, model: str):
    """A path that does not exist is named."""
    with pytest.raises(ConfigError, match=f"model='{model}' does not exist"):
        check(dataclasses.replace(good, model=model))
    with pytest.raises(ConfigError, match=f"model='{model}' does not exist; check"):
        check_model(model)


def test_folder_without_a_model_is_refused(good: ServeSettings, tmp_path: Path):
    """A folder needs a config.json."""
    with pytest.raises(ConfigError, match=r"has no config\.json"):
        check(dataclasses.replace(good, model=str(tmp_path)))


def test_file_is_refused_unless_it_is_gguf(good: ServeSettings, tmp_path: Path):
    """A model's folder is wanted, not one of its files."""
    for name in ("weights.safetensors", "weights.gguf"):
        (tmp_path / name).touch()
    check(dataclasses.replace(good, model=str(tmp_path / "weights.gguf")))
    wrong = str(tmp_path / "weights.safetensors")
    with pytest.raises(ConfigError, match="is a file"):
        check(dataclasses.replace(good, model=wrong))


def test_more_memory_than_the_machine_has_is_refused(good: ServeSettings):
    """Both numbers stand in the refusal."""
    greedy = dataclasses.replace(good, host_memory_bytes=17 * GIB)
    with pytest.raises(ConfigError, match=r"17\.00 GiB .* machine, 16\.00 GiB"):
        check(greedy)


def test_replicas_count_together(good: ServeSettings):
    """Each replica maps host memory of its own, here three times 6 GiB."""
    each = dataclasses.replace(good, host_memory_bytes=6 * GIB)
    check(each)
    with pytest.raises(ConfigError, match=r"18\.00 GiB on this machine is more"):
        check(with_arguments(each, "-dp", "3"))


def test_more_memory_than_is_available_warns(
    good: ServeSettings, caplog: pytest.LogCaptureFixture
):
    """What the machine has but does not have free is allowed, with a warning."""
    with caplog.at_level(logging.WARNING, logger="kvcellar.serve.preflight"):
        preflight.logger.addHandler(caplog.handler)
        check(dataclasses.replace(good, host_memory_bytes=9 * GIB))
        preflight.logger.removeHandler(caplog.handler)
    assert "what is available now, 8.00 GiB" in caplog.text


def test_control_group_limits_the_machine(good: ServeSettings):
    """A container's limit counts if it is smaller."""
    memory = MachineMemory(16 * GIB, 8 * GIB, GIB // 2, GIB // 4)
    with pytest.raises(ConfigError, match=r"control group, 512\.00 MiB"):
        check(good, machine(memory=memory))


@pytest.mark.parametrize("num_bytes", [0, -1])
def test_no_memory_is_refused(good: ServeSettings, num_bytes: int):
    """Zero and less are refused by the connector's own rules."""
    with pytest.raises(ConfigError, match="host_memory"):
        check(dataclasses.replace(good, host_memory_bytes=num_bytes))


def test_unknown_mode_is_refused(good: ServeSettings):
    """A mode is checked by the connector's own rules before vLLM starts."""
    with pytest.raises(ConfigError, match="mode='quick'"):
        check(dataclasses.replace(good, mode="quick"))


@pytest.mark.parametrize(
    "argument",
    [
        "--no-enable-prefix-caching",
        "--no_enable_prefix_caching",
        "--no-enable-prefix-cach",
        "--kv-transfer-config={}",
        "--kv-transfer-config.kv_role=kv_both",
        "--kv_offloading_size=4",
        "--model=other",
    ],
)
def test_contradicting_vllm_arguments_are_refused(good: ServeSettings, argument: str):
    """An argument that would undo or double kvcellar is named, however it is spelt."""
    with pytest.raises(ConfigError, match=r"^--[a-z-]+ cannot be given: .*; leave"):
        check(with_arguments(good, argument))


def test_arguments_of_a_config_file_are_refused_too(
    good: ServeSettings, tmp_path: Path
):
    """What vLLM would read from the file counts as if it were written out."""
    pytest.importorskip("yaml")
    path = tmp_path / "server.yaml"
    path.write_text("enable-prefix-caching: false\n")
    with pytest.raises(ConfigError, match=r"^--no-enable-prefix-caching cannot"):
        check(with_arguments(good, "--config", str(path)))


def test_without_host_memory_only_the_start_is_checked(good: ServeSettings):
    """A start for comparison, without kvcellar, may turn prefix caching off."""
    bare = dataclasses.replace(good, host_memory_bytes=None)
    check(with_arguments(bare, "--no-enable-prefix-caching"))
    with pytest.raises(ConfigError, match="--model cannot be given"):
        check(with_arguments(bare, "--model", "other"))


def test_port_in_use_is_refused(good: ServeSettings, taken_port: int):
    """A port that something listens on is named."""
    busy = with_arguments(good, "--host", "127.0.0.1", "--port", str(taken_port))
    with pytest.raises(ConfigError, match=f"port={taken_port} is already in use"):
        check(busy)


def test_missing_vllm_is_refused(good: ServeSettings):
    """Without vLLM the refusal says how to install it."""
    with pytest.raises(ConfigError, match="vllm is not installed"):
        check(good, using=Software("3.11.7"))


def test_expandable_segments_are_refused(good: ServeSettings):
    """vLLM would refuse them a minute later."""
    using = software({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
    with pytest.raises(ConfigError, match="PYTORCH_CUDA_ALLOC_CONF"):
        check(good, using=using)
