"""The demo against the real engine: what a user sees who types one command."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import kvcellar

pytestmark = pytest.mark.engine

ALARM = re.compile(r"Traceback|\bERROR\b|\bWARNING\b.*kvcellar: ")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A temporary folder whose path is short enough for the engine's sockets."""
    with tempfile.TemporaryDirectory(prefix="kvcellar-test-") as name:
        yield Path(name)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("name", "mode", "ranks"),
    [
        ("gemma3", "eager", 1),
        ("qwen3-next", "lazy", 1),
        ("gemma3", "eager", 2),
        ("gemma3-mqa", "eager", 2),
    ],
)
def test_returning_conversations_are_served_exactly(
    name: str, mode: str, ranks: int, folder: Path
):
    """Evicted conversations come from the host, equal to device hits.

    Ranks that hold the same bytes do so with one copy in host memory.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(kvcellar.__file__).parents[1]),
        "TMPDIR": str(folder),
    }
    command = [sys.executable, "-m", "kvcellar", "demo", "--json", "--keep-logs"]
    command += ["--tiny", name, "--mode", mode, "--conversations", "6"]
    share = "on" if name == "gemma3-mqa" else "auto"
    done = subprocess.run(
        [*command, "--tensor-parallel", str(ranks), "--share-replicated", share],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["problems"] == []
    assert report["exactness"]["compared_requests"] > 0
    assert report["exactness"]["differing_logprobs"] == 0
    assert report["eviction"]["found_tokens"] == 0
    (logs,) = folder.iterdir()
    log = (logs / "with-kvcellar.log").read_text(errors="replace")
    assert ("each shared by 2 ranks" in log) == (share == "on")
    said, _, _ = log.partition("[shutdown]")  # vLLM's processes do not end in step
    assert [line for line in said.splitlines() if ALARM.search(line)] == []
