"""Running the checks, and how the report is written."""

import json
import re
from pathlib import Path

import pytest
from doctor_facts import CHECKS, GOOD_MACHINE, facts_of, own_command, software

from kvcellar.doctor.checks import ALL_CHECKS, Check
from kvcellar.doctor.finding import Severity, error, note, ok, warning
from kvcellar.doctor.json_report import json_of
from kvcellar.doctor.report import examine
from kvcellar.doctor.text import text_of

DOCS = Path(__file__).parents[2] / "docs" / "doctor.md"


def check_of(name, *findings, refuses=False):
    return Check(name, f"{name}?", lambda _: findings, refuses)


FINE = check_of("fine", ok("one thing"))
NOTED = check_of("noted", note("a fact", "a reason"))
WARNED = check_of("warned", ok("half"), warning("a risk", "a reason", "do this"))
FAILED = check_of("failed", error("a fault", "a reason", "do that"))
SILENT = check_of("silent")


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        ([], 0),
        ([SILENT], 0),
        ([FINE], 0),
        ([FINE, NOTED], 0),
        ([FINE, NOTED, WARNED], 1),
        ([FAILED, WARNED, NOTED, FINE], 2),
    ],
)
def test_exit_code_is_the_worst(checks, expected):
    """0 for fine and noted, 1 for warnings, 2 for errors."""
    assert expected == examine(facts_of(), checks).exit_code


def test_text_has_the_worst_first():
    """Three lines each, then one line for all that is fine."""
    report = examine(facts_of(), [FINE, NOTED, SILENT, WARNED, FAILED])
    expected = """\
error    failed: a fault
         a reason
         -> do that

warning  warned: a risk
         a reason
         -> do this

note     noted: a fact
         a reason

1 error, 1 warning, 1 note; 1 of 4 checks are fine; --verbose lists them"""
    assert expected == text_of(report, width=80)


def test_verbose_lists_what_is_fine():
    """And does not offer to do so."""
    text = text_of(examine(facts_of(), [FINE, SILENT]), verbose=True, width=80)
    expected = "ok       fine: one thing\n\nnothing to mend; 1 of 1 checks are fine"
    assert expected == text


def test_colours_are_only_asked_for():
    """Escape sequences mark severities, and nothing else."""
    report = examine(facts_of(), [FAILED])
    plain, coloured = text_of(report, width=80), text_of(report, width=80, colour=True)
    assert "\x1b" not in plain
    assert plain == re.sub(r"\x1b\[\d+m", "", coloured) != coloured


@pytest.mark.parametrize("width", [40, 60, 100])
def test_lines_fit_the_terminal(width):
    """Long texts are wrapped below themselves; only a word may be longer."""
    facts = facts_of(own_command(lazy_ofload=True), using=software(vllm="0.31"))
    text = text_of(examine(facts), verbose=True, width=width)
    too_long = [line for line in text.splitlines() if len(line) > width]
    assert [] == [line for line in too_long if len(line.split()) > 3]


def test_json_holds_every_answer():
    """Each check that applies, with its question and all findings."""
    report = examine(facts_of(), [FINE, SILENT, WARNED])
    content = json.loads(json_of(report))
    assert ("warning", 1) == (content["worst"], content["exit_code"])
    assert ["fine", "warned"] == [entry["check"] for entry in content["checks"]]
    warned = content["checks"][1]
    assert ("warned?", "warning") == (warned["question"], warned["severity"])
    assert {
        "severity": "warning",
        "what": "a risk",
        "why": "a reason",
        "remedy": "do this",
    } == warned["findings"][1]


def test_a_good_server_has_nothing_to_mend():
    """A plain configuration on a large machine: not one warning."""
    report = examine(
        facts_of("llama-3.1-8b --host-memory 256GiB", device_memory_bytes=40 * 2**30)
    )
    assert Severity.NOTE >= report.worst, text_of(report)


def test_names_are_unique_and_findings_are_whole():
    """Names in one style; whatever is worse than fine says why, and what to do."""
    assert len(CHECKS) == len(ALL_CHECKS)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in CHECKS)
    assert all(check.question.endswith("?") for check in ALL_CHECKS)
    commands = ["", "m", own_command(lazy_ofload=1), "m --host-memory 9PB -tp x -dcp 2"]
    for command in commands:
        facts = facts_of(command, on=GOOD_MACHINE, using=software(vllm="0.31"))
        for answer in examine(facts).answers:
            for finding in answer.findings:
                if finding.severity > Severity.OK:
                    assert finding.why, finding
                if finding.severity > Severity.NOTE:
                    assert finding.remedy, finding
                assert not finding.what.endswith("."), finding


def test_docs_list_every_check():
    """The table of docs/doctor.md has each check with its question, in order."""
    row = re.compile(r"\| `([a-z-]+)` \| ([^|]+) \| (yes|) ?\|")
    rows = row.findall(DOCS.read_text(encoding="utf-8"))
    expected = [
        (check.name, check.question, "yes" if check.refuses else "")
        for check in ALL_CHECKS
    ]
    assert expected == rows
