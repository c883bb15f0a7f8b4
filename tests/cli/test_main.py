import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import kvcellar
from kvcellar.cli import demo_command, main, serve_command
from kvcellar.config import Settings, settings_from_extra_config
from kvcellar.demo.recipes import RECIPES
from kvcellar.errors import CellarError, ConfigError


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch):
    """Let the processes that these tests start import the kvcellar under test."""
    monkeypatch.setenv("PYTHONPATH", str(Path(kvcellar.__file__).parents[1]))


def run_cli(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "kvcellar", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [["--help"], ["serve", "--help"], ["demo", "-h"]])
def test_help_imports_nothing_heavy(arguments: Sequence[str]):
    """Every help text is printed without numpy, torch, vllm or transformers."""
    script = (
        "import sys, json\n"
        "from kvcellar.cli.main import main\n"
        "try:\n"
        f"    main({list(arguments)!r})\n"
        "except SystemExit as end:\n"
        "    print(json.dumps([end.code, sorted(sys.modules)]), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    code, modules = json.loads(done.stderr)
    assert code == 0
    assert "usage: kvcellar" in done.stdout
    assert not {"numpy", "torch", "vllm", "transformers"} & set(modules)


def test_version_goes_to_stdout(capsys: pytest.CaptureFixture[str]):
    """--version prints the package's version and succeeds."""
    with pytest.raises(SystemExit, match="0"):
        main.main(["--version"])
    assert capsys.readouterr().out == f"kvcellar {kvcellar.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fly"],
        ["serve"],
        ["serve", "model"],
        ["demo", "--conversations", "many"],
        ["demo", "--tiny", "qwen4"],
        ["demo", "--mode", "quick"],
        ["serve", "model", "--host-memory", "1GiB", "--mode", "quick"],
        ["demo", "--port", "8000"],
        ["demo", "--tiny", "llama", "--model", "x"],
        ["demo", "--", "--port", "8000"],
    ],
)
def test_wrong_use_exits_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
):
    """A wrong use ends with exit code 2 and says nothing on stdout."""
    with pytest.raises(SystemExit, match="2"):
        main.main(arguments)
    assert capsys.readouterr().out == ""


def test_wrong_setting_is_one_line_without_a_traceback():
    """A setting that cannot work exits with 2 and one line on stderr."""
    done = run_cli("serve", "/no/such/model", "--host-memory", "1GiB", "--port", "1")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("kvcellar: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("raised", "exit_code"),
    [
        (ConfigError("a=1 is wrong; give 2"), 2),
        (CellarError("the server did not start"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_errors_become_exit_codes(
    raised: BaseException,
    exit_code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    """Each kind of failure has its exit code and one line that names it."""

    def fail(*_: object) -> int:
        raise raised

    monkeypatch.setattr(serve_command, "run", fail)
    assert main.main(["serve", "m", "--host-memory", "1"]) == exit_code
    expected = str(raised) or "interrupted"
    assert capsys.readouterr().err == f"kvcellar: {expected}\n"


@pytest.mark.parametrize(
    ("given", "passed_on"),
    [
        ([], ()),
        (["--port", "8001"], ("--port", "8001")),
        (["--", "--mode", "x", "--", "y"], ("--mode", "x", "--", "y")),
        (
            ["--seed", "-1", "--enforce-eager", "--"],
            ("--seed", "-1", "--enforce-eager"),
        ),
        (["--host", "::", "--", "-O0"], ("--host", "::", "-O0")),
    ],
)
def test_unknown_arguments_go_to_vllm_in_order(
    given: list[str], passed_on: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    """What serve does not know, and all after --, reaches vLLM unchanged."""
    seen: list[tuple[str, ...]] = []

    def remember(_: object, vllm_arguments: tuple[str, ...]) -> int:
        seen.append(vllm_arguments)
        return 7

    monkeypatch.setattr(serve_command, "run", remember)
    code = main.main(["serve", "m", "--host-memory", "1GiB", *given])
    assert (code, seen) == (7, [passed_on])


def test_demo_offers_exactly_the_recipes():
    """The names written into the light parser are those of the recipes."""
    assert set(demo_command.TINY_NAMES) == set(RECIPES)


@pytest.mark.parametrize(
    ("command", "given"),
    [("demo", []), ("serve", ["model", "--host-memory", "1GiB"])],
)
def test_modes_offered_are_those_of_the_settings(command: str, given: list[str]):
    """Each mode that a command offers is read by the connector; eager is usual."""
    parser = main.build_parser()
    for mode in ("eager", "lazy"):
        options = parser.parse_args([command, *given, "--mode", mode])
        assert settings_from_extra_config({"mode": options.mode}).mode == mode
    assert parser.parse_args([command, *given]).mode == Settings().mode


def test_a_negative_size_is_refused_in_one_sentence():
    """Not taken for an option: the key, the value and what to do."""
    done = run_cli("serve", "model", "--host-memory", "-3GiB")
    assert 2 == done.returncode
    assert "host_memory='-3GiB' cannot be used" in done.stderr
