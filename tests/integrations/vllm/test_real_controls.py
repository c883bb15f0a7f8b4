"""A real server: ``kv_transfer_params`` over HTTP, and KV events over the wire."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("vllm")


import kvcellar
from kvcellar.demo.tiny import ensure_tiny
from kvcellar.serve.address import free_port

pytestmark = pytest.mark.engine

BLOCK_TOKENS = 32
LAST_BOUNDARY = 1696  # the last inside a prompt of 1,700 tokens
TEXT = Path(re.__file__).read_text()  # a token per character


class Server:
    """``kvcellar serve`` on a tiny model.

    Attributes:
        log: lines of its log, complete after ``stop``.
    """

    def __init__(self):
        ports = [free_port() for _ in range(3)]
        self._url = f"http://127.0.0.1:{ports[0]}"
        self.events = f"tcp://127.0.0.1:{ports[1]}"
        self.replay = f"tcp://127.0.0.1:{ports[2]}"
        config = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": f"tcp://*:{ports[1]}",
            "replay_endpoint": self.replay,
        }
        self.model = str(ensure_tiny("gemma3"))
        command = [sys.executable, "-m", "kvcellar", "serve", self.model]
        command += ["--host-memory", "256MiB", "--host", "127.0.0.1"]
        command += ["--port", str(ports[0]), "--max-model-len", "2048"]
        command += ["--block-size", str(BLOCK_TOKENS), "--enforce-eager"]
        command += ["--kv-events-config", json.dumps(config)]
        source = str(Path(kvcellar.__file__).parents[1])
        environment = {
            "PYTHONPATH": source,
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_SERVER_DEV_MODE": "1",  # for resets over HTTP
        }
        self._process = subprocess.Popen(
            command, env=os.environ | environment, stderr=subprocess.PIPE, text=True
        )
        self.log = []
        for line in self._process.stderr:
            self.log.append(line)
            if line.startswith("kvcellar is on: "):
                return
        raise AssertionError("".join(self.log[-30:]))

    def ask(self, prompt, **controls):
        """An answer of one token; prompt tokens that were found in a cache."""
        body = {"model": self.model, "prompt": prompt, "max_tokens": 1}
        if controls:
            body["kv_transfer_params"] = controls
        answer = json.loads(self._post("/v1/completions", body))
        assert 1 == answer["usage"]["completion_tokens"]
        self._post("/v1/completions", body | {"prompt": "x", "max_tokens": 4})

    def metric(self, name):
        """Sum of a metric's series, from ``/metrics``."""
        with urllib.request.urlopen(f"{self._url}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        found = re.findall(rf"^{name}{{.*}} (\S+)$", text, flags=re.MULTILINE)
        return sum(map(float, found))

    def loaded_by(self, prompt, **controls):
        """Tokens loaded for a prompt that the device has forgotten."""
        before = self.metric("kvcellar_loaded_tokens_total")
        self._post("/reset_prefix_cache", {})
        self.ask(prompt, **controls)
        return self.metric("kvcellar_loaded_tokens_total") - before

    def stop(self):
        self._process.send_signal(signal.SIGINT)
        self.log += self._process.stderr.readlines()
        self._process.wait(60)

    def _post(self, path, body):
        request = urllib.request.Request(
            self._url + path,
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            assert 200 == answer.status
            return answer.read()


@pytest.fixture(scope="module")
def server():
    made = Server()
    yield made
    if made._process.poll() is None:
        made.stop()


def test_a_request_decides_what_is_stored_and_loaded(server):
    """Skips, limits and leases, as the OpenAI API carries them to the connector."""
    prompt = TEXT[:1700]
    server.ask(prompt, skip_store=True)
    assert 0 == server.metric("kvcellar_host_chunks")
    assert 0 == server.loaded_by(prompt)
    assert LAST_BOUNDARY / BLOCK_TOKENS == server.metric("kvcellar_host_chunks")
    assert 0 == server.loaded_by(prompt, skip_load=True)
    assert LAST_BOUNDARY == server.loaded_by(prompt, keep_seconds=600)
    assert server.metric("kvcellar_leased_bytes") > 0
    assert 0 < server.loaded_by(prompt, max_load_tokens=1500) <= 1500
    other = TEXT[5000:6700]
    server.ask(other, max_offload_tokens=10 * BLOCK_TOKENS)
    assert server.loaded_by(other) <= 10 * BLOCK_TOKENS


def test_what_cannot_be_read_is_warned_of_once_and_served(server):
    """Wrong values and unknown keys: an answer, a warning with the remedy, a count."""
    for _ in range(2):
        server.ask("abc", priority="high", skip_stores=True, tags=["a"])
    assert 4 == server.metric("kvcellar_bad_controls_total")
    server.stop()
    warned = [line for line in server.log if "without a control" in line]
    assert 2 == len(warned)
    assert "priority='high' cannot be used; write a whole number" in warned[0]
    assert "nearest known key is 'skip_store'" in warned[1]
