"""docs/commands.md: what ``--help`` prints, for the program and each command."""

import argparse
import os
from collections.abc import Iterator

from kvcellar.cli.main import build_parser
from pages.markdown import code, origin

_WIDTH = 90  # argparse leaves two columns free

_HEAD = (
    "# Command line",
    "",
    origin("the parsers in `src/kvcellar/cli/`"),
    "",
    "Every command answers wrong use with one line on stderr and exit code 2. Data "
    "goes to stdout, progress and logs to stderr.",
    "Names of models: [support matrix](support.md).",
    "",
)


def page() -> str:
    """The whole page; the text does not depend on the terminal."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(_WIDTH)
    try:
        return "\n".join((*_HEAD, *_sections(build_parser())))
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


def commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parser of each subcommand, by its name, in the order of the help."""
    found = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return dict(found[0].choices)


def _sections(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield from code(parser.format_help())
    for name, command in commands(parser).items():
        yield from ("", f"## kvcellar {name}", "")
        yield from code(command.format_help())
    yield ""
