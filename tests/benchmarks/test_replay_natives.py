"""The table of hit ratios: what it runs, and how it compares bytes."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def script():
    """The script as a module."""
    sys.path.insert(0, str(BENCHMARKS))  # it shares code with the other scripts
    try:
        path = BENCHMARKS / "replay_natives.py"
        spec = importlib.util.spec_from_file_location("benchmarks_natives", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCHMARKS))
    return module


def test_the_bytes_for_a_hit_ratio_lie_between_the_sizes_around_it(script):
    """By the logarithm of the size; the first size that comes within the tolerance."""
    sizes, curve = (16, 64, 256), [0.1, 0.3, 0.5]
    middle = script._needed(0.2 + script.TOLERANCE, sizes, curve)
    assert 32.0 == pytest.approx(middle)
    assert 16.0 == script._needed(0.1, sizes, curve)
    assert 256.0 == pytest.approx(
        script._needed(0.5 + script.TOLERANCE, sizes, curve), 1e-6
    )
    assert script._needed(0.51, sizes, curve) is None


def test_a_curve_that_is_level_needs_its_first_size(script):
    """More memory that finds nothing is not counted for or against anybody."""
    level = [0.4, 0.4, 0.4]
    assert 16.0 == script._needed(0.4, (16, 64, 256), level)


def test_blocks_are_joined_to_whole_chunks_of_the_model(script):
    """qwen3-next has chunks of 544 tokens: 17 blocks of 64, not 16."""
    agentic = script.WORKLOADS["agentic"]
    found = [script._block_tokens(n, agentic) for n in ("llama-3.1-8b", "qwen3-next")]
    assert [1024, 1088] == found
    assert script._block_tokens("qwen3-next", script.WORKLOADS["conversation"]) is None


@pytest.fixture
def folder(tmp_path):
    """A folder with a small trace of one conversation."""
    lines = [
        {
            "timestamp": 1000 * turn,
            "input_length": 512 * length,
            "output_length": 1,
            "hash_ids": list(range(length)),
        }
        for turn, length in enumerate((20, 40, 60, 80) * 2)
    ]
    path = tmp_path / "mooncake" / "conversation_trace.jsonl.gz"
    path.parent.mkdir()
    path.write_text("\n".join(map(json.dumps, lines)))
    return tmp_path


def run(folder, *args):
    """Start the script on the small trace."""
    paths = {
        "PYTHONPATH": str(BENCHMARKS.parent / "src"),
        "KVCELLAR_TRACES": str(folder),
    }
    done = subprocess.run(
        [
            sys.executable,
            str(BENCHMARKS / "replay_natives.py"),
            *("--model", "llama-3.1-8b", "--sizes-gib", "1", "8", "--device-gib", "6"),
            *args,
        ],
        env=os.environ | paths,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    return done


def test_a_row_for_every_size_with_all_that_was_asked_for(folder):
    """One line for each, with the bound that nobody exceeds."""
    done = run(folder, "--kind", "eager, LRU", "simple", "bound")
    head, small, large = (
        [word.strip() for word in line.split("|")[1:-1]]
        for line in done.stdout.splitlines()
        if line.startswith("| ")
    )
    assert "llama-3.1-8b: host GiB" == head[0]
    assert ["eager, LRU", "simple", "bound", "natives need, GiB", "ratio"] == head[1:]
    assert ["1", "8"] == [small[0], large[0]]
    for row in (small, large):
        eager, simple, bound = map(float, row[1:4])
        assert max(eager, simple) <= bound
    assert "8 requests, 0 larger than the device" in done.stdout


def test_cells_that_were_kept_are_not_run_again(folder):
    """A second run prints the same table and computes nothing."""
    args = ("--kind", "eager, LRU", "simple", "--keep", str(folder / "kept"))
    first, second = run(folder, *args), run(folder, *args)
    assert first.stdout == second.stdout
    assert 4 == len((folder / "kept").read_text().splitlines())
    assert "4 of 4" in first.stderr
    assert "of 4" not in second.stderr


@pytest.mark.parametrize("kind", ["eager, LRU", "simple"])
def test_one_side_alone_is_compared_with_nobody(folder, kind):
    """Its hit ratios, and no column beside them."""
    done = run(folder, "--kind", kind)
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert f"| llama-3.1-8b: host GiB | {kind} |" == rows[0]
    assert [2, 2, 2] == [line.count("|") - 1 for line in rows]
