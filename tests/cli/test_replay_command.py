"""``kvcellar replay`` from its options to its outputs and exit codes."""

import json
import subprocess
import sys

import pytest
from replay_grids import trace_file

from kvcellar.cli import main, replay_options
from kvcellar.replay.presets import GPUS
from kvcellar.replay.presets_choice import COST_NAMES

GRID = ["--model", "gemma-3-270m", "--device-memory", "60MiB"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A small trace, written once."""
    return trace_file(tmp_path_factory.mktemp("trace"))


def test_the_light_parser_offers_what_the_heavy_modules_read():
    """Speeds and GPUs are named twice, so that help starts fast."""
    assert COST_NAMES == tuple(replay_options.COST_OPTIONS)
    assert tuple(sorted(GPUS)) == replay_options.GPU_NAMES


def test_help_imports_nothing_heavy():
    """Neither numpy nor any module of the replay."""
    script = (
        "import sys\n"
        "from kvcellar.cli.main import main\n"
        "try:\n"
        "    main(['replay', '--help'])\n"
        "finally:\n"
        "    heavy = {'numpy', 'torch', 'vllm', 'kvcellar.replay.grid'}\n"
        "    print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "--host-memory SIZE,..." in done.stdout
    assert "[]\n" == done.stderr


def test_json_is_one_object_and_nothing_is_written(path, capsys, tmp_path, monkeypatch):
    """Progress goes to stderr; without --output the folder stays empty."""
    monkeypatch.chdir(tmp_path)
    arguments = ["replay", path, *GRID, "--host-memory", "0,60MiB", "--json"]
    assert 0 == main.main([*arguments, "--processes", "1"])
    captured = capsys.readouterr()
    content = json.loads(captured.out)
    assert [0, 60 * 2**20] == [
        row["host_memory_bytes"] for row in content["configurations"]
    ]
    assert "replaying 150 requests in 2 configurations" in captured.err
    assert [] == list(tmp_path.iterdir())


def test_the_table_and_three_files(path, capsys, tmp_path):
    """The same twice, byte for byte, whatever the number of processes."""
    arguments = ["replay", path, *GRID, "--host-memory", "0,60MiB"]
    arguments += ["--mode", "eager,lazy", "--jitter", "0.5", "--speed", "2"]
    arguments += ["--prefill-tokens-per-second", "3000", "--limit", "80"]
    outputs = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        more = ["--output", str(folder), "--processes", str(number)]
        assert 0 == main.main([*arguments, *more])
        files = {file.name: file.read_bytes() for file in folder.iterdir()}
        outputs.append((capsys.readouterr().out, files))
    assert outputs[0] == outputs[1]
    text, files = outputs[0]
    assert {"replay.csv", "replay.html", "replay.json"} == set(files)
    assert "80 requests" in text
    assert 2000 != json.loads(files["replay.json"])["costs"]["step_seconds"]
    costs = json.loads(files["replay.json"])["costs"]
    assert (3000.0, "option") == (
        costs["prefill_tokens_per_second"],
        costs["sources"]["prefill_tokens_per_second"],
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["--system", "ours"], "system='ours'"),
        (["--policy", "fifth"], "eviction_policy='fifth'"),
        (["--mode", "quick"], "mode='quick'"),
        (["--placement", "fixed,here"], "placement='here'"),
        (["--mode", "lazy", "--device-memory", "0"], "mode=lazy"),
        (["--host-memory", "much"], "host_memory='much'"),
        (["--host-memory", "-3GiB"], "host_memory='-3GiB'"),
        (["--model", "none"], "'none' is neither"),
        (["--speed", "0"], "speed=0.0"),
        (["--jitter", "-1"], "jitter_seconds"),
        (["--format", "runes"], "format 'runes'"),
        (["--no-time", "--gpu", "h100"], "--no-time"),
        (["--processes", "0"], "processes=0"),
        (["--output", "/dev/null/x"], "output='/dev/null/x'"),
    ],
)
def test_wrong_settings_are_one_sentence_and_exit_with_2(changes, words, path, capsys):
    """On stderr, with the key and the value; nothing on stdout."""
    arguments = ["replay", path, *GRID, "--host-memory", "60MiB", *changes]
    assert 2 == main.main(arguments)
    captured = capsys.readouterr()
    assert "" == captured.out
    assert words in captured.err
    assert 1 == captured.err.count("\n")


def test_an_unreadable_trace_exits_with_1(tmp_path, capsys):
    """And is named; with --skip-bad the rest is played."""
    arguments = [*GRID, "--host-memory", "0", "--processes", "1"]
    assert 1 == main.main(["replay", str(tmp_path / "none"), *arguments])
    assert "none: cannot be opened" in capsys.readouterr().err
    good = trace_file(tmp_path, num_requests=10)
    with open(good, "a", encoding="utf-8") as file:
        file.write("no record\n")
    assert 1 == main.main(["replay", good, *arguments])
    assert "line 12" in capsys.readouterr().err
    assert 0 == main.main(["replay", good, *arguments, "--skip-bad"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "1 record of the trace could not be read" in printed
    assert "trace read as kvcellar-events, 10 requests with " in printed
    assert "prompt tokens, 1 record skipped " in printed


@pytest.mark.parametrize("missing", ["--model", "--device-memory", "--host-memory"])
def test_what_is_needed_is_asked_for(missing, path, capsys):
    """By argparse, with exit code 2."""
    given = {"--model": "gemma-3-270m", "--device-memory": "0", "--host-memory": "0"}
    del given[missing]
    words = [word for pair in given.items() for word in pair]
    with pytest.raises(SystemExit, match="2"):
        main.main(["replay", path, *words])
    assert missing in capsys.readouterr().err
