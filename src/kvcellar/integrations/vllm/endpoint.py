"""``/kvcellar/status`` and ``/kvcellar/why/ID`` on vLLM's own HTTP server.

``--middleware kvcellar.integrations.vllm.endpoint.StatusEndpoint``; ``kvcellar serve``
adds it. The engine is another process, asked over its socket; this one holds nothing.
Like ``/metrics``, the two paths need no API key; no prompt's text is in them.
Source of the contract: ASGI specification 3.0, HTTP connection scope.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from kvcellar.status.run_folder import own_run_folder, sockets_near

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

STATUS_PATH = "/kvcellar/status"
WHY_PATH = "/kvcellar/why/"
_ENGINE_SECONDS = 5.0
_NO_ENGINE = (
    "no engine of this server answers on this machine; is kvcellar on, with its status "
    "setting, and does the engine run here"
)


class StatusEndpoint:
    """Pure ASGI middleware; every other path goes on to the application.

    Args:
        app: what comes next.
    """

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        question = _question_of(scope)
        if question is None:
            await self._app(scope, receive, send)
            return
        status, body = await _answer(question)
        await _respond(send, status, body, has_body=scope["method"] == "GET")


def _question_of(scope: Scope) -> dict[str, Any] | None:
    """What is asked, if it is one of our paths."""
    if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
        return None
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    if path == STATUS_PATH:
        asked = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        return {"ask": "status", "history": asked.get("history") == ["1"]}
    if path.startswith(WHY_PATH) and len(path) > len(WHY_PATH):
        return {"ask": "why", "request_id": path.removeprefix(WHY_PATH)}
    return None


async def _answer(question: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Ask every engine of this server; status code and body."""
    paths = sockets_near(own_run_folder(), os.getpid(), os.getppid())
    replies = await asyncio.gather(*(_ask(path, question) for path in paths))
    answers = [reply for reply in replies if "error" not in reply]
    if not answers:
        errors = [reply["error"] for reply in replies] or [_NO_ENGINE]
        return 503, {"error": "; ".join(errors)}
    if question["ask"] == "status":
        return 200, {"engines": answers}
    accounts = [account for answer in answers for account in answer["accounts"]]
    if not accounts:
        request_id = question["request_id"]
        return 404, {
            "error": f"request {request_id!r} is not among the latest requests that "
            "began to run; check the id, or ask sooner"
        }
    accounts.sort(key=lambda account: account["seconds_ago"])
    return 200, {"request_id": question["request_id"], "accounts": accounts}


async def _ask(path: Path, question: dict[str, Any]) -> dict[str, Any]:
    """One engine's answer; what went wrong, as ``{"error": ...}``."""
    try:
        async with asyncio.timeout(_ENGINE_SECONDS):
            reader, writer = await asyncio.open_unix_connection(os.fspath(path))
            try:
                writer.write(json.dumps(question).encode() + b"\n")
                await writer.drain()
                answer = json.loads(await reader.read())
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError) as cause:
        return {
            "error": f"the engine at {path.name} does not answer, {_words_of(cause)}; "
            "the server's log may say why"
        }
    return answer if isinstance(answer, dict) else {"error": "an answer is no object"}


def _words_of(cause: Exception) -> str:
    """Why an engine's socket gave no answer."""
    match cause:
        case TimeoutError():
            return f"silent for {_ENGINE_SECONDS:g} s"
        case ConnectionError() | FileNotFoundError():
            return "it has ended"
        case OSError():
            return str(cause.strerror or cause).lower()
    return "what it says is no JSON"


async def _respond(
    send: Send, status: int, body: dict[str, Any], *, has_body: bool
) -> None:
    text = json.dumps(body).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(text)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text if has_body else b""})
