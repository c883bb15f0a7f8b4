"""One request's account in plain words."""

import textwrap
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

from kvcellar.monitor.fetch import fetch_json, key_headers
from kvcellar.reasons import MEANINGS, MissReason
from kvcellar.serve.server_url import server_url

_LEAST_WIDTH = 40
_SOURCES = (
    ("device", "device_tokens", "on the device already"),
    ("host", "host_tokens", "loaded from host memory"),
    ("computed", "computed_tokens", "computed by this request:"),
)


def fetch_accounts(
    server: str, request_id: str, api_key: str | None = None
) -> dict[str, Any]:
    """What a server says of a request.

    Args:
        server: its URL.
        request_id: as the client or the log knows it.
        api_key: for a proxy that wants one.

    Raises:
        CellarError: there is no server, or it does not know the request.
    """
    path = f"/kvcellar/why/{urllib.parse.quote(request_id, safe='')}"
    return fetch_json(server_url(server), path, key_headers(api_key))


def describe_accounts(answer: Mapping[str, Any], width: int | None = None) -> str:
    """The accounts of a request, one after the other.

    Args:
        answer: the server's.
        width: of the terminal, in characters; None if there is none.
    """
    accounts = answer["accounts"]
    return "\n\n".join(
        "\n".join(_folded(text, width) for text in _describe(one)) for one in accounts
    )


def _folded(text: str, width: int | None) -> str:
    """A line that is too long goes on below, further to the right."""
    if width is None or len(text) <= width:
        return text
    margin = " " * (len(text) - len(text.lstrip()))
    return textwrap.fill(
        text.strip(),
        max(width, _LEAST_WIDTH),
        initial_indent=margin,
        subsequent_indent=f"{margin}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _describe(account: Mapping[str, Any]) -> Iterator[str]:
    total = account["prompt_tokens"]
    ago = duration(account["seconds_ago"])
    yield f"{account['request_id']}: {total:,} prompt tokens, {ago} ago"
    for name, key, meaning in _SOURCES:
        num_tokens = account[key]
        if not num_tokens and name == "computed":
            continue
        share = num_tokens / max(total, 1)
        yield f"  {name:<9}{num_tokens:>10,} {share:>6.1%}  {meaning}"
    for stretch in account["misses"]:
        yield from _describe_stretch(stretch)


def _describe_stretch(stretch: Mapping[str, Any]) -> Iterator[str]:
    first, end, reason = stretch["first_token"], stretch["end_token"], stretch["reason"]
    yield f"    {first:,} to {end:,} ({end - first:,}): {_meaning(reason)}"
    if "seconds_before" in stretch:
        when = duration(stretch["seconds_before"])
        cause = stretch["for_request"]
        behind = f", by request {cause}" if cause else ""
        yield f"      [{reason}] {when} before{behind}"


def _meaning(reason: str) -> str:
    """A newer server may know reasons that this program does not."""
    known = reason in set(MissReason)
    return MEANINGS[MissReason(reason)] if known else reason


def duration(seconds: float) -> str:
    """A time span in its largest fitting unit."""
    for limit, unit_seconds, unit in ((120, 1, "s"), (7200, 60, "min")):
        if seconds < limit:
            return f"{seconds / unit_seconds:.0f} {unit}"
    return f"{seconds / 3600:.1f} h"
