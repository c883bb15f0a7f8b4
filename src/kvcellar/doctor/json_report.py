"""A report as one JSON object, for scripts."""

import json

from kvcellar.doctor.report import Report


def json_of(report: Report) -> str:
    """Every check that applied, with all it found, fine or not."""
    checks = [
        {
            "check": answer.check.name,
            "question": answer.check.question,
            "severity": max(f.severity for f in answer.findings).word,
            "findings": [
                {
                    "severity": finding.severity.word,
                    "what": finding.what,
                    "why": finding.why,
                    "remedy": finding.remedy,
                }
                for finding in answer.findings
            ],
        }
        for answer in report.answers
        if answer.findings
    ]
    content = {
        "worst": report.worst.word,
        "exit_code": report.exit_code,
        "checks": checks,
    }
    return json.dumps(content, indent=2)
