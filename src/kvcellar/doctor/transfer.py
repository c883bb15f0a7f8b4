"""What ``--kv-transfer-config`` says: our connector, and those beside it."""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvcellar.config import Settings, settings_from_extra_config
from kvcellar.errors import ConfigError
from kvcellar.serve.arguments import option_parts, option_value
from kvcellar.serve.command import CONNECTOR_MODULE, CONNECTOR_NAME

OPTION = "--kv-transfer-config"
_SEVERAL = "MultiConnector"  # Source: vLLM 0.32, kv_connector/factory.py


@dataclass(frozen=True)  # no slots: what is parsed is kept
class Transfer:
    """A transfer configuration, as it stands.

    Attributes:
        content: its object; None if the option is not given.
        problem: why the option's text is no object; empty if it is one.
    """

    content: Mapping[str, object] | None = None
    problem: str = ""

    @property
    def connectors(self) -> tuple[Mapping[str, object], ...]:
        """Every connector's own configuration, in the order they are asked."""
        if self.content is None:
            return ()
        if self.content.get("kv_connector") != _SEVERAL:
            return (self.content,)
        children = _extra_of(self.content).get("connectors")
        listed = children if isinstance(children, list) else []
        return tuple(child for child in listed if isinstance(child, Mapping))

    @property
    def ours(self) -> Mapping[str, object] | None:
        """Our connector's part; None if it is not there."""
        return next((one for one in self.connectors if _is_ours(one)), None)

    @property
    def others(self) -> tuple[Mapping[str, object], ...]:
        """The connectors that are not ours."""
        return tuple(one for one in self.connectors if not _is_ours(one))

    @property
    def extra(self) -> Mapping[str, object]:
        """Our connector's settings as the user wrote them."""
        return {} if self.ours is None else _extra_of(self.ours)

    @property
    def refusal(self) -> str:
        """Why our connector would refuse its settings; empty if it would not."""
        return self._parsed[1]

    @property
    def settings(self) -> Settings | None:
        """Our connector's settings; None if it is not there, or would refuse."""
        return self._parsed[0]

    @functools.cached_property
    def _parsed(self) -> tuple[Settings | None, str]:
        """Read once, since reading may log."""
        if self.ours is None:
            return None, ""
        try:
            return settings_from_extra_config(self.extra), ""
        except ConfigError as cause:
            return None, str(cause)


def name_of(connector: Mapping[str, object]) -> str:
    """A connector's class name."""
    return str(connector.get("kv_connector", ""))


def extra_of(connector: Mapping[str, object]) -> Mapping[str, object]:
    """A connector's extra configuration; empty where it is no object."""
    return _extra_of(connector)


def read_transfer(arguments: Sequence[str]) -> Transfer:
    """Find the option among vLLM's arguments, whole or key by key."""
    text = option_value(arguments, OPTION)
    content: dict[str, object] = {}
    if text is not None:
        try:
            read = json.loads(text)
        except ValueError as cause:
            return Transfer(problem=f"{text!r} is no JSON: {cause}")
        if not isinstance(read, dict):
            return Transfer(problem=f"{text!r} is no JSON object")
        content = read
    parts = option_parts(arguments, OPTION)
    for path, value in parts.items():
        _put(content, path.split("."), _value_of(value))
    return Transfer(content if text is not None or parts else None)


def _put(content: dict[str, object], path: list[str], value: object) -> None:
    for key in path[:-1]:
        inner = content.setdefault(key, {})
        if not isinstance(inner, dict):
            return
        content = inner
    content[path[-1]] = value


def _value_of(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _extra_of(connector: Mapping[str, object]) -> Mapping[str, object]:
    extra = connector.get("kv_connector_extra_config")
    return extra if isinstance(extra, Mapping) else {}


def _is_ours(connector: Mapping[str, object]) -> bool:
    return (
        connector.get("kv_connector") == CONNECTOR_NAME
        or connector.get("kv_connector_module_path") == CONNECTOR_MODULE
    )
