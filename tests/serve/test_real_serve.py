"""``kvcellar serve`` with the real engine: it says it is on, and it ends as a whole."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_server import ANY_ONE_CPU

import kvcellar
from kvcellar.bench.serving import measure_serving
from kvcellar.cli.main import main
from kvcellar.demo.client import Client
from kvcellar.demo.metrics import parse_metrics
from kvcellar.demo.tiny import ensure_tiny
from kvcellar.monitor.fetch import fetch_json
from kvcellar.serve.address import address_of_url, free_port
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


@contextlib.contextmanager
def serving(port: int) -> Iterator[subprocess.Popen[str]]:
    """``kvcellar serve`` on a tiny model, once it says that kvcellar is on."""
    command = [sys.executable, "-m", "kvcellar", "serve", str(ensure_tiny("gemma3"))]
    command += ["--host-memory", "256MiB", "--host", "127.0.0.1", "--enforce-eager"]
    command += ["--port", str(port), "--max-model-len", "2048"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(kvcellar.__file__).parents[1]),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        **ANY_ONE_CPU,
    }
    with subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("kvcellar is on: 256.00 MiB host memory, eager"):
                break
        assert process.poll() is None
        try:
            yield process
        except BaseException:
            process.kill()  # its watchdog ends the server
            raise


def complete(url: str, model: str, request_id: str, **fields: object) -> None:
    """One completion of 600 tokens' prompt, under an id of the client's."""
    body = {"model": model, "prompt": [5] * 300 + [6] * 300, "max_tokens": 4, **fields}
    request = urllib.request.Request(
        f"{url}/v1/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "X-Request-Id": request_id},
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        assert response.status == 200


def test_metrics_status_and_why_over_http(capsys: pytest.CaptureFixture[str]):
    """Prompt tokens add up to vLLM's own count on ``/metrics``, the status has them
    too, ``why`` finds each request by the id that its client gave it, the doctor
    finds nothing wrong with the server, its speeds can be measured, and SIGTERM ends
    every process of it."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with serving(port) as process:
        model = str(ensure_tiny("gemma3"))
        complete(url, model, "first-of-two")
        complete(url, model, "second-of-two")
        complete(url, model, "third", cache_salt="tenant")
        with urllib.request.urlopen(f"{url}/metrics", timeout=60) as response:
            samples = parse_metrics(response.read().decode())
        status = fetch_json(url, "/kvcellar/status")
        texts = []
        for name in ("first-of-two", "second-of-two", "third"):
            assert main(["why", name, "--server", url]) == 0
            texts.append(capsys.readouterr().out)
        assert main(["why", "nobody", "--server", url]) == 1
        capsys.readouterr()
        main(["doctor", "--server", url, "--json"])
        examined = json.loads(capsys.readouterr().out)
        speeds = measure_serving(
            Client(address_of_url(url), model), [64, 1800], 2048, lambda length: None
        )
        group_id = group_of_server(process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        process.stderr.read()
    assert wait_until_empty(group_id, 60)
    tokens = {
        source: samples.total("kvcellar_prompt_tokens_total", source=source)
        for source in ("device", "host", "computed")
    }
    assert sum(tokens.values()) == samples.total("vllm:prompt_tokens_total") == 1800
    computed = samples.total("kvcellar_missed_tokens_total")
    assert tokens["computed"] == computed
    assert samples.total("kvcellar_transfer_bytes_sum", direction="store") > 0
    # Whatever the machine's load, thirty times the prompt takes longer.
    first, last = speeds.points
    assert (64, 1800) == (first.num_tokens, last.num_tokens)
    assert 0 < first.ttft_seconds < last.ttft_seconds
    assert speeds.decode_seconds_per_token > 0
    told = {entry["check"]: entry["severity"] for entry in examined["checks"]}
    for check in ("server", "server-version", "server-connector", "server-settings"):
        assert told[check] == "ok", examined
    for check in ("stores", "loads", "room", "copies", "lost", "churn", "preemptions"):
        assert told[check] == "ok", examined
    (engine,) = status["engines"]
    assert engine["prompt_tokens"] == tokens
    assert engine["tiers"]["host"]["chunks"] > 0
    assert "600 prompt tokens" in texts[0]
    assert "no earlier request had them" in texts[0]
    assert "on the device already" in texts[1]
    assert "under another cache salt" in texts[2]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_the_whole_server(number: signal.Signals):
    """Once kvcellar is on, each of the signals ends every process of the server.

    SIGTERM does so in the test above.
    """
    with serving(free_port()) as process:
        group_id = group_of_server(process.pid)
        process.send_signal(number)
        assert process.stderr is not None
        process.stderr.read()
    assert wait_until_empty(group_id, 60)
    if number == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
