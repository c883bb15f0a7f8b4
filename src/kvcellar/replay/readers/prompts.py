"""From chat messages to the text that a model would see, by one plain template.

The template is ChatML, the same for every model, so that a prefix stays one. For each
message it writes ``<|im_start|>ROLE``, a new line, the content, ``<|im_end|>`` and a
new line. Tools come first, as a message of the role ``tools`` that holds their JSON. A
prompt ends with the line ``<|im_start|>assistant``, behind which the answer begins.

Content given in parts is joined: texts as they are, others (images, sounds) as JSON.
Tool calls follow the content as the JSON list of their functions.
"""

import json
from collections.abc import Sequence

from kvcellar.replay.readers.record import Fields

ANSWER_START = "<|im_start|>assistant\n"
ANSWER_END = "<|im_end|>\n"


def render_tools(tools: object) -> str:
    """Render tool schemas as a prompt begins with them; nothing for no tools."""
    return f"<|im_start|>tools\n{json.dumps(tools)}{ANSWER_END}" if tools else ""


def render_messages(messages: Sequence[Fields]) -> str:
    """Render messages in their order.

    Raises:
        TraceError: a role is missing, or a content is neither text nor parts.
    """
    return "".join(
        f"<|im_start|>{message.text('role')}\n{render_answer(message)}"
        for message in messages
    )


def render_answer(message: Fields) -> str:
    """Render what a message adds behind the line of its role."""
    return f"{_content(message)}{_tool_calls(message)}{ANSWER_END}"


def _content(message: Fields) -> str:
    content = message.data.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise message.error("content", "a text or a list of parts")
    return "".join(_part(part) for part in content)


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return str(part["text"])
    return json.dumps(part)


def _tool_calls(message: Fields) -> str:
    if not message.data.get("tool_calls"):
        return ""
    calls = message.objects("tool_calls")
    return json.dumps([call.data.get("function") for call in calls])
