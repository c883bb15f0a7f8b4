"""``kvcellar doctor`` as a command."""

import json
import shlex

import pytest
from doctor_facts import own_command
from metrics_server import serving, vllm_pages

from kvcellar.cli import main


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]):
    """Run the command; give back its exit code and what it printed."""

    def run(*arguments: str) -> tuple[int, str]:
        code = main.main(["doctor", *arguments])
        return code, capsys.readouterr().out

    return run


def test_this_machine_is_examined(doctor):
    """Without arguments: a report on stdout, its exit code by the worst finding."""
    code, text = doctor()
    assert code in (0, 1, 2)
    assert "checks are fine" in text.splitlines()[-1]


def test_json_is_one_object_with_the_same_exit_code(doctor):
    """For scripts."""
    code, text = doctor("--json", "--", "llama-3.1-8b", "--host-memory", "1GiB")
    content = json.loads(text)
    assert code == content["exit_code"]
    names = [entry["check"] for entry in content["checks"]]
    assert {"memory", "shares", "granularity"} <= set(names)


def test_a_wrong_configuration_ends_with_2(doctor):
    """Errors first, each with what to do."""
    words = shlex.split(own_command(lazy_ofload=True))
    code, text = doctor("--", *words)
    assert code == 2
    assert "settings: unknown key 'lazy_ofload'=True" in text
    assert "-> the nearest known key is 'lazy_offload'" in text


def test_what_is_told_is_told_once(doctor, capsys):
    """A setting that is ignored is a finding, and no log line beside it."""
    words = shlex.split(own_command(host_memory="8GiB", host_memory_per_rank="1GiB"))
    assert 2 == main.main(["doctor", "--", *words, "-tp", "none"])
    told = capsys.readouterr()
    assert "" == told.err
    assert 1 == told.out.count("host_memory='8GiB' is ignored")


def test_a_running_server_is_asked(doctor):
    """Its own checks apply, and its port is not held against it."""
    pages = vllm_pages("kvcellar_host_capacity_bytes 1024\n")
    with serving(pages) as url:
        _, text = doctor("--server", url, "--verbose")
    assert f"{url} serves m" in text
    assert "0 B of 1.00 KiB host memory used" in text


def test_hints_reach_the_checks(doctor):
    """Device memory and a usual prompt, where the command line does not say them."""
    hints = ("--device-memory", "40GiB", "--prompt-tokens", "2048")
    _, text = doctor(*hints, "--", "llama-3.1-8b", "--host-memory", "1GiB")
    assert "prompts of 2048 tokens, the device 160" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--prompt-tokens", "0", "--", "m"), "prompt_tokens=0"),
        (("--device-memory", "much", "--", "m"), "device_memory='much'"),
        (("--server", "ftp://x"), "server='ftp://x'"),
        (("--", "m", "--host-memory"), "--host-memory"),
    ],
)
def test_wrong_hints_are_one_sentence(arguments, words, capsys):
    """Exit code 2, as for every wrong use."""
    assert 2 == main.main(["doctor", *arguments])
    told = capsys.readouterr().err
    assert told.startswith("kvcellar: ")
    assert words in told


def test_a_servers_arguments_come_behind_the_dashes(capsys):
    """A misspelt option of the doctor is not taken for one of vLLM's."""
    with pytest.raises(SystemExit, match="2"):
        main.main(["doctor", "--sever", "http://x"])
    assert "a server's come after --" in capsys.readouterr().err
