"""A real server: ``kv_transfer_params`` over HTTP, and KV events over the wire."""

import json
import os
import re
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("vllm")

from kv_subscriber import KvSubscriber
from tiny_server import ANY_ONE_CPU
from vllm.distributed.kv_events import MEDIUM_CPU, BlockStored

import kvcellar
from kvcellar.demo.tiny import ensure_tiny
from kvcellar.serve.address import free_port

pytestmark = pytest.mark.engine

BLOCK_TOKENS = 32
MOST_RESETS = 100
STOP_SECONDS = 60
LAST_BOUNDARY = 1696  # the last inside a prompt of 1,700 tokens
TEXT = Path(re.__file__).read_text()  # a token per character


class Server:
    """``kvcellar serve`` on a tiny model; what it logs is read all the time.

    Attributes:
        log: lines of its log so far.
        events: where it publishes KV events.
        replay: where it repeats them.
    """

    def __init__(self):
        ports = [free_port() for _ in range(3)]
        self._url = f"http://127.0.0.1:{ports[0]}"
        self.events = f"tcp://127.0.0.1:{ports[1]}"
        self.replay = f"tcp://127.0.0.1:{ports[2]}"
        self.model = str(ensure_tiny("gemma3"))
        environment = {
            "PYTHONPATH": str(Path(kvcellar.__file__).parents[1]),
            "VLLM_CPU_KVCACHE_SPACE": "1",
            **ANY_ONE_CPU,
            "TORCHDYNAMO_DISABLE": "1",  # else a helper of the sampler is compiled
            "VLLM_SERVER_DEV_MODE": "1",  # for resets over HTTP
        }
        self._process = subprocess.Popen(
            self._command(ports),
            env=os.environ | environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log, self._has_ended, self._grown = [], False, threading.Condition()
        self._reader = threading.Thread(target=self._read_log)
        self._reader.start()
        (line,) = self.logged("kvcellar is on: ", 1)
        assert line.startswith("kvcellar is on: ")

    def _command(self, ports):
        config = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": f"tcp://*:{ports[1]}",
            "replay_endpoint": self.replay,
        }
        command = [sys.executable, "-m", "kvcellar", "serve", self.model]
        command += ["--host-memory", "256MiB", "--host", "127.0.0.1"]
        command += ["--port", str(ports[0]), "--max-model-len", "2048"]
        command += ["--block-size", str(BLOCK_TOKENS), "--enforce-eager"]
        return [*command, "--kv-events-config", json.dumps(config)]

    def _read_log(self):
        for line in self._process.stderr:
            with self._grown:
                self.log.append(line)
                self._grown.notify_all()
        with self._grown:
            self._has_ended = True
            self._grown.notify_all()

    def logged(self, text, count):
        """The lines that contain a text, once there are so many."""

        def found():
            return [line for line in self.log if text in line]

        with self._grown:
            self._grown.wait_for(lambda: len(found()) >= count or self._has_ended, 240)
            assert len(found()) >= count, "".join(self.log[-30:])
            return found()

    def ask(self, prompt, **controls):
        """An answer of one token; the steps of another request end all copies."""
        body = {"model": self.model, "prompt": prompt, "max_tokens": 1}
        wishes = {"kv_transfer_params": controls} if controls else {}
        answer = json.loads(self._post("/v1/completions", body | wishes))
        assert 1 == answer["usage"]["completion_tokens"]
        self._post("/v1/completions", body | {"prompt": "x", "max_tokens": 8})

    def metric(self, name):
        """Sum of a metric's series, from ``/metrics``."""
        with urllib.request.urlopen(f"{self._url}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        found = re.findall(rf"^{name}{{.*}} (\S+)$", text, flags=re.MULTILINE)
        assert found, name
        return sum(map(float, found))

    def loaded_by(self, prompt, **controls):
        """Tokens loaded for a prompt that the device has forgotten."""
        before = self.metric("kvcellar_loaded_tokens_total")
        for _ in range(MOST_RESETS):  # refused while a copy holds a block
            if json.loads(self._post("/reset_prefix_cache", {}))["success"]:
                break
        self.ask(prompt, **controls)
        return self.metric("kvcellar_loaded_tokens_total") - before

    def stop(self):
        # Not SIGINT: whoever is started in the background is born deaf to it.
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        finally:
            self._process.kill()
            self._reader.join()
            self._process.stderr.close()

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
    made.stop()


def test_a_request_decides_what_is_stored_and_loaded(server):
    """Skips, limits and leases, as the OpenAI API carries them to the connector."""
    prompt, other = TEXT[:1700], TEXT[5000:6700]
    num_before = server.metric("kvcellar_host_chunks")
    server.ask(prompt, skip_store=True)
    assert num_before == server.metric("kvcellar_host_chunks")
    assert 0 == server.loaded_by(prompt[:1000])
    assert 992 == server.loaded_by(prompt)
    num_chunks = server.metric("kvcellar_host_chunks")
    assert LAST_BOUNDARY / BLOCK_TOKENS == num_chunks - num_before
    assert 0 == server.loaded_by(prompt, skip_load=True)
    assert LAST_BOUNDARY == server.loaded_by(prompt, keep_seconds=600)
    assert server.metric("kvcellar_leased_bytes") > 0
    assert 992 == server.loaded_by(prompt, max_load_tokens=1500)
    server.ask(other, max_offload_tokens=10 * BLOCK_TOKENS)
    assert 10 == server.metric("kvcellar_host_chunks") - num_chunks
    assert 0 == server.loaded_by(other, skip_store=True)


def test_a_router_learns_over_the_wire_what_host_memory_holds(server):
    """A subscriber that comes late asks again, and knows every chunk that is held."""
    server.ask(TEXT[9000:9700])
    num_chunks = server.metric("kvcellar_host_chunks")
    assert num_chunks > 0

    def full_chunks(batches):
        events = [e for b in batches for e in b.events if isinstance(e, BlockStored)]
        return {
            key
            for event in events
            if event.medium == MEDIUM_CPU
            and event.kv_cache_spec_kind == "full_attention"
            for key in event.block_hashes
        }

    subscriber = KvSubscriber(server.events, server.replay)
    try:
        batches = subscriber.read_until(lambda b: len(full_chunks(b)) >= num_chunks)
    finally:
        subscriber.close()
    assert num_chunks == len(full_chunks(batches))


def test_what_cannot_be_read_is_warned_of_once_and_served(server):
    """Wrong values and unknown keys: an answer, a warning with the remedy, a count."""
    for _ in range(2):
        server.ask("abc", priority="high", skip_stores=True, tags=["a"])
    assert 4 == server.metric("kvcellar_bad_controls_total")
    server.ask("abc", nonsense=0)
    warned = server.logged("is served without a control", 3)
    assert 3 == len(warned)
    assert "priority='high' cannot be used; write a whole number" in warned[0]
    assert "nearest known key is 'skip_store'" in warned[1]
