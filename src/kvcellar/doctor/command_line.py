"""Reading a server's command line: ``kvcellar serve``, ``vllm serve`` or a bare one."""

import argparse
import importlib
import json
from collections.abc import Sequence
from pathlib import Path

from kvcellar.doctor.configuration import Configuration
from kvcellar.doctor.transfer import Transfer, read_transfer
from kvcellar.errors import ConfigError
from kvcellar.serve.arguments import option_value
from kvcellar.serve.command import ServeSettings, transfer_config

_SERVER_MODULE = "vllm.entrypoints.openai.api_server"


def read_command_line(words: Sequence[str]) -> Configuration:
    """Understand the words that would start a server; nothing in them need be right.

    ``kvcellar serve MODEL --host-memory ...``, ``vllm serve MODEL ...`` and ``python -m
    vllm.entrypoints.openai.api_server ...`` are read, and also what follows ``serve``
    alone. The model, where it is not an option, comes before vLLM's options.

    Raises:
        ConfigError: ``--host-memory`` or ``--mode`` has no value.
    """
    options, rest = _parser().parse_known_args(_without_program(list(words)))
    rest = [word for word in rest if word != "--"]
    model = rest.pop(0) if rest and not rest[0].startswith("-") else None
    arguments, unread = with_config_file(rest)
    is_by_serve = options.host_memory is not None
    if is_by_serve:
        transfer = _written_by_serve(options.host_memory, options.mode)
    else:
        transfer = read_transfer(arguments)
        model = model or option_value(arguments, "--model")
    return Configuration(model, tuple(arguments), transfer, is_by_serve, unread)


def _written_by_serve(host_memory: str, mode: str) -> Transfer:
    """As the user wrote it: a size that makes no sense is a finding, not an end."""
    content = transfer_config(ServeSettings("", 1, mode))
    content["kv_connector_extra_config"] = {"host_memory": host_memory, "mode": mode}
    return Transfer(content)


def with_config_file(arguments: Sequence[str]) -> tuple[list[str], str]:
    """Put a ``--config`` file's options before the others, which win over them.

    Returns:
        The arguments, and why the file could not be read; empty if it was or if
        there is none.

    Source: ``load_config_file``, utils/argparse_utils.py, vLLM 0.32.
    """
    path = option_value(arguments, "--config") if "--config" in arguments else None
    if path is None:
        return list(arguments), ""
    position = list(arguments).index("--config")
    others = [*arguments[:position], *arguments[position + 2 :]]
    try:
        yaml = importlib.import_module("yaml")
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except ImportError:
        return others, f"config={path!r} was not read: PyYAML is not installed"
    except (OSError, ValueError) as cause:
        return others, f"config={path!r} cannot be read: {cause}"
    except yaml.YAMLError as cause:
        return others, f"config={path!r} is no YAML: {cause}".splitlines()[0]
    if not isinstance(content, dict):
        return others, f"config={path!r} holds no options"
    given = [word for key, value in content.items() for word in _words(str(key), value)]
    return [*given, *others], ""


def _words(key: str, value: object) -> list[str]:
    if isinstance(value, bool):
        return [f"--{key}" if value else f"--no-{key}"]
    if isinstance(value, list):
        return [f"--{key}", *map(str, value)] if value else []
    text = json.dumps(value) if isinstance(value, dict) else str(value)
    return [f"--{key}", text]


def _without_program(words: list[str]) -> list[str]:
    if _SERVER_MODULE in words:
        return words[words.index(_SERVER_MODULE) + 1 :]
    for position, word in enumerate(words[:3]):
        if word == "serve":
            return words[position + 1 :]
    return words


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise ConfigError(f"the server's command line cannot be read: {message}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--host-memory")
    parser.add_argument("--mode", default="eager")
    return parser
