"""The address of a running server, as people write it."""

import string
import urllib.parse

from kvcellar.errors import ConfigError

EXAMPLE = "http://127.0.0.1:8000"
_OPENAI_PATH = "/v1"


def server_url(text: str) -> str:
    """A server's URL, ready to have a path put behind it.

    ``http://`` is put before what has no scheme. A slash at the end and the ``/v1`` of
    OpenAI's clients are cut off; any other path, such as a proxy's, stays.

    Raises:
        ConfigError: it is not the URL of an HTTP server.
    """
    url = text.strip()
    if "://" not in url:
        url = f"http://{url}"
    problem = _problem_of(url)
    if problem:
        raise ConfigError(
            f"server={text!r} cannot be asked, {problem}; write it like {EXAMPLE}"
        )
    return url.rstrip("/").removesuffix(_OPENAI_PATH).rstrip("/")


def _problem_of(url: str) -> str:
    """Why no HTTP server can have this URL; empty if one can."""
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname
    except ValueError:
        return "its brackets hold no IPv6 address"
    checks = (
        (parts.scheme not in ("http", "https"), f"{parts.scheme}:// is not HTTP"),
        (not host, "it names no host"),
        (parts.username is not None, "it names a user"),
        (bool(parts.query or parts.fragment), "it has more behind its path"),
        (not _is_host(host or ""), f"{host!r} is no host name"),
        (not _is_port_possible(parts), "its port is no number from 1 to 65535"),
    )
    return next((problem for is_wrong, problem in checks if is_wrong), "")


def _is_host(text: str) -> bool:
    """Whether the name can be looked up; what is too long or empty cannot."""
    if any(char in string.whitespace or not char.isprintable() for char in text):
        return False
    try:
        return bool(text.encode("idna"))
    except UnicodeError:
        return False


def _is_port_possible(parts: urllib.parse.SplitResult) -> bool:
    try:
        return parts.port is None or parts.port > 0
    except ValueError:
        return False
