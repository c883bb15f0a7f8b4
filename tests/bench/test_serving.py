"""A server's speeds: found again from its times, over HTTP, and never from a cache."""

import contextlib
import http.server
import json
import threading

import pytest
from fake_demo_engine import FakeEngine

from kvcellar.bench import copies, planner, run
from kvcellar.bench.host_memory import measure_host_memory
from kvcellar.bench.run import BenchRequest, run_bench
from kvcellar.bench.serving import measure_serving, prompt_lengths
from kvcellar.cli import main
from kvcellar.errors import CellarError, ConfigError

LENGTHS = [64, 128, 512]


def measured(engine, lengths=LENGTHS, most=4096):
    return measure_serving(engine, lengths, most, lambda length: None)


def test_speeds_are_those_of_the_engine():
    """10 ms, 1 ms for each token of the prompt, and 2 for each of the answer."""
    found = measured(FakeEngine())
    assert found.prefill_tokens_per_second == pytest.approx(1000.0)
    assert found.step_seconds == pytest.approx(0.01)
    assert found.decode_seconds_per_token == pytest.approx(0.002)
    assert found.worst_miss == pytest.approx(0.0, abs=1e-9)
    assert LENGTHS == [point.num_tokens for point in found.points]


class _Unsalted(FakeEngine):
    """Looks prompts up whatever their salt, and holds the very same one."""

    def complete(self, prompt, num_tokens, cache_salt):
        del cache_salt
        first = list(range(len(prompt)))
        return super().complete(first, num_tokens, "same")


class _Flat(FakeEngine):
    """Answers the more quickly, the longer the prompt."""

    def complete(self, prompt, num_tokens, cache_salt):
        short = prompt[: max(1, 1000 - len(prompt))]
        return super().complete(short, num_tokens, cache_salt)


def test_a_prompt_that_was_in_a_cache_is_no_measurement():
    """Nor are times that shrink with the prompt."""
    with pytest.raises(CellarError, match="had never seen"):
        measured(_Unsalted())
    with pytest.raises(CellarError, match="does not grow with the prompt"):
        measured(_Flat(), [100, 500, 900])


def test_lengths_are_halvings_of_the_longest_prompt():
    """Unless they are given, ascending and each once."""
    assert [512, 1024, 2048, 4096, 8192] == prompt_lengths(None, 131_072)
    assert [127, 255, 511, 1023, 2047] == prompt_lengths(None, 2048)
    assert [5, 9] == prompt_lengths((9, 5, 9), 10)
    for given, most in (((5,), 10), ((0, 5), 10), ((5, 10), 10), (None, 2)):
        with pytest.raises(ConfigError, match="prompt_tokens"):
            prompt_lengths(given, most)


# -- over HTTP -------------------------------------------------------------------------


class _Api(http.server.BaseHTTPRequestHandler):
    """As much of vLLM's API as is asked for; answers come at once."""

    models = (b'{"data": [{"id": "served", "max_model_len": 256}]}',)

    def do_GET(self):
        self._answer(self.models[0])

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            self._answer(b'{"tokens": [1, 2, 3]}')
            return
        chosen = {"tokens": ["token_id:7"], "token_logprobs": [-0.5]}
        event = {"choices": [{"text": "x", "logprobs": chosen}]}
        usage = {"choices": [], "usage": {"prompt_tokens": len(asked["prompt"])}}
        events = [event] * asked["max_tokens"] + [usage]
        lines = [f"data: {json.dumps(sent)}\n\n" for sent in events]
        self._answer("".join([*lines, "data: [DONE]\n\n"]).encode())

    def _answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(api):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), api) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()


@pytest.fixture
def small(monkeypatch):
    """Little memory, and times that a straight line fits whatever the machine does."""
    monkeypatch.setattr(copies, "CACHE_BYTES", 2**22)
    monkeypatch.setattr(run, "CACHE_BYTES", 2**22)
    monkeypatch.setattr(run, "measure_host_memory", lambda: measure_host_memory(2**20))
    monkeypatch.setattr(planner, "PROMPT_TOKENS", 4096)


class _Clocked(run.Client):
    """The real client, but the times are those of the fake engine."""

    def complete(self, prompt, num_tokens, cache_salt):
        super().complete(prompt, num_tokens, cache_salt)
        return FakeEngine().complete(prompt, num_tokens, cache_salt)


def test_the_command_asks_a_server_and_writes_its_speeds(
    small, monkeypatch, tmp_path, capsys
):
    """From URL to file: all five speeds by the names that a replay reads."""
    monkeypatch.setattr(run, "Client", _Clocked)
    path = tmp_path / "speeds.json"
    with serving(_Api) as url:
        arguments = ["bench", "--device", "cpu", "--page-bytes", "1KiB", "--json"]
        arguments += ["--server", f"{url}/v1", "--output", str(path)]
        assert 0 == main.main(arguments)
    captured = capsys.readouterr()
    content = json.loads(captured.out)
    assert ("served", 256) == (
        content["server"]["name"],
        content["server"]["max_model_tokens"],
    )
    assert "prompts of 255 tokens on served" in captured.err
    assert "those of llama-3.1-8b; name the model" in captured.err
    speeds = json.loads(path.read_text())
    assert content["speeds"] == speeds
    assert (1000.0, 0.01, 0.002) == pytest.approx(
        (
            speeds["prefill_tokens_per_second"],
            speeds["step_seconds"],
            speeds["decode_seconds_per_token"],
        )
    )


def test_a_server_that_is_none_is_named():
    """Nobody there, or somebody who does not speak as vLLM does."""
    request = BenchRequest("llama-3.1-8b", "cpu", (1024,), "http://127.0.0.1:9")
    with pytest.raises(CellarError, match=r"answers at http://127\.0\.0\.1:9: conn"):
        run_bench(request, lambda stage: None)

    class Other(_Api):
        models = (b'{"data": []}',)

    with serving(Other) as url:
        request = BenchRequest("llama-3.1-8b", "cpu", (1024,), url)
        with pytest.raises(CellarError, match="does not answer as vLLM does"):
            run_bench(request, lambda stage: None)


def test_wrong_settings_exit_with_2(capsys):
    """One sentence, the key and the value."""
    for changes, words in (
        (["--prompt-tokens", "few"], "prompt_tokens='few'"),
        (["--page-bytes", "much"], "page_bytes='much'"),
        (["--server", "ftp://h"], "server='ftp://h'"),
    ):
        assert 2 == main.main(["bench", "--device", "cpu", *changes])
        assert words in capsys.readouterr().err
