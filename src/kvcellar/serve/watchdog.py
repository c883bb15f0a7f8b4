"""A tiny process that ends the server when the one that started it disappears.

It blocks on reading a pipe whose other end only the starter holds. A starter that ends
in good order writes one byte first; one that was killed cannot, so the read returns
nothing and the server's process group is ended. Run as a file, not as a module, so that
it starts in a few milliseconds: ``python -I -S watchdog.py GROUP_ID GRACE_SECONDS``.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

PATH = Path(__file__)


def main(group_id: int, grace_seconds: float) -> None:
    """Wait for the starter's byte, or for its end, and then end the group."""
    if not sys.stdin.buffer.read(1):
        _load("group").end_group(group_id, grace_seconds)


def _load(name: str) -> ModuleType:
    """Load a sibling file without importing the package around it."""
    spec = importlib.util.spec_from_file_location(name, PATH.with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
