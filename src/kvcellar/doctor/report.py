"""Running the checks, and what came of them."""

from collections.abc import Iterable
from dataclasses import dataclass

from kvcellar.doctor.checks import ALL_CHECKS, Check
from kvcellar.doctor.facts import Facts
from kvcellar.doctor.finding import Finding, Severity

EXIT_CODES = {
    Severity.OK: 0,
    Severity.NOTE: 0,
    Severity.WARNING: 1,
    Severity.ERROR: 2,
}
"""The command's exit code by its worst finding."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one check found; nothing where its question does not arise."""

    check: Check
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """All answers, in the order of the checks."""

    answers: tuple[Answer, ...]

    @property
    def worst(self) -> Severity:
        """The most severe finding."""
        found = (f.severity for a in self.answers for f in a.findings)
        return max(found, default=Severity.OK)

    @property
    def exit_code(self) -> int:
        """0 if all is fine or only noted, 1 for warnings, 2 for errors."""
        return EXIT_CODES[self.worst]

    def of(self, severity: Severity) -> list[tuple[Check, Finding]]:
        """Findings of one severity, with the checks that made them."""
        return [
            (answer.check, finding)
            for answer in self.answers
            for finding in answer.findings
            if finding.severity is severity
        ]


def examine(facts: Facts, checks: Iterable[Check] = ALL_CHECKS) -> Report:
    """Ask every check."""
    return Report(tuple(Answer(check, tuple(check.find(facts))) for check in checks))
