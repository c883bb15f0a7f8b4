"""Asking a server's ``/kvcellar/`` paths."""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from kvcellar.errors import CellarError, ConfigError
from kvcellar.serve.no_answer import no_answer

TIMEOUT_SECONDS = 10.0
_MOST_ANSWER_BYTES = 64 * 2**20
_KEY_WANTED = (401, 403)
# A server's own address is asked directly, whatever proxies the environment names.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def fetch_json(
    url: str, path: str, headers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The JSON object at a path of a server.

    Args:
        url: as ``server_url`` returns it.
        path: with its slash, quoted.
        headers: to send along.

    Raises:
        NoAnswerError: there is no server.
        CellarError: it does not answer with an object.
    """
    request = urllib.request.Request(url + path, headers=dict(headers or {}))
    try:
        with _DIRECT.open(request, timeout=TIMEOUT_SECONDS) as response:
            text = response.read(_MOST_ANSWER_BYTES)
    except urllib.error.HTTPError as error:
        raise CellarError(_refusal(url, path, error)) from error
    except (OSError, http.client.HTTPException) as error:
        raise no_answer(url, error) from error
    return _object(text, url + path)


def key_headers(api_key: str | None) -> dict[str, str]:
    """The header that a key is sent in, without space around it; none without one.

    Raises:
        ConfigError: no header can hold it.
    """
    key = (api_key or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(
            "api_key cannot be sent: it has line breaks or letters beyond ASCII; give "
            "the key alone"
        )
    return {"Authorization": f"Bearer {key}"} if key else {}


def _refusal(url: str, path: str, error: urllib.error.HTTPError) -> str:
    """Our own words if the answer has them, else what is probably missing."""
    if error.code in _KEY_WANTED:
        return (
            f"{url} wants a key (status {error.code}), as vLLM itself does not for "
            "these paths; go past what is in front of it, or give its --api-key"
        )
    try:
        found = json.loads(error.read(_MOST_ANSWER_BYTES))["error"]
    except (ValueError, KeyError, TypeError):
        found = None
    if isinstance(found, str):
        return found
    return (
        f"{url} has no {path} (status {error.code}); start it with kvcellar serve, "
        "or add --middleware kvcellar.integrations.vllm.endpoint.StatusEndpoint"
    )


def _object(text: bytes, where: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise CellarError(f"{where} answers with no JSON object; is it a vLLM server")
    return found
