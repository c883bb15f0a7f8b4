"""The report as files: CSV, JSON, and the page."""

import csv
import io
import json
import os
from pathlib import Path

from kvcellar.errors import ConfigError
from kvcellar.replay.report.columns import COLUMNS
from kvcellar.replay.report.page import page_of
from kvcellar.replay.report.report import Report

CSV_NAME, JSON_NAME, PAGE_NAME = "replay.csv", "replay.json", "replay.html"


def json_of(report: Report) -> str:
    """One JSON object, with a newline at its end."""
    return json.dumps(report.as_dict(), indent=2, allow_nan=False) + "\n"


def csv_of(report: Report) -> str:
    """One line per configuration below a line of names; empty where there is none."""
    text = io.StringIO()
    names = [column.name for column in COLUMNS]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(report.rows)
    return text.getvalue()


def make_folder(path: str) -> Path:
    """Make the folder for the files, before anything is played.

    Raises:
        ConfigError: it cannot be made or written to.
    """
    folder, reason = Path(path), "it is write-protected"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_usable = os.access(folder, os.W_OK)
    except OSError as error:
        is_usable, reason = False, str(error.strerror)
    if not is_usable:
        raise ConfigError(
            f"output={path!r} cannot be written to: {reason}; name another folder"
        )
    return folder


def write_files(report: Report, folder: Path) -> tuple[Path, ...]:
    """Write all three into an existing folder, over those of an earlier replay.

    Raises:
        ConfigError: the folder cannot be written to.
    """
    contents = {
        CSV_NAME: csv_of(report),
        JSON_NAME: json_of(report),
        PAGE_NAME: page_of(report),
    }
    try:
        for name, content in contents.items():
            (folder / name).write_text(content, encoding="utf-8", newline="\n")
    except OSError as error:
        raise ConfigError(
            f"output={str(folder)!r} cannot be written to: {error.strerror}"
        ) from error
    return tuple(folder / name for name in contents)
