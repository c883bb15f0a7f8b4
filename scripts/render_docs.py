"""Writes the pages of docs/ that are made from the code and the tests.

.venv/bin/python scripts/render_docs.py            write them
.venv/bin/python scripts/render_docs.py --check    fail if one is out of date

Needs neither vLLM nor PyTorch, and takes less than a second.
"""

import pathlib
import sys
from collections.abc import Callable

from pages import commands, metrics, options, support
from pages.markdown import COMMAND

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"

PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands.page,
    "metrics.md": metrics.page,
    "options.md": options.page,
    "support.md": support.page,
}


def is_current(name: str) -> bool:
    """Whether a page in docs/ is what its code makes now."""
    path = DOCS / name
    return path.exists() and path.read_text(encoding="utf-8") == PAGES[name]()


def main(arguments: list[str]) -> int:
    """Write all pages, or say which are out of date."""
    old = [name for name in PAGES if not is_current(name)]
    if arguments == ["--check"]:
        for name in old:
            print(f"docs/{name} is out of date: run {COMMAND}")
        return 1 if old else 0
    for name in old:
        (DOCS / name).write_text(PAGES[name](), encoding="utf-8")
        print(f"wrote docs/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
