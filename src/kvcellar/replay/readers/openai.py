"""Logs of OpenAI-style requests: JSON lines of chat or plain completions.

A line is the request's body, or an object that holds it as ``body`` or ``request``:

* ``messages`` (with ``tools``), rendered by the template of `prompts`, or ``prompt``: a
  text, a list of texts (one request each), or a list of token numbers.
* Time, from the first of ``timestamp``, ``created``, ``created_at``, ``time``, ``ts``
  and ``t`` that is there: seconds, milliseconds (recognised by their size) or ISO 8601.
  A line without one arrives with the line before it.
* Answer, from ``response`` (a text, a message, or a response with ``choices``) or from
  ``choices`` beside the request; its first choice counts. Without text, the number of
  output tokens is ``usage.completion_tokens``, or else 0.
* Session, from ``session_id``, ``conversation_id`` or ``session``.

Unless a tokenizer is named, a byte of UTF-8 counts as a token, here and in lengths.
"""

import datetime
from collections.abc import Iterable
from dataclasses import replace

from kvcellar.replay.readers.prompts import (
    ANSWER_END,
    ANSWER_START,
    render_answer,
    render_messages,
    render_tools,
)
from kvcellar.replay.readers.reader import ReadSettings
from kvcellar.replay.readers.record import Fields, Record, fields_of
from kvcellar.replay.readers.store import NO_TIME
from kvcellar.replay.readers.text_requests import TextRequests
from kvcellar.replay.trace import TraceRequest

_BODIES = ("body", "request")
_TIMES = ("timestamp", "created", "created_at", "time", "ts", "t")
_SESSIONS = ("session_id", "conversation_id", "session")
_MILLISECONDS_FROM = 1e11  # as seconds this would be the year 5138


def recognises(value: object) -> bool:
    """Whether a trace whose first record is ``value`` is of this format."""
    if not isinstance(value, dict):
        return False
    bodies = [value, *(value.get(name) for name in _BODIES)]
    return any(
        isinstance(body, dict) and ("messages" in body or "prompt" in body)
        for body in bodies
    )


class OpenAIReader:
    """Reads request logs; see the module."""

    is_absolute = True

    def __init__(self, settings: ReadSettings) -> None:
        self._text = TextRequests(settings)
        self.block_tokens = self._text.block_tokens

    def read(self, record: Record) -> Iterable[TraceRequest]:
        """Turn one line into its request, or its requests for a list of prompts."""
        outer = record.fields()
        body = _body(outer)
        seconds = _seconds(outer, body)
        session = _session(outer, body)
        answer = _answer(outer, is_chat="messages" in body.data)
        found = [
            self._text.request(seconds, prompt, answer, session)
            for prompt in _prompts(body)
        ]
        if all(request.num_output_tokens for request in found):
            return found
        num_tokens = _num_output_tokens(outer)
        return [replace(request, num_output_tokens=num_tokens) for request in found]

    def finish(self) -> Iterable[TraceRequest]:
        """Nothing is left over in this format."""
        return ()


def _body(outer: Fields) -> Fields:
    for name in _BODIES:
        if isinstance(outer.data.get(name), dict):
            return _child(outer, name)
    return outer


def _child(outer: Fields, name: str) -> Fields:
    place = outer.prefix + name
    return fields_of(outer.path, outer.line, outer.data.get(name), place)


def _prompts(body: Fields) -> list[str | list[int]]:
    if "messages" in body.data:
        text = render_tools(body.data.get("tools"))
        return [text + render_messages(body.objects("messages")) + ANSWER_START]
    prompt = body.data.get("prompt")
    if isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt, list) and prompt:
        if all(isinstance(item, str) for item in prompt):
            return list(prompt)
        if all(type(item) is int and 0 <= item < 2**32 for item in prompt):
            return [prompt]
    raise body.error("prompt", "a text, a list of texts or a list of token numbers")


def _seconds(outer: Fields, body: Fields) -> float:
    for fields in (outer, body):
        for name in _TIMES:
            value = fields.data.get(name)
            if isinstance(value, str):
                return _parse_time(fields, name, value)
            if value is not None:
                number = fields.number(name)
                return number / 1000.0 if number >= _MILLISECONDS_FROM else number
    return NO_TIME


def _parse_time(fields: Fields, name: str, value: str) -> float:
    try:
        time = datetime.datetime.fromisoformat(value)
    except ValueError as error:
        raise fields.error(name, "seconds, or a time in ISO 8601") from error
    if time.tzinfo is None:
        time = time.replace(tzinfo=datetime.UTC)
    return time.timestamp()


def _session(outer: Fields, body: Fields) -> str:
    for fields in (outer, body):
        for name in _SESSIONS:
            if fields.data.get(name) is not None:
                return fields.text(name)
    return ""


def _response(outer: Fields) -> Fields:
    if not isinstance(outer.data.get("response"), dict):
        return outer
    return _body(_child(outer, "response"))


def _answer(outer: Fields, *, is_chat: bool) -> str | None:
    text = outer.data.get("response")
    response = _response(outer)
    if isinstance(response.data.get("choices"), list):
        choices = response.objects("choices")
        if choices and "message" in choices[0].data:
            return render_answer(_child(choices[0], "message"))
        text = choices[0].data.get("text") if choices else None
    elif "content" in response.data:
        return render_answer(response)
    if not isinstance(text, str):
        return None
    return text + ANSWER_END if is_chat else text


def _num_output_tokens(outer: Fields) -> int:
    response = _response(outer)
    if response.data.get("usage") is None:
        return 0
    return _child(response, "usage").whole("completion_tokens", 0)
