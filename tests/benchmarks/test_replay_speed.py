"""The benchmark of the replay's own speed runs and says what it played."""

import json
import os
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_a_line_for_every_size(tmp_path):
    """Requests, time, memory and the budget; how fast it was is not looked at."""
    folder = tmp_path / "mooncake"
    folder.mkdir()
    lines = [
        {
            "timestamp": 1000 * turn,
            "input_length": 512 * (turn + 1),
            "output_length": 1,
            "hash_ids": list(range(turn + 1)),
        }
        for turn in range(8)
    ]
    path = folder / "conversation_trace.jsonl.gz"
    path.write_text("\n".join(map(json.dumps, lines)))
    command = [sys.executable, str(BENCHMARKS / "replay_speed.py")]
    command += ["--model", "gpt-oss-20b", "--sizes-gib", "1", "2", "--limit", "6"]
    environment = os.environ | {"PYTHONPATH": str(BENCHMARKS.parent / "src")}
    done = subprocess.run(
        command,
        env=environment | {"KVCELLAR_TRACES": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("gpt-oss-20b")]
    assert ["1", "2"] == [row.split()[1] for row in rows]
    assert all(int(row.split()[4]) > 10 for row in rows), "MiB of a process"
    assert "requests_per_minute" in done.stdout
    assert "eager, adaptive, planner pure Python" in done.stdout
