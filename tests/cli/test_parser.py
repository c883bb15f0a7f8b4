"""What the command line says fits the terminal."""

import argparse
import subprocess
import sys

import pytest

from kvcellar.cli import parser as parser_module
from kvcellar.cli.main import EXIT_BROKEN_PIPE, build_parser, parse
from kvcellar.cli.parser import ParagraphFormatter, notes_filled, told


def parsers():
    """The program's own parser, and each command's."""
    whole = build_parser()
    (commands,) = (
        a for a in whole._actions if isinstance(a, argparse._SubParsersAction)
    )
    return {"kvcellar": whole, **commands.choices}


@pytest.mark.parametrize("columns", [80, 100])
@pytest.mark.parametrize("name", parsers())
def test_help_fits_the_terminal(name, columns, monkeypatch):
    """No line of any help text is broken by the terminal itself."""
    monkeypatch.setenv("COLUMNS", str(columns))
    text = parsers()[name].format_help()
    assert max(map(len, text.splitlines())) <= columns


def test_examples_in_descriptions_stay_as_they_are(monkeypatch):
    """Paragraphs are filled, indented lines are not touched."""
    monkeypatch.setenv("COLUMNS", "42")
    text = "one two three\nfour five six seven eight\n\n  kvcellar plan  --model X\n"
    parser = argparse.ArgumentParser(
        "x", description=text, formatter_class=ParagraphFormatter, add_help=False
    )
    filled = "one two three four five six seven eight\n\n  kvcellar plan  --model X\n"
    assert filled in parser.format_help()


class Terminal:
    def isatty(self):
        return True


def test_errors_break_between_words(monkeypatch):
    """On a terminal; a file or a pipe gets one line, whatever its length."""
    reason = "no server answers at http://127.0.0.1:8000 (refused); " + "check it " * 9
    assert f"kvcellar: {reason}" == told(reason)
    monkeypatch.setattr(parser_module.sys, "stderr", Terminal())
    monkeypatch.setenv("COLUMNS", "60")
    lines = told(reason).splitlines()
    assert max(map(len, lines)) <= 60
    assert f"kvcellar: {reason}".split() == " ".join(lines).split()


def test_notes_of_a_report_break_between_words(monkeypatch):
    """On a terminal; tables keep their lines, and a pipe gets all as it is."""
    table, note = "a  " * 30, "note: " + "some words " * 12
    assert f"{table}\n{note}" == notes_filled(f"{table}\n{note}", "note: ")
    monkeypatch.setattr(parser_module.sys, "stdout", Terminal())
    monkeypatch.setenv("COLUMNS", "60")
    first, *rest = notes_filled(f"{table}\n{note}", "note: ").split("\n")
    assert first == table
    assert max(map(len, rest)) <= 60
    assert all(one.startswith(" " * 6) for one in rest[1:])
    assert note.split() == " ".join(rest).split()


def test_a_reader_that_has_seen_enough():
    """As with ``| head -1``: no traceback, and the exit code of a broken pipe."""
    command = [sys.executable, "-m", "kvcellar", "plan", "--model", "llama-3.1-8b"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        running.stdout.close()
        assert "" == running.stderr.read()
    assert EXIT_BROKEN_PIPE == running.returncode


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["paln", "--model", "x"], "did you mean plan"),
        (["plan", "--modle", "x"], "--modle is not known, did you mean --model"),
        (["plan", "--model=x", "--modes", "lazy"], "did you mean --mode"),
        (["demo", "--tiny", "gema3"], "did you mean gemma3"),
        (["plan"], ""),
        (["serve", "m", "--host-memry", "1GiB"], "did you mean --host-memory"),
        (["serve", "--port", "1", "--model-impl", "auto"], ""),
    ],
)
def test_misspelt_words_get_the_nearest_known(given, meant, capsys):
    """Also a required option, which argparse calls missing; else nothing is guessed."""
    with pytest.raises(SystemExit):
        parse(build_parser(), given)
    told_of = capsys.readouterr().err
    assert meant in told_of
    assert bool(meant) == ("did you mean" in told_of)
    assert 1 == told_of.count("\n")
