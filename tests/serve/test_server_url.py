"""Addresses as people write them: taken, or refused in one sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcellar.cli.main import main
from kvcellar.errors import ConfigError
from kvcellar.serve.address import Address, address_of_url
from kvcellar.serve.server_url import server_url


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("host:81", "http://host:81"),
        ("https://host/", "https://host"),
        ("http://host/v1/", "http://host"),
        (" http://[::1]:8000/api/v1 ", "http://[::1]:8000/api"),
    ],
)
def test_servers_are_named_as_people_do(text, url):
    """The scheme may be left out; a slash at the end and ``/v1`` mean nothing."""
    assert url == server_url(text)


WRONG = {
    "": "it names no host",
    "http://": "it names no host",
    "/tmp/socket": "it names no host",
    "ftp://host": "ftp:// is not HTTP",
    "unix:///x": "unix:// is not HTTP",
    "http://[::1": "its brackets hold no IPv6 address",
    "http://a..b:8000": "'a..b' is no host name",
    "http://exa mple": "'exa mple' is no host name",
    "http://host:x": "its port is no number from 1 to 65535",
    "http://host:0": "its port is no number from 1 to 65535",
    "http://host:99999": "its port is no number from 1 to 65535",
    "http://me:secret@host": "it names a user",
    "http://host/?a=b": "it has more behind its path",
}


@pytest.mark.parametrize("command", ["top --once", "why id", "doctor", "bench"])
@pytest.mark.parametrize(("text", "problem"), WRONG.items())
def test_every_command_refuses_an_address_alike(command, text, problem, capsys):
    """Value, reason and an example, before anybody is asked."""
    assert 2 == main([*command.split(), "--server", text])
    assert (
        f"kvcellar: server={text!r} cannot be asked, {problem}; write it like "
        "http://127.0.0.1:8000\n"
    ) == capsys.readouterr().err


@given(st.text(max_size=30))
def test_any_text_is_taken_or_refused(text):
    """What is taken stays as it is when it is given again."""
    try:
        url = server_url(text)
    except ConfigError:
        return
    assert url == server_url(url)


def test_what_is_measured_is_the_server_itself():
    """``/v1`` is taken; TLS and what is behind a proxy's path are not."""
    assert Address("host", 81) == address_of_url("host:81/v1")
    assert Address("host", 80) == address_of_url("http://host")
    for text in ("https://host", "http://host/team"):
        with pytest.raises(ConfigError, match="name the server itself"):
            address_of_url(text)
