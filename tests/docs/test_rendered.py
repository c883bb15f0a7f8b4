"""Pages that are made from the code and the tests are what these make now."""

import argparse

import pytest
import render_docs
from pages import commands, options, support, test_files
from pages.markdown import table

from kvcellar.cli.main import build_parser
from kvcellar.config import NOT_SERVED, SETTING_KEYS


@pytest.mark.parametrize("name", render_docs.PAGES)
def test_the_page_is_up_to_date(name):
    """The file in docs/ is what the script writes; if not, run it."""
    assert render_docs.is_current(name), f"run {render_docs.COMMAND}"


def test_a_page_that_is_not_current_is_told_and_written(tmp_path, monkeypatch, capsys):
    """--check names the page and the command and fails; the command mends it."""
    monkeypatch.setattr(render_docs, "DOCS", tmp_path)
    monkeypatch.setattr(render_docs, "PAGES", {"one.md": lambda: "new\n"})
    (tmp_path / "one.md").write_text("old\n")
    assert 1 == render_docs.main(["--check"])
    said = capsys.readouterr().out
    assert f"docs/one.md is out of date: run {render_docs.COMMAND}\n" == said
    assert 0 == render_docs.main([])
    assert "new\n" == (tmp_path / "one.md").read_text()
    assert 0 == render_docs.main(["--check"])


def test_every_key_that_is_read_is_on_the_options_page():
    """Ours, those of vLLM's connectors, and those that are refused by name."""
    page = options.page()
    for key in SETTING_KEYS | NOT_SERVED:
        assert f"`{key}`" in page
    assert 'true: `mode` "lazy"; false: `mode` "eager"' in page
    assert "true: `store_decoded` false; false: `store_decoded` true" in page


@pytest.mark.parametrize("columns", ["40", "200"])
def test_help_does_not_depend_on_the_terminal(monkeypatch, columns):
    """The page is the same in a narrow and in a wide terminal."""
    monkeypatch.setenv("COLUMNS", "90")
    wanted = commands.page()
    monkeypatch.setenv("COLUMNS", columns)
    assert wanted == commands.page()


def test_every_command_has_its_section():
    """None is forgotten, and none is invented."""
    found = commands.commands(build_parser())
    assert "serve" in found
    assert all(isinstance(p, argparse.ArgumentParser) for p in found.values())
    sections = [w for w in commands.page().splitlines() if w.startswith("## ")]
    assert [f"## kvcellar {name}" for name in found] == sections


def test_bars_inside_a_cell_do_not_cut_it():
    """A table's cell may hold a bar."""
    assert ["| a |", "|---|", "| x \\| y |"] == list(table(("a",), [("x | y",)]))


def test_layouts_are_those_of_the_oracle():
    """What is read from the files equals what the oracle says itself."""
    pytest.importorskip("vllm")
    from kvcellar.testing.oracle.layouts import LAYOUT_NAMES

    assert support.oracle_names() == LAYOUT_NAMES


A_FILE = """
import pytest
from vllm.v1 import request as engines_request
NAMES = {"a": 1, "b": 2}
every_mode = pytest.mark.parametrize("mode", ["eager", "lazy"])

def helper():
    return engines_request.Request

@pytest.fixture
def made():
    return helper()

@every_mode
@pytest.mark.parametrize(("name", "size"), [(n, 3) for n in NAMES])
def test_many(name, size, mode): ...

@pytest.mark.engine
def test_one(made): ...
"""


@pytest.fixture
def a_file(tmp_path):
    path = tmp_path / "test_it.py"
    path.write_text(A_FILE)
    return test_files.read(str(path))


def test_parameters_are_multiplied_as_pytest_does(a_file):
    """Two lists of two make four cases, of decorators under a name as well."""
    cases = a_file.cases("test_many")
    assert 4 == len(cases)
    assert {"name": "b", "size": 3, "mode": "lazy"} in cases
    assert [{}] == a_file.cases("test_one")


def test_what_a_test_runs_on_is_read_through_its_helpers(a_file):
    """A fixture that uses a module counts, another test of the file does not."""
    assert a_file.uses_module("test_one", "vllm")
    assert not a_file.uses_module("test_many", "vllm")
    assert a_file.has_marker("test_one", "engine")
    assert not a_file.has_marker("test_many", "engine")


def test_a_test_that_was_renamed_is_missed(a_file):
    """The matrix cannot go by a test that is not there."""
    with pytest.raises(LookupError, match="has no test test_two"):
        a_file.test("test_two")
