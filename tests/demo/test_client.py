import http.server
import json
import threading
from collections.abc import Iterator
from typing import ClassVar

import pytest

from kvcellar.demo.client import Client
from kvcellar.errors import CellarError
from kvcellar.serve.address import Address


def event(tokens: list[int]) -> dict[str, object]:
    chosen = {
        "tokens": [f"token_id:{token}" for token in tokens],
        "token_logprobs": [-0.5 * token for token in tokens],
    }
    return {"choices": [{"text": "x", "logprobs": chosen}]}


USAGE = {
    "choices": [],
    "usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 8}},
}


class _Api(http.server.BaseHTTPRequestHandler):
    events: ClassVar[list[object]] = []
    status = 200
    asked: ClassVar[list[object]] = []

    def _answer(self, body: bytes) -> None:
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self._answer(b"kvcellar_stored_bytes_total 3\n")

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.asked.append(json.loads(self.rfile.read(length)))
        if self.path == "/tokenize":
            self._answer(b'{"tokens": [1, 2, 3]}')
            return
        lines = [f"data: {json.dumps(sent)}\n\n" for sent in self.events]
        self._answer("".join([*lines, "data: [DONE]\n\n"]).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> type[_Api]:
    monkeypatch.setattr(_Api, "asked", [])
    return _Api


@pytest.fixture
def client(api: type[_Api]) -> Iterator[Client]:
    with http.server.HTTPServer(("127.0.0.1", 0), api) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield Client(Address("127.0.0.1", running.server_address[1]), "m")
        running.shutdown()
        thread.join()


def test_stream_becomes_a_completion(client, api, monkeypatch):
    """Tokens of several events are joined; the usage tells what was cached."""
    monkeypatch.setattr(api, "events", [event([4]), event([5, 6]), USAGE])
    done = client.complete([1, 2], 3, "salt")
    assert done.tokens == (4, 5, 6)
    assert done.logprobs == (-2.0, -2.5, -3.0)
    assert (done.num_prompt_tokens, done.num_cached_tokens) == (9, 8)
    assert done.ttft_seconds > 0


def test_request_is_greedy_salted_and_of_fixed_length(client, api, monkeypatch):
    """What is asked makes answers comparable."""
    monkeypatch.setattr(api, "events", [event([4]), USAGE])
    client.complete((7, 8), 1, "salt")
    (asked,) = api.asked
    assert asked["prompt"] == [7, 8]
    assert (asked["temperature"], asked["ignore_eos"]) == (0, True)
    assert (asked["max_tokens"], asked["cache_salt"]) == (1, "salt")


@pytest.mark.parametrize("events", [[], [event([4])], [event([4]), USAGE]])
def test_short_stream_is_an_error(client, api, monkeypatch, events):
    """An answer that ends early is never taken for a whole one."""
    monkeypatch.setattr(api, "events", events)
    with pytest.raises(CellarError, match="ended its answer after"):
        client.complete([1], 2, "salt")


def test_error_inside_the_stream_is_told(client, api, monkeypatch):
    """An error event is raised with the server's words."""
    monkeypatch.setattr(api, "events", [{"error": {"message": "engine died"}}])
    with pytest.raises(CellarError, match="engine died"):
        client.complete([1], 2, "salt")


def test_refusal_is_told(client, api, monkeypatch):
    """A status other than 200 is raised with the path and the answer."""
    monkeypatch.setattr(api, "status", 400)
    with pytest.raises(CellarError, match="POST /tokenize was refused with 400"):
        client.tokenize("text")


def test_tokens_and_metrics_are_read(client):
    """The two side endpoints give token ids and counters."""
    assert client.tokenize("abc") == [1, 2, 3]
    assert client.metrics().total("kvcellar_stored_bytes_total") == 3
