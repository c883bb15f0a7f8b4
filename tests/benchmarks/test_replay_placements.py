"""The comparison of placements: one line per set of rules, and the bound above all."""

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from replay_grids import conversations

from kvcellar.config import PLACEMENTS

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "replay_placements.py"


def mooncake_file(folder: Path) -> None:
    """A small trace where the script looks for the conversation trace."""
    trace = conversations(80, block_tokens=512)
    lines = [
        json.dumps(
            {
                "timestamp": round(request.arrival_seconds * 1000),
                "input_length": len(request.blocks) * 512,
                "output_length": request.num_output_tokens,
                "hash_ids": list(request.blocks),
            }
        )
        for request in trace.requests
    ]
    folder.mkdir()
    path = folder / "conversation_trace.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))


def test_it_prints_one_line_per_set_of_rules(tmp_path: Path) -> None:
    """Every placement by its name; no line is above the bound."""
    mooncake_file(tmp_path / "mooncake")
    arguments = ["--model", "gemma-3-270m", "--sizes-gib", "1", "2"]
    arguments += ["--device-gib", "1", "--processes", "1"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        env=os.environ
        | {"PYTHONPATH": str(ROOT / "src"), "KVCELLAR_TRACES": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    names = [line.split(" | ")[0].removeprefix("| ") for line in lines[1:]]
    assert "offline bound" == names[-1]
    for placement in PLACEMENTS:
        assert any(name.startswith(placement) for name in names)
    for column in (1, 2):
        ratios = [
            float(re.match(r"[\d.]+", line.split(" | ")[column]).group())
            for line in lines[1:]
        ]
        assert 0 < max(ratios) == ratios[-1]
