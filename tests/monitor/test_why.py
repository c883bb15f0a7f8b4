"""``kvcellar why``: an account in plain words, or one sentence on what is missing."""

import http.server
import json
import threading

import pytest

from kvcellar.cli.main import main
from kvcellar.errors import CellarError
from kvcellar.monitor.fetch import fetch_json, key_headers
from kvcellar.monitor.why import describe_accounts, duration, fetch_accounts

ACCOUNT = {
    "request_id": "chatcmpl-abc-1f2e3d4c",
    "seconds_ago": 3.2,
    "prompt_tokens": 12345,
    "device_tokens": 4096,
    "host_tokens": 6144,
    "computed_tokens": 2105,
    "misses": [
        {
            "first_token": 10240,
            "end_token": 12288,
            "reason": "evicted",
            "seconds_before": 540.0,
            "for_request": "cmpl-x",
        },
        {"first_token": 12288, "end_token": 12345, "reason": "last_boundary"},
    ],
}

TEXT = """\
chatcmpl-abc-1f2e3d4c: 12,345 prompt tokens, 3 s ago
  device        4,096  33.2%  on the device already
  host          6,144  49.8%  loaded from host memory
  computed      2,105  17.1%  computed by this request:
    10,240 to 12,288 (2,048): held once, and evicted from host memory to make room
      [evicted] 9 min before, by request cmpl-x
    12,288 to 12,345 (57): behind the last boundary at which a prompt of this length \
can be resumed"""


@pytest.fixture
def server():
    """A web server that answers each path with what ``answers`` holds for it."""
    answers, asked = {}, {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.update(self.headers)
            status, body = answers.get(self.path, (404, b"<html>not found</html>"))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        running.answers, running.asked = answers, asked
        running.url = f"http://127.0.0.1:{running.server_port}"
        yield running
        running.shutdown()
        thread.join()


def test_an_account_in_plain_words():
    """Sources with their shares, then each stretch with its reason."""
    assert TEXT == describe_accounts({"accounts": [ACCOUNT]})
    twice = describe_accounts({"accounts": [ACCOUNT, ACCOUNT]})
    assert f"{TEXT}\n\n{TEXT}" == twice


def test_accounts_fit_a_terminal():
    """A line that is too long goes on below, further to the right."""
    for width in (60, 80):
        folded = describe_accounts({"accounts": [ACCOUNT]}, width)
        assert max(map(len, folded.splitlines())) <= width
        assert TEXT.split() == folded.split()
    assert "\n      length can be resumed" in describe_accounts(
        {"accounts": [ACCOUNT]}, 80
    )
    assert TEXT == describe_accounts({"accounts": [ACCOUNT]}, 100)


def test_a_prompt_without_misses_or_with_new_reasons():
    """All served has no computed line; a newer server's reason is shown as it is."""
    served = ACCOUNT | {"computed_tokens": 0, "misses": []}
    assert "computed" not in describe_accounts({"accounts": [served]})
    stretch = {"first_token": 0, "end_token": 5, "reason": "gone_fishing"}
    newer = describe_accounts({"accounts": [ACCOUNT | {"misses": [stretch]}]})
    assert newer.endswith("0 to 5 (5): gone_fishing")


def test_the_command_prints_words_or_json(server, capsys):
    """The id is quoted on its way; ``--json`` is the server's own answer."""
    answer = {"request_id": "a/b", "accounts": [ACCOUNT]}
    server.answers["/kvcellar/why/a%2Fb"] = (200, json.dumps(answer).encode())
    assert 0 == main(["why", "a/b", "--server", server.url + "/"])
    assert f"{TEXT}\n" == capsys.readouterr().out
    assert 0 == main(["why", "a/b", "--server", server.url, "--json"])
    assert answer == json.loads(capsys.readouterr().out)


def test_one_sentence_when_it_cannot_be_said(server, capsys):
    """An unknown request, a server without the endpoint, no server, no URL."""
    refusal = json.dumps({"error": "request 'x' is not known"}).encode()
    server.answers["/kvcellar/why/x"] = (404, refusal)
    assert 1 == main(["why", "x", "--server", server.url])
    assert "kvcellar: request 'x' is not known\n" == capsys.readouterr().err
    with pytest.raises(CellarError, match="--middleware kvcellar"):
        fetch_accounts(server.url, "y")
    server.answers["/text"] = (200, b"plain")
    server.answers["/list"] = (200, b"[]")
    for path in ("/text", "/list"):
        with pytest.raises(CellarError, match="no JSON object"):
            fetch_json(server.url, path)
    assert 2 == main(["why", "x", "--server", "ftp://host"])
    server.server_close()
    server.shutdown()
    with pytest.raises(CellarError, match="no server answers at http://127"):
        fetch_json("http://127.0.0.1:9", "/")


def test_a_proxy_that_wants_a_key(server):
    """One sentence, and the key is sent as vLLM takes it."""
    for status in (401, 403):
        server.answers["/s"] = (status, b'{"error": "Unauthorized"}')
        with pytest.raises(CellarError, match=rf"wants a key \(status {status}\)"):
            fetch_json(server.url, "/s")
    server.answers["/s"] = (200, b"{}")
    assert {} == fetch_json(server.url, "/s", key_headers("k1"))
    assert "Bearer k1" == server.asked["Authorization"]
    assert {} == key_headers(None) == key_headers("") == key_headers(" \n")
    assert key_headers("k1") == key_headers("k1\n")


@pytest.mark.parametrize("key", ["a\nb", "schl\u00fcssel", "a\x00"])
def test_a_key_that_no_header_can_hold(key, capsys):
    """Refused in one sentence that does not repeat it."""
    assert 2 == main(["why", "x", "--server", "127.0.0.1:9", "--api-key", key])
    told = capsys.readouterr().err
    assert "api_key cannot be sent" in told
    assert 1 == told.count("\n")
    assert key not in told


def test_an_error_that_is_no_sentence_is_put_in_ours(server):
    """vLLM's own errors are objects."""
    server.answers["/s"] = (404, b'{"error": {"message": "Not Found"}}')
    with pytest.raises(CellarError, match="has no /s \\(status 404\\); start it with"):
        fetch_json(server.url, "/s")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (119, "119 s"), (300, "5 min"), (9000, "2.5 h")]
)
def test_durations(seconds, text):
    """In the unit that fits."""
    assert text == duration(seconds)
