"""A parser whose complaints are one line, and whose texts fit the terminal."""

import argparse
import shutil
import sys
import textwrap
from typing import NoReturn

EXIT_USAGE = 2
_LEAST_WIDTH = 40


class OneLineParser(argparse.ArgumentParser):
    """Leaves the usage to ``--help``; parsers of its subcommands do so, too."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and end with exit code 2."""
        hint = "" if "--help" in message else f"; see {self.prog} --help"
        self.exit(EXIT_USAGE, f"{told(f'{message}{hint}')}\n")


class ParagraphFormatter(argparse.RawDescriptionHelpFormatter):
    """Fills the paragraphs of a description; those that are indented stay as they are.

    In a paragraph with an indented line nothing is moved, so examples stay commands.
    """

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = textwrap.dedent(text).strip().split("\n\n")
        return "\n\n".join(_filled(one, width, indent) for one in paragraphs) + "\n"


def told(reason: object) -> str:
    """What is said on stderr; a terminal gets it in lines that break between words."""
    text = f"kvcellar: {reason}"
    if not sys.stderr.isatty():
        return text
    width = max(shutil.get_terminal_size().columns, _LEAST_WIDTH)
    lines = text.splitlines()
    return "\n".join(
        _wrapped(line, width, " " * (len(line) - len(line.lstrip()))) for line in lines
    )


def _filled(paragraph: str, width: int, indent: str) -> str:
    lines = paragraph.splitlines()
    if any(line.startswith(" ") for line in lines):
        return "\n".join(indent + line for line in lines)
    return textwrap.indent(_wrapped(" ".join(lines), width - len(indent), ""), indent)


def _wrapped(text: str, width: int, indent: str) -> str:
    """Broken between words only: a URL or an option stays whole."""
    return textwrap.fill(
        text.strip(),
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
