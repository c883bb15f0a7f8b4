"""Paths that people give, or names that only look like one."""

from pathlib import Path


def is_there(path: Path) -> bool:
    """Whether a file or folder can be seen; a name may be too long for any."""
    try:
        return path.exists()
    except OSError:
        return False
