import http.server
import socket
import threading
from collections.abc import Iterator

import pytest

from kvcellar.errors import ConfigError
from kvcellar.serve import address as address_module
from kvcellar.serve.address import (
    Address,
    address_of,
    free_port,
    is_free,
    is_healthy,
)


class _Health(http.server.BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[http.server.HTTPServer]:
    with http.server.HTTPServer(("127.0.0.1", 0), _Health) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def test_defaults_are_those_of_vllm():
    """Without arguments the server listens on port 8000 of all interfaces."""
    address = address_of([])
    assert address == Address("", 8000)
    assert address.url == "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("arguments", "url"),
    [
        (["--host", "0.0.0.0", "--port", "81"], "http://127.0.0.1:81"),
        (["--host=::1"], "http://[::1]:8000"),
        (["--ssl-certfile", "c.pem", "--host", "a.b"], "https://a.b:8000"),
    ],
)
def test_url_is_one_to_connect_to(arguments: list[str], url: str):
    """The URL names a host that can be connected to, with its scheme."""
    assert address_of(arguments).url == url


@pytest.mark.parametrize("port", ["0", "65536", "-1", "http", ""])
def test_impossible_ports_are_refused(port: str):
    """A port that no server can listen on is named in the refusal."""
    if port:
        with pytest.raises(ConfigError, match=f"port='{port}'"):
            address_of([f"--port={port}"])
    else:
        assert address_of(["--port="]).port == 8000


def test_listening_port_is_not_free(server: http.server.HTTPServer):
    """A port is taken while a server listens on it, whatever host is asked for."""
    port = server.server_address[1]
    assert not is_free(Address("127.0.0.1", port))
    assert not is_free(Address("", port))


def test_free_port_is_free():
    """A port just chosen can be bound."""
    assert is_free(Address("127.0.0.1", free_port()))


def test_free_port_is_none_that_connections_get():
    """While the server starts, no connection of others is given its port."""
    assert all(free_port() < 32_768 for _ in range(20))


def test_free_port_is_the_kernels_where_ours_are_taken(monkeypatch: pytest.MonkeyPatch):
    """A machine whose lower ports are all taken still has one."""
    with monkeypatch.context() as patch:
        patch.setattr(address_module, "is_free", lambda _: False)
        port = free_port()
    assert is_free(Address("127.0.0.1", port))


def test_unknown_host_is_refused(monkeypatch: pytest.MonkeyPatch):
    """A host that cannot be resolved is named, with what to do."""

    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(ConfigError, match=r"host='nowhere\.invalid' is unknown"):
        is_free(Address("nowhere.invalid", 80))


def test_health_is_a_200_on_the_health_path(
    server: http.server.HTTPServer, monkeypatch: pytest.MonkeyPatch
):
    """Only a server that answers 200 is healthy."""
    address = Address("127.0.0.1", server.server_address[1])
    assert is_healthy(address)
    monkeypatch.setattr(_Health, "status", 503)
    assert not is_healthy(address)


def test_silence_is_not_healthy():
    """Where nothing listens, or TLS meets plain text, the answer is no."""
    assert not is_healthy(Address("127.0.0.1", free_port()))


def test_tls_against_a_plain_server_is_not_healthy(server: http.server.HTTPServer):
    """A failed handshake is an answer, not an exception."""
    port = server.server_address[1]
    assert not is_healthy(Address("127.0.0.1", port, is_encrypted=True))
