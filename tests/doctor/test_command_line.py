"""Command lines as users write them."""

import argparse
import json
import shlex

import pytest

from kvcellar.config import SETTING_KEYS, Settings
from kvcellar.doctor.checks.serving import SHARED_NAMES
from kvcellar.doctor.command_line import read_command_line, with_config_file
from kvcellar.doctor.numbers import (
    NUMBER_OPTIONS,
    parse_number,
    read_number,
    wrong_number,
)
from kvcellar.doctor.transfer import read_transfer
from kvcellar.errors import ConfigError
from kvcellar.serve.arguments import has_option, option_parts, option_value

CONTENT = {
    "kv_connector": "CellarConnector",
    "kv_connector_module_path": "kvcellar.integrations.vllm",
    "kv_role": "kv_both",
    "kv_connector_extra_config": {"host_memory": "1GiB"},
}
JSON = json.dumps(CONTENT)


@pytest.mark.parametrize(
    "words",
    [
        "m --host-memory 1GiB -tp 2",
        "kvcellar serve m --host-memory 1GiB -tp 2",
        "serve m --host-memory=1GiB -- -tp 2",
        "kvcellar serve --host-memory 1GiB m -tp 2",
        f"vllm serve m --kv-transfer-config '{JSON}' -tp 2",
        f"m -tp=2 --kv_transfer_config='{JSON}'",
        "python -m vllm.entrypoints.openai.api_server --model m -tp 2 "
        f"--kv-transfer-config '{JSON}'",
    ],
)
def test_every_way_to_start_a_server_is_read(words):
    """The model, two ranks and 1 GiB, however they are written."""
    found = read_command_line(shlex.split(words))
    assert "m" == found.model
    assert 2 == found.tensor_parallel == found.num_ranks == found.num_local_ranks
    assert Settings(host_memory_bytes=2**30) == found.settings


def test_single_keys_make_up_the_option():
    """--kv-transfer-config.key sets one key; a number is a number, a text a text."""
    words = [
        "--kv-transfer-config.kv_connector",
        "CellarConnector",
        "--kv_transfer_config.kv_connector_extra_config.host_memory=1GiB",
        "--kv-transfer-config.kv_connector_extra_config.min_load_tokens",
        "7",
    ]
    found = read_transfer(words)
    assert Settings(host_memory_bytes=2**30, min_load_tokens=7) == found.settings
    assert has_option(words, "--kv-transfer-config")
    assert not has_option(words, "--kv-offloading-size")


@pytest.mark.parametrize("text", ["{", "[]", "3", "kv_both"])
def test_what_is_no_object_is_a_problem(text):
    """Broken JSON never ends the doctor."""
    found = read_transfer(["--kv-transfer-config", text])
    assert repr(text) in found.problem
    assert found.settings is None


def test_a_wrong_size_is_left_to_the_checks():
    """What serve would refuse is read as it stands."""
    found = read_command_line(["m", "--host-memory", "much"])
    assert "host_memory='much' cannot be used" in found.transfer.refusal
    assert found.settings is None


def test_an_option_without_its_value_is_one_sentence():
    """The command line itself cannot be read then."""
    with pytest.raises(ConfigError, match=r"cannot be read: .*--host-memory"):
        read_command_line(["m", "--host-memory"])


def test_a_config_file_comes_before_the_command_line(tmp_path):
    """Switches become options, objects JSON, and what is written out wins."""
    pytest.importorskip("yaml")
    path = tmp_path / "server.yaml"
    path.write_text(
        "tensor-parallel-size: 4\n"
        "enable-prefix-caching: false\n"
        f"kv-transfer-config: {JSON}\n"
        "allowed-origins: [a, b]\n"
        "enforce-eager: true\n"
    )
    found = read_command_line(["m", "--config", str(path), "-tp", "2"])
    assert 2 == found.tensor_parallel
    assert found.has("--no-enable-prefix-caching")
    assert found.has("--enforce-eager")
    assert ("--allowed-origins", "a", "b") == found.arguments[5:8]
    assert Settings(host_memory_bytes=2**30) == found.settings
    assert "" == found.unread_file


