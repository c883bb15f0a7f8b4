"""A parser whose complaints are one line, and whose texts fit the terminal."""

import argparse
import difflib
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

EXIT_USAGE = 2
_LEAST_WIDTH = 40
_WRONG_CHOICE = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)")


class OneLineParser(argparse.ArgumentParser):
    """Leaves the usage to ``--help``; parsers of its subcommands do so, too."""

    _given: Sequence[str] = ()

    def parse_known_args(  # type: ignore[override]  # its overloads are not repeated
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """As argparse does; what was given is kept for ``error``."""
        self._given = sys.argv[1:] if args is None else list(args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print what is wrong, and what may have been meant; end with exit code 2."""
        near = "" if "did you mean" in message else self._meant(message)
        hint = "" if "--help" in message else f"; see {self.prog} --help"
        self.exit(EXIT_USAGE, f"{told(f'{message}{near}{hint}')}\n")

    def _meant(self, message: str) -> str:
        """The known word beside a misspelt one; empty if there is none.

        A required option that was misspelt counts as missing for argparse, which then
        says nothing of the word that was given.
        """
        choice = _WRONG_CHOICE.search(message)
        if choice:
            words, known = [choice[1]], re.findall(r"[\w.-]+", choice[2])
        elif "required" in message:
            known = re.findall(r"--[\w-]+", message)
            options = (word.partition("=")[0] for word in self._given)
            words = [w for w in options if w not in self._option_string_actions]
        else:
            return ""
        return did_you_mean(words, known)


class ParagraphFormatter(argparse.RawDescriptionHelpFormatter):
    """Fills the paragraphs of a description; those that are indented stay as they are.

    In a paragraph with an indented line nothing is moved, so examples stay commands.
    """

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = textwrap.dedent(text).strip().split("\n\n")
        return "\n\n".join(_filled(one, width, indent) for one in paragraphs) + "\n"


def did_you_mean(words: Iterable[str], known: Sequence[str]) -> str:
    """``; did you mean ...`` for the first of the words that is like a known one."""
    for word in words:
        near = difflib.get_close_matches(word, known, n=1)
        if near:
            return f"; {word} is not known, did you mean {near[0]}"
    return ""


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


def notes_filled(text: str, label: str) -> str:
    """A report; on a terminal its notes break between words, tables stay.

    Args:
        label: what lines begin with that are notes.
    """
    if not sys.stdout.isatty():
        return text
    width = max(shutil.get_terminal_size().columns, _LEAST_WIDTH)
    lines = text.split("\n")
    return "\n".join(
        _wrapped(line, width, "", "      ") if line.startswith(label) else line
        for line in lines
    )


def _filled(paragraph: str, width: int, indent: str) -> str:
    lines = paragraph.splitlines()
    if any(line.startswith(" ") for line in lines):
        return "\n".join(indent + line for line in lines)
    return textwrap.indent(_wrapped(" ".join(lines), width - len(indent), ""), indent)


def _wrapped(text: str, width: int, indent: str, hanging: str = "") -> str:
    """Broken between words only: a URL or an option stays whole."""
    return textwrap.fill(
        text.strip(),
        width,
        initial_indent=indent,
        subsequent_indent=indent + hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
