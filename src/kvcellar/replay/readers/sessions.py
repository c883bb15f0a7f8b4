"""Conversations with their text: one JSON object a session, in two shapes.

* Recorded turns: ``{"id", "requests": [{"input", "output"}, ...]}``, where ``input`` is
  the whole prompt of a turn and ``output`` the answer.
* Whole dialogues: ``{"id", "messages": [...]}``, where each message of the role
  ``assistant`` is the answer to a request that sent all messages before it. A line
  ``{"kind": "meta", "tools": [...]}`` gives the tools of the sessions behind it.

Only the order is read, not the clock: all requests arrive at 0, one session after the
other. Sessions are in the file one after the other, and the times of such records are
often those of writing.
"""

from collections.abc import Iterable, Iterator

from kvcellar.replay.readers.prompts import (
    ANSWER_START,
    render_answer,
    render_messages,
    render_tools,
)
from kvcellar.replay.readers.reader import ReadSettings
from kvcellar.replay.readers.record import Fields, Record
from kvcellar.replay.readers.store import NO_TIME
from kvcellar.replay.readers.text_requests import TextRequests
from kvcellar.replay.trace import TraceRequest


def recognises(value: object) -> bool:
    """Whether a trace whose first record is ``value`` is of this format."""
    if not isinstance(value, dict):
        return False
    if value.get("kind") in ("meta", "session"):
        return True
    requests = value.get("requests")
    if not isinstance(requests, list) or not requests:
        return False
    return isinstance(requests[0], dict) and "input" in requests[0]


class SessionsReader:
    """Reads both shapes, which may be mixed; see the module."""

    is_absolute = False

    def __init__(self, settings: ReadSettings) -> None:
        self._text = TextRequests(settings)
        self._tools = ""
        self.block_tokens = self._text.block_tokens

    def read(self, record: Record) -> Iterable[TraceRequest]:
        """Turn one session into its requests."""
        fields = record.fields()
        if fields.data.get("kind") == "meta":
            self._tools = render_tools(fields.data.get("tools"))
            return ()
        name = fields.text("id", f"session {record.line}")
        if "messages" in fields.data:
            return list(self._dialogue(name, fields.objects("messages")))
        return list(self._turns(name, fields.objects("requests")))

    def finish(self) -> Iterable[TraceRequest]:
        """Nothing is left over in this format."""
        return ()

    def _dialogue(self, name: str, messages: list[Fields]) -> Iterator[TraceRequest]:
        text = self._tools
        for message in messages:
            if message.data.get("role") == "assistant":
                prompt, answer = text + ANSWER_START, render_answer(message)
                yield self._text.request(NO_TIME, prompt, answer, name)
            text += render_messages([message])

    def _turns(self, name: str, turns: list[Fields]) -> Iterator[TraceRequest]:
        for turn in turns:
            prompt, answer = turn.text("input"), turn.text("output", "")
            yield self._text.request(NO_TIME, prompt, answer, name)
