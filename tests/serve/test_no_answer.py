"""Why a server gives no answer: words, and the same ones from every command."""

import contextlib
import errno
import http.client
import socket
import ssl
import threading
import urllib.error

import pytest

from kvcellar.cli.main import main
from kvcellar.doctor import server as doctor_server
from kvcellar.monitor import fetch
from kvcellar.serve.no_answer import no_answer

URL = "http://host:1"
UP = "check the address, and that the server is up"
CASES = [
    (
        ConnectionRefusedError(111, "Connection refused"),
        "connection refused, nothing listens there; " + UP,
    ),
    (TimeoutError("timed out"), "timed out; " + UP),
    (
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        "host name unknown; check its spelling",
    ),
    (
        socket.gaierror(socket.EAI_AGAIN, "Temporary failure"),
        "the host name cannot be looked up now; check its spelling and DNS",
    ),
    (
        OSError(errno.EHOSTUNREACH, "No route to host"),
        "no way leads to that host; check the address and the network",
    ),
    (
        http.client.RemoteDisconnected("Remote end closed"),
        "it hung up without a whole answer; check that the server is up, and write "
        "https:// if it wants TLS",
    ),
    (
        http.client.BadStatusLine("\x15\x03"),
        "what listens there speaks no HTTP; write https:// if it wants TLS",
    ),
    (
        ssl.SSLError(1, "[SSL] wrong version number"),
        "what listens there speaks no TLS; write http:// if it needs none",
    ),
    (OSError(errno.EMFILE, "Too many open files"), "too many open files; " + UP),
    (http.client.HTTPException("Odd"), "odd; " + UP),
]


@pytest.mark.parametrize(("error", "words"), CASES)
def test_errors_are_told_in_words(error, words):
    """Alone and as ``urllib`` wraps them; without numbers of errors."""
    for raised in (error, urllib.error.URLError(error)):
        told = str(no_answer(URL, raised))
        assert f"no server answers at {URL}: {words}" == told
        assert "rrno" not in told


def test_a_certificate_that_is_not_trusted():
    """What is wrong with it is told, in OpenSSL's words."""
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "self-signed certificate"
    assert "not trusted, self-signed certificate" in no_answer(URL, error).reason
    assert "SSL_CERT_FILE" in no_answer(URL, error).remedy


@contextlib.contextmanager
def listening(answer):
    """A port of this machine where every question gets these bytes; None: no answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_answer_all, args=(listener, answer))
        thread.start()
        port = listener.getsockname()[1]
        try:
            yield port
        finally:
            with socket.create_connection(("127.0.0.1", port)) as last:
                last.sendall(b"END")
            thread.join()


def _answer_all(listener, answer):
    held = []
    while True:
        connection, _ = listener.accept()
        if connection.recv(4096) == b"END":
            break
        if answer is None:
            held.append(connection)
            continue
        connection.sendall(answer)
        connection.close()
    for one in (*held, connection):
        one.close()


def told_by(command, url, capsys):
    """What a command says of a server, on one line, without its own name."""
    assert main([*command.split(), "--server", url]) in (1, 2)
    captured = capsys.readouterr()
    return " ".join((captured.err or captured.out).split())


COMMANDS = ("top --once", "why id", "doctor", "bench")


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_listens(command, capsys):
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        told = told_by(command, url, capsys)
    assert f"no server answers at {url}: connection refused, nothing listens" in told
    assert UP in told


@pytest.mark.parametrize("command", COMMANDS)
def test_another_program_listens(command, capsys):
    """It hangs up, or speaks something else."""
    for answer, words in ((b"", "it hung up"), (b"\x15\x03\x01", "speaks no HTTP")):
        with listening(answer) as port:
            url = f"http://127.0.0.1:{port}"
            told = told_by(command, url, capsys)
        assert f"no server answers at {url}: " in told
        assert words in told


@pytest.mark.parametrize("command", ["top --once", "why id", "doctor"])
def test_a_server_that_is_stuck(command, capsys, monkeypatch):
    """It takes the question and says nothing."""
    monkeypatch.setattr(fetch, "TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr(doctor_server, "_TIMEOUT_SECONDS", 0.05)
    with listening(None) as port:
        told = told_by(command, f"http://127.0.0.1:{port}", capsys)
    assert "timed out" in told
    assert UP in told


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_host(command, capsys, monkeypatch):
    """No look-up is made by the test itself."""

    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    told = told_by(command, "http://nobody:8000", capsys)
    assert "no server answers at http://nobody:8000: host name unknown" in told
    assert "check its spelling" in told


def test_a_proxy_of_the_environment_is_not_asked(capsys, monkeypatch):
    """A server's own address is asked directly."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with listening(b"HTTP/1.0 404 \r\n\r\n{}") as port:
        told = told_by("why id", f"http://127.0.0.1:{port}", capsys)
    assert "start it with kvcellar serve" in told
