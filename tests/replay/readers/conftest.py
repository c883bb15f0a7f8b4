"""Small trace files from literal records."""

import json

import pytest


@pytest.fixture
def trace_file(tmp_path):
    """Write records, one a line; a text stands for itself."""

    def write(*records, name="trace.jsonl"):
        path = tmp_path / name
        lines = [
            item if isinstance(item, str) else json.dumps(item) for item in records
        ]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return write
