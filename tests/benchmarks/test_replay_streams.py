"""Made streams, and both orders on them."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "replay_streams.py"


@pytest.mark.parametrize("stream", ["documents", "chats", "rounds"])
def test_it_prints_one_line_for_each_size_and_mode(stream: str) -> None:
    """The same lines each time, whatever finishes first."""
    options = ["--stream", stream, "--model", "llama-3.1-8b", "--requests", "300"]
    runs = [
        subprocess.run(
            [sys.executable, str(SCRIPT), *options],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    lines = [line.split() for line in runs[0].splitlines() if line.startswith(stream)]
    assert [line[1:4] for line in lines] == [
        ["llama-3.1-8b", size, mode]
        for size in ("32", "128")
        for mode in ("eager", "lazy")
    ]
    for *_, lru, adaptive, ahead in lines:
        assert float(ahead) == pytest.approx(float(adaptive) - float(lru), abs=0.011)
