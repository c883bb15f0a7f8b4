"""``kvcellar serve`` with the real engine: it says it is on, and it ends as a whole."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import kvcellar
from kvcellar.demo.tiny import ensure_tiny
from kvcellar.serve.address import free_port
from kvcellar.serve.group import wait_until_empty

pytestmark = pytest.mark.engine


def group_of_server(serve_pid: int) -> int:
    """The group id of the server that a ``kvcellar serve`` process started."""
    children = Path(f"/proc/{serve_pid}/task/{serve_pid}/children").read_text()
    commands = {
        int(pid): Path(f"/proc/{pid}/cmdline").read_text() for pid in children.split()
    }
    (server,) = [pid for pid, line in commands.items() if "vllm.entrypoints" in line]
    return server


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_the_whole_server(number: signal.Signals):
    """Once kvcellar is on, each of the signals ends every process of the server."""
    command = [sys.executable, "-m", "kvcellar", "serve", str(ensure_tiny("gemma3"))]
    command += ["--host-memory", "256MiB", "--host", "127.0.0.1", "--enforce-eager"]
    command += ["--port", str(free_port()), "--max-model-len", "2048"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(kvcellar.__file__).parents[1]),
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }
    with subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True
    ) as serving:
        assert serving.stderr is not None
        for line in serving.stderr:
            if line.startswith("kvcellar is on: 0.2 GiB host memory, eager"):
                break
        assert serving.poll() is None
        group_id = group_of_server(serving.pid)
        serving.send_signal(number)
        serving.stderr.read()
    assert wait_until_empty(group_id, 60)
    if number == signal.SIGKILL:
        assert serving.returncode == -signal.SIGKILL
