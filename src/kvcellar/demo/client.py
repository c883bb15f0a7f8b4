"""A small HTTP client of vLLM's OpenAI-compatible server; standard library only."""

import contextlib
import http.client
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kvcellar.demo.metrics import Samples, parse_metrics
from kvcellar.errors import CellarError
from kvcellar.serve.address import Address

_TIMEOUT_SECONDS = 120.0
_EVENT_PREFIX = b"data: "
_TOKEN_PREFIX = "token_id:"  # Source: vLLM, return_tokens_as_token_ids


@dataclass(frozen=True, slots=True)
class Completion:
    """One streamed answer.

    Attributes:
        ttft_seconds: from sending the request to the first token.
        last_token_seconds: from sending the request to the last one.
        tokens: ids of the generated tokens.
        logprobs: of the same tokens.
        num_prompt_tokens: length of the prompt.
        num_cached_tokens: prompt tokens that were not computed.
    """

    ttft_seconds: float
    last_token_seconds: float
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    num_prompt_tokens: int
    num_cached_tokens: int


class Client:
    """Asks one server, one request at a time."""

    def __init__(self, address: Address, model: str) -> None:
        self._address = address
        self._model = model

    def models(self) -> list[dict[str, Any]]:
        """What the server says about each model that it serves."""
        with self._request("GET", "/v1/models") as response:
            return list(json.load(response)["data"])

    def tokenize(self, text: str) -> list[int]:
        """The model's token ids of a text, with its special tokens."""
        body = {"model": self._model, "prompt": text}
        with self._request("POST", "/tokenize", body) as response:
            return [int(token) for token in json.load(response)["tokens"]]

    def metrics(self) -> Samples:
        """The server's counters at this moment."""
        with self._request("GET", "/metrics") as response:
            return parse_metrics(response.read().decode())

    def complete(
        self, prompt: Sequence[int], num_tokens: int, cache_salt: str
    ) -> Completion:
        """Generate exactly ``num_tokens`` greedily, streaming.

        Raises:
            CellarError: the server refused, or the stream ended early.
        """
        body = {
            "model": self._model,
            "prompt": list(prompt),
            "max_tokens": num_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "logprobs": 1,
            "return_tokens_as_token_ids": True,
            "cache_salt": cache_salt,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        started = time.perf_counter()
        with self._request("POST", "/v1/completions", body) as response:
            return _read_stream(response, started, num_tokens)

    @contextlib.contextmanager
    def _request(
        self, method: str, path: str, body: object = None
    ) -> Iterator[http.client.HTTPResponse]:
        address = self._address
        connection = http.client.HTTPConnection(
            address.reachable_host, address.port, timeout=_TIMEOUT_SECONDS
        )
        with contextlib.closing(connection):
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, json.dumps(body), headers)
            response = connection.getresponse()
            if response.status != http.client.OK:
                answer = response.read(500).decode(errors="replace")
                raise CellarError(
                    f"{method} {path} was refused with {response.status}: {answer}"
                )
            yield response


def _read_stream(
    response: http.client.HTTPResponse, started: float, num_tokens: int
) -> Completion:
    ttft_seconds = None
    last_token_seconds = 0.0
    tokens: list[int] = []
    logprobs: list[float] = []
    usage: dict[str, Any] = {}
    for event in _events(response):
        for choice in event.get("choices", ()):
            last_token_seconds = time.perf_counter() - started
            if ttft_seconds is None:
                ttft_seconds = last_token_seconds
            chosen = choice["logprobs"]
            tokens += [int(t.removeprefix(_TOKEN_PREFIX)) for t in chosen["tokens"]]
            logprobs += chosen["token_logprobs"]
        usage = event.get("usage") or usage
    if ttft_seconds is None or len(tokens) != num_tokens or not usage:
        raise CellarError(
            f"the server ended its answer after {len(tokens)} of {num_tokens} tokens"
        )
    details = usage.get("prompt_tokens_details") or {}
    return Completion(
        ttft_seconds=ttft_seconds,
        last_token_seconds=last_token_seconds,
        tokens=tuple(tokens),
        logprobs=tuple(logprobs),
        num_prompt_tokens=usage["prompt_tokens"],
        num_cached_tokens=details.get("cached_tokens") or 0,
    )


def _events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    for line in response:
        if not line.startswith(_EVENT_PREFIX):
            continue
        data = line.removeprefix(_EVENT_PREFIX).strip()
        if data == b"[DONE]":
            return
        event = json.loads(data)
        if "error" in event:
            raise CellarError(f"the server failed on a request: {event['error']}")
        yield event
