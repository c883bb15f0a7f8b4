"""Every command that the docs show is one that can be typed."""

import json
import re
import shlex

import pytest
from markdown_files import FILES, blocks, name_of
from pages.commands import commands as subparsers_of

from kvcellar.cli.main import build_parser, main, parse
from kvcellar.config import settings_from_extra_config

KNOWN = subparsers_of(build_parser())
OPENERS = r"(\$ )?(kvcellar|vllm|curl|--kv)\b"  # what a shell would read
PAGES = {name_of(path): path.read_text(encoding="utf-8") for path in FILES}


def shell_lines(text):
    """Lines of all blocks, joined where a backslash or an open quote goes on."""
    for block in blocks(text):
        waiting = ""
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            whole = f"{waiting} {line.strip()}" if waiting else line.strip()
            is_open = re.match(OPENERS, whole) and whole.count("'") % 2
            waiting = whole if is_open else ""
            if not is_open:
                yield whole.removeprefix("$ ")
        assert not waiting, waiting


def commands():
    for page, text in PAGES.items():
        for line in shell_lines(text):
            if line.startswith("kvcellar ") and is_command(line):
                yield pytest.param(line, id=f"{page}: {line[:60]}")


def is_command(line):
    """Not what a log or a sentence says, and nothing that is cut short."""
    names = "|".join(KNOWN)
    is_cut = "[" in line or "{...}" in line or line.endswith(" ...")
    return re.match(rf"kvcellar ({names})( |$)", line) is not None and not is_cut


def words_of(line):
    """The words behind ``kvcellar``, without remarks set off by spaces or a #."""
    line = re.split(r" {3,}| # ", line)[0]
    return shlex.split(line)[1:]


@pytest.mark.parametrize("line", list(commands()))
def test_the_parser_takes_it(line):
    """No option is unknown, none is missing, and every value is of its type."""
    options, _ = parse(build_parser(), words_of(line))
    assert callable(options.run)


def test_commands_were_found():
    """The pages show commands of each kind; else these tests would prove nothing."""
    found = {words_of(param.values[0])[0] for param in commands()}
    assert {"serve", "plan", "doctor", "replay", "bench", "why"} <= found


NOT_BUILT = {"docs/design.md": {"digest", "top"}}  # the design says more than there is


@pytest.mark.parametrize("page", PAGES)
def test_commands_named_in_a_sentence_exist(page):
    """Nobody is sent to a command that there is not."""
    named = set(re.findall(r"`kvcellar ([a-z]+)", PAGES[page]))
    assert named - set(KNOWN) <= NOT_BUILT.get(page, set())


def plans():
    lines = {param.values[0] for param in commands()}
    return sorted(line for line in lines if line.startswith("kvcellar plan"))


@pytest.mark.parametrize("line", [line for line in plans() if "FILE" not in line])
def test_plans_of_the_docs_can_be_made(line, capsys):
    """``plan`` needs no server: it runs, and makes a plan."""
    assert 0 == main(words_of(line))
    assert "what fits" in capsys.readouterr().out


def transfer_configs():
    for page, text in PAGES.items():
        for line in shell_lines(text):
            found = re.search(
                r"--kv-transfer-config '(\{ *\"kv_connector\".*?\})'", line
            )
            if found:
                yield pytest.param(found.group(1), id=page)


@pytest.mark.parametrize("text", list(transfer_configs()))
def test_transfer_configurations_are_accepted(text):
    """JSON that loads kvcellar, with settings that it takes."""
    content = json.loads(text)
    assert "CellarConnector" == content["kv_connector"]
    assert "kvcellar.integrations.vllm" == content["kv_connector_module_path"]
    assert "kv_both" == content["kv_role"]
    settings_from_extra_config(content["kv_connector_extra_config"])


def test_transfer_configurations_were_found():
    """Several pages show one; else the test above would prove nothing."""
    assert len(list(transfer_configs())) >= 4


def doctors():
    lines = {param.values[0] for param in commands()}
    named = sorted(line for line in lines if line.startswith("kvcellar doctor"))
    return [line for line in named if "--server" not in line]


@pytest.mark.parametrize("line", doctors())
def test_doctors_of_the_docs_find_no_fault_in_the_settings(line, capsys):
    """The machine may be too small, but options and settings are understood."""
    doctor, *rest = words_of(line)
    main([doctor, "--json", *rest])
    checks = json.loads(capsys.readouterr().out)["checks"]
    found = {entry["check"]: entry["severity"] for entry in checks}
    for check in ("options", "numbers", "connector", "settings", "load-failure"):
        assert found.get(check, "ok") in ("ok", "note"), (check, found)
