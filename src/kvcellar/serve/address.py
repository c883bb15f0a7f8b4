"""Where a server listens, and whether it answers there."""

import contextlib
import http.client
import random
import socket
import ssl
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass

from kvcellar.errors import ConfigError
from kvcellar.serve.arguments import has_option, option_value
from kvcellar.serve.server_url import EXAMPLE, server_url

DEFAULT_PORT = 8000  # Source: vLLM 0.32, entrypoints/openai/cli_args.py
_ALL_INTERFACES = frozenset({"", "0.0.0.0", "::"})  # compared, not bound
_PROBE_TIMEOUT_SECONDS = 2.0
# Unprivileged, below Linux's usual range for connections.
# Source: ip(7), ip_local_port_range.
_SERVER_PORTS = range(10_000, 32_768)
_MOST_TRIES = 100


@dataclass(frozen=True, slots=True)
class Address:
    """One server's address as seen from this machine.

    Attributes:
        host: name or number to bind; empty for all interfaces.
        port: TCP port.
        is_encrypted: whether the server speaks TLS.
    """

    host: str
    port: int
    is_encrypted: bool = False

    @property
    def reachable_host(self) -> str:
        """The host to connect to, where binding was to all interfaces."""
        return "127.0.0.1" if self.host in _ALL_INTERFACES else self.host

    @property
    def url(self) -> str:
        """The address as a URL without a path."""
        host = self.reachable_host
        bracketed = f"[{host}]" if ":" in host else host
        return f"http{'s' if self.is_encrypted else ''}://{bracketed}:{self.port}"


def address_of(vllm_arguments: Sequence[str]) -> Address:
    """Where vLLM will listen when it is given these arguments.

    Raises:
        ConfigError: the port is not a number of a TCP port.
    """
    text = option_value(vllm_arguments, "--port") or str(DEFAULT_PORT)
    if not text.isdecimal() or not 0 < int(text) < 2**16:
        raise ConfigError(
            f"port={text!r} cannot be used; give a number from 1 to 65535"
        )
    return Address(
        host=option_value(vllm_arguments, "--host") or "",
        port=int(text),
        is_encrypted=has_option(vllm_arguments, "--ssl-certfile"),
    )


def address_of_url(url: str) -> Address:
    """The server that a URL names; a path ``/v1`` is allowed and means nothing.

    Raises:
        ConfigError: it is not the URL of a server that speaks plain HTTP.
    """
    parts = urllib.parse.urlsplit(server_url(url))
    if parts.scheme != "http" or not parts.hostname or parts.path:
        raise ConfigError(
            f"server={url!r} cannot be measured; name the server itself, over HTTP and "
            f"without a path, like {EXAMPLE}"
        )
    return Address(parts.hostname, parts.port or http.client.HTTP_PORT)


def is_free(address: Address) -> bool:
    """Whether a server could bind ``address`` now.

    Raises:
        ConfigError: the host is not one of this machine's.
    """
    try:
        family, _, _, _, target = socket.getaddrinfo(
            address.host or None,
            address.port,
            family=socket.AF_UNSPEC if address.host else socket.AF_INET,
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As vLLM does: a port in TIME_WAIT is free, a listening one is not.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(target)
    except socket.gaierror as error:
        raise ConfigError(
            f"host={address.host!r} is unknown here ({error.strerror}); give a name or "
            "number of this machine, or leave --host out"
        ) from error
    except OSError:
        return False
    return True


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nothing listened on a moment ago.

    Seconds pass until a server listens on it. The kernel would choose among those that
    it gives to every connection in the meantime, so the choice is made below them.
    """
    for port in random.SystemRandom().sample(_SERVER_PORTS, _MOST_TRIES):
        if is_free(Address("127.0.0.1", port)):
            return port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_healthy(address: Address) -> bool:
    """Whether the server answers ``GET /health`` with 200 within two seconds."""
    connection = _connect(address)
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False


def _connect(address: Address) -> http.client.HTTPConnection:
    host, port = address.reachable_host, address.port
    if not address.is_encrypted:
        return http.client.HTTPConnection(host, port, timeout=_PROBE_TIMEOUT_SECONDS)
    # Only liveness is asked, nothing secret is sent, and local certificates are often
    # self-signed.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(
        host, port, timeout=_PROBE_TIMEOUT_SECONDS, context=context
    )
