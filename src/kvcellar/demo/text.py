"""Real text that every machine has: the source files of Python's standard library."""

import random
import sysconfig
from pathlib import Path

from kvcellar.errors import CellarError

_MIN_FILE_BYTES = 24_000


def document(number: int, seed: int, num_characters: int) -> str:
    """The ``number``-th text of a seed: a heading and the start of some source files.

    Different numbers start with different files, as long as there are enough, and with
    different headings always, so no two documents share their first block.
    """
    files = _source_files()
    random.Random(seed).shuffle(files)
    parts = [f"Conversation {number}: what does this Python module do?\n"]
    length = 0
    for step in range(len(files)):
        file = files[(number + step) % len(files)]
        parts.append(f"\n# {file.name}\n{file.read_text('utf-8', 'replace')}")
        length += len(parts[-1])
        if length >= num_characters:
            return "".join(parts)[:num_characters]
    raise CellarError(f"the standard library has no {num_characters} characters")


def _source_files() -> list[Path]:
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = [
        file
        for file in sorted(folder.glob("*.py"))
        if file.stat().st_size >= _MIN_FILE_BYTES
    ]
    if not files:
        raise CellarError(f"{folder} has no source files of Python's standard library")
    return files