@pytest.mark.parametrize("content", ["[", "- a\n", None])
def test_a_config_file_that_cannot_be_read_is_named(tmp_path, content):
    """Missing, broken or no options: the path and the reason."""
    pytest.importorskip("yaml")
    path = tmp_path / "server.yaml"
    if content is not None:
        path.write_text(content)
    arguments, problem = with_config_file(["--config", str(path), "-tp", "2"])
    assert ["-tp", "2"] == arguments
    assert problem.startswith(f"config={str(path)!r}")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--tensor-parallel-size", "2"], "2"),
        (["--tensor_parallel_size=2"], "2"),
        (["--tensor-parallel", "2"], "2"),
        (["-tp", "1", "--tensor-parallel-size", "2"], "2"),
        (["--tensor-parallel-size"], None),
        (["--data-parallel-size-local", "2"], None),
    ],
)
def test_options_are_found_by_name_and_beginning(given, expected):
    """As vLLM's parser takes them; the last one wins."""
    assert expected == option_value(given, "--tensor-parallel-size", "-tp")


def test_a_longer_option_is_not_taken_for_a_shorter_one():
    """Replicas of this machine are not all replicas, nor the other way round."""
    local = ["--data-parallel-size-local", "2"]
    assert option_value(local, "--data-parallel-size") is None
    assert (
        option_value(["--data-parallel-size", "4"], "--data-parallel-size-local")
        is None
    )
    assert not has_option(["--kv-cache-dtype", "fp8"], "--kv-transfer-config")


def test_parts_of_an_option_by_key():
    """Keys behind the dot, with the value beside or behind them."""
    words = ["--a.b.c", "1", "--a.d=2", "--a", "3", "--e.f", "4"]
    assert {"b.c": "1", "d": "2"} == option_parts(words, "--a")


OPTION = {option.names[0]: option for option in NUMBER_OPTIONS}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("--max-model-len", "32768", 32768),
        ("--max-model-len", "32k", 32000),
        ("--max-model-len", "32K", 32768),
        ("--max-model-len", "25.6k", 25600),
        ("--max-model-len", "1.5K", None),
        ("--max-model-len", "0", None),
        ("--kv-cache-memory-bytes", "40G", 40 * 2**30),
        ("--tensor-parallel-size", "2k", None),
        ("--tensor-parallel-size", "-1", None),
        ("--tensor-parallel-size", "1.0", None),
        ("--prefix-cache-retention-interval", "0", 0),
    ],
)
def test_numbers_are_read_as_vllm_reads_them(name, text, expected):
    """Suffixes where vLLM has them; None for what is no number there."""
    assert expected == parse_number(text, OPTION[name])
    assert expected == read_number([name, text], name)


TEXTS = (
    *("1", "16", "0", "-1", "+4", " 4", "1_000", "1k", "1K", "2.5k", "1.5K", "1g"),
    *("3T", "auto", "None", "none", "x", "1.0", "k", ""),
)


@pytest.fixture(scope="module")
def engines_options():
    """vLLM's own options, by every name they have."""
    arg_utils = pytest.importorskip("vllm.engine.arg_utils")
    parsers = pytest.importorskip("vllm.utils.argparse_utils")
    parser = arg_utils.AsyncEngineArgs.add_cli_args(parsers.FlexibleArgumentParser())
    return {
        name: action for action in parser._actions for name in action.option_strings
    }


@pytest.mark.parametrize("option", NUMBER_OPTIONS, ids=lambda option: option.names[0])
def test_numbers_agree_with_vllms_own_reader(engines_options, option):
    """What vLLM takes is taken here with the same meaning, unless it is too small."""
    for text in TEXTS:
        try:
            theirs = engines_options[option.names[0]].type(text)
        except (argparse.ArgumentTypeError, ValueError):
            theirs = "refused"
        if isinstance(theirs, int) and theirs < option.smallest:
            # vLLM's later checks refuse it, but for a length of -1, its word for auto.
            theirs = None if text in option.words else "refused"
        expected = theirs if isinstance(theirs, int) else None
        is_wrong = wrong_number([f"{option.names[0]}={text}"], option) is not None
        assert (expected, theirs == "refused") == (parse_number(text, option), is_wrong)


def test_options_have_vllms_names(engines_options):
    """Every number option is one of vLLM's, under all names given here."""
    names = {name for option in NUMBER_OPTIONS for name in option.names}
    assert set() == names - set(engines_options)


def test_settings_are_no_options_of_vllm_but_the_one_known(engines_options):
    """No option of vLLM is refused for bearing the name of a setting of ours."""
    alike = {
        key for key in SETTING_KEYS if f"--{key.replace('_', '-')}" in engines_options
    }
    assert alike == SHARED_NAMES
