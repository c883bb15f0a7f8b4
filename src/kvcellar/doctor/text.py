"""A report as text for a terminal: the worst first, three short lines each."""

import shutil
import textwrap
from collections.abc import Iterator

from kvcellar.doctor.checks import Check
from kvcellar.doctor.finding import Finding, Severity
from kvcellar.doctor.report import Report

_COLOURS = {
    Severity.ERROR: "31",
    Severity.WARNING: "33",
    Severity.NOTE: "36",
    Severity.OK: "32",
}
_INDENT = " " * 9
_MAX_WIDTH = 100


def text_of(
    report: Report, *, verbose: bool = False, colour: bool = False, width: int = 0
) -> str:
    """Write the report.

    Args:
        verbose: list what is fine, too.
        colour: mark severities with a terminal's colours.
        width: columns; 0 asks the terminal.
    """
    width = width or min(shutil.get_terminal_size((_MAX_WIDTH, 24)).columns, _MAX_WIDTH)
    lines: list[str] = []
    for severity in (Severity.ERROR, Severity.WARNING, Severity.NOTE):
        for check, finding in report.of(severity):
            lines += [*_block(check, finding, width, colour=colour), ""]
    if verbose:
        for check, finding in report.of(Severity.OK):
            lines += _block(check, finding, width, colour=colour)
        lines.append("")
    return "\n".join([*lines, _summary(report, verbose=verbose)])


def _block(
    check: Check, finding: Finding, width: int, *, colour: bool
) -> Iterator[str]:
    head = _paint(f"{finding.severity.word:<8}", finding.severity, colour=colour)
    first, *more = _wrapped(f"{check.name}: {finding.what}", width)
    yield f"{head} {first}"
    yield from (f"{_INDENT}{line}" for line in more)
    if finding.why:
        yield from (f"{_INDENT}{line}" for line in _wrapped(finding.why, width))
    if finding.remedy:
        start, *rest = _wrapped(finding.remedy, width - 3)
        yield f"{_INDENT}-> {start}"
        yield from (f"{_INDENT}   {line}" for line in rest)


def _summary(report: Report, *, verbose: bool) -> str:
    counts = []
    for severity in (Severity.ERROR, Severity.WARNING, Severity.NOTE):
        number = len(report.of(severity))
        if number:
            counts.append(f"{number} {severity.word}{'s' if number > 1 else ''}")
    fine = [
        answer.check.name
        for answer in report.answers
        if answer.findings and all(f.severity is Severity.OK for f in answer.findings)
    ]
    words = ", ".join(counts) or "nothing to mend"
    ending = "" if verbose or not fine else "; --verbose lists them"
    asked = sum(bool(answer.findings) for answer in report.answers)
    return f"{words}; {len(fine)} of {asked} checks are fine{ending}"


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text,
        max(width - len(_INDENT), 20),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [""]


def _paint(text: str, severity: Severity, *, colour: bool) -> str:
    return f"\x1b[{_COLOURS[severity]}m{text}\x1b[0m" if colour else text
