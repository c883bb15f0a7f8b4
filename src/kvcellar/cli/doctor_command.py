"""``kvcellar doctor``: its options, and what it prints."""

import argparse
import contextlib
import dataclasses
import logging
import os
import sys
from typing import TYPE_CHECKING

from kvcellar.cli.parser import ParagraphFormatter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kvcellar.doctor.configuration import Configuration

_DESCRIPTION = """\
Look over this machine and, if asked, a server's command line and a running server, and
say what is wrong, why it matters and what to do.

  kvcellar doctor
  kvcellar doctor -- MODEL --host-memory 64GiB --tensor-parallel-size 2
  kvcellar doctor -- vllm serve MODEL --kv-transfer-config '{...}'
  kvcellar doctor --server http://127.0.0.1:8000

Nothing is started or changed, and neither torch nor vLLM is loaded.

Exit code: 0 if all is fine or only noted, 1 if something is lost or may fail, 2 if it
cannot work or the options are wrong.
"""


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> None:
    """Add ``doctor`` to the command line."""
    parser = subparsers.add_parser(
        "doctor",
        help="look over this machine, a configuration and a running server",
        usage="kvcellar doctor [--server URL] [options] [-- serve arguments]",
        description=_DESCRIPTION,
        formatter_class=ParagraphFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--server", metavar="URL", help="ask this running server, too")
    parser.add_argument(
        "--device-memory",
        metavar="SIZE",
        help="KV cache memory of each device, where the command line does not say it",
    )
    parser.add_argument(
        "--prompt-tokens",
        metavar="N",
        type=int,
        help="length of a usual prompt (default: the running server's mean, or 4096)",
    )
    parser.add_argument("--verbose", action="store_true", help="list what is fine, too")
    parser.add_argument(
        "--json", action="store_true", help="print everything as one JSON object"
    )
    parser.set_defaults(run=run, takes_vllm_arguments=True, needs_separator=True)


def run(options: argparse.Namespace, arguments: "Sequence[str]") -> int:
    """Examine, print, and tell the worst by the exit code."""
    from kvcellar.doctor.facts import gather
    from kvcellar.doctor.json_report import json_of
    from kvcellar.doctor.machine import read_this_machine
    from kvcellar.doctor.report import examine
    from kvcellar.doctor.server import read_server
    from kvcellar.doctor.software import read_software
    from kvcellar.doctor.text import text_of

    configuration = _configuration(options, arguments)
    server = None if options.server is None else read_server(options.server)
    machine, software = read_this_machine(), read_software()
    with _without_warnings("kvcellar.config"):  # the findings have them
        report = examine(gather(machine, software, configuration, server))
    if options.json:
        print(json_of(report))
    else:
        is_terminal = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        print(text_of(report, verbose=options.verbose, colour=is_terminal))
    return report.exit_code


@contextlib.contextmanager
def _without_warnings(name: str) -> "Iterator[None]":
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _configuration(
    options: argparse.Namespace, arguments: "Sequence[str]"
) -> "Configuration | None":
    from kvcellar.config import parse_bytes
    from kvcellar.doctor.command_line import read_command_line
    from kvcellar.errors import ConfigError

    if options.prompt_tokens is not None and options.prompt_tokens < 1:
        raise ConfigError(
            f"prompt_tokens={options.prompt_tokens} is not possible; use 1 or more"
        )
    if not arguments:
        return None
    device_memory = options.device_memory
    return dataclasses.replace(
        read_command_line(arguments),
        device_memory_bytes=(
            None
            if device_memory is None
            else parse_bytes(device_memory, "device_memory")
        ),
        prompt_tokens=options.prompt_tokens,
    )
