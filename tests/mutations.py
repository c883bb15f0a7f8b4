"""Plant faults one by one and see that the tests catch each. Run by hand:

    .venv/bin/python tests/mutations.py            all, in about 45 minutes
    .venv/bin/python tests/mutations.py window     those with a word in their name

Each fault is one edit of a copy of the sources. The exit code is 1 if one survives.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).with_name("support")))

from faults import FAULTS, Fault

ROOT = Path(__file__).parents[1]
# The quickest to fail come first; a fault is caught by the first file that fails.
SUITES = (
    "tests/core tests/index tests/attention",
    "tests/layout tests/device tests/transfer tests/integrations/vllm "
    "--ignore tests/integrations/vllm/test_real_engine.py",
    "tests/testing/oracle/test_ranks.py tests/testing/oracle/test_oracle.py",
)


def main() -> int:
    """Plant the chosen faults; 1 if a fault survives or no longer applies."""
    word = " ".join(sys.argv[1:])
    chosen = [fault for fault in FAULTS if word in fault.name]
    survivors = [fault.name for fault in chosen if not is_caught(fault)]
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} faults caught", survivors)
    return int(bool(survivors))


def is_caught(fault: Fault) -> bool:
    """Run the suites on a copy with the fault in it."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("src", "tests"):
            shutil.copytree(ROOT / name, copy / name)
        shutil.copy(ROOT / "pyproject.toml", copy)
        source = copy / "src" / "kvcellar" / fault.file
        text = source.read_text()
        if text.count(fault.old) != 1:
            print(f"{fault.name}: DOES NOT APPLY ({text.count(fault.old)} places)")
            return False
        source.write_text(text.replace(fault.old, fault.new))
        for suite in SUITES:
            caught_by = failing_test(copy, suite.split())
            if caught_by:
                seconds = time.monotonic() - started
                print(f"{fault.name}: caught in {seconds:.0f} s by {caught_by}")
                return True
    print(f"{fault.name}: SURVIVED")
    return False


def failing_test(copy: Path, paths: list[str]) -> str:
    """The first test that fails, or an empty text."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [*command, *paths],
            cwd=copy,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            env=os.environ | {"PYTHONPATH": str(copy / "src")},  # for tests' processes
        )
    except subprocess.TimeoutExpired:
        return "a hang"
    if done.returncode == 0:
        return ""
    lines = [x for x in done.stdout.splitlines() if x.startswith(("FAILED", "ERROR"))]
    return lines[0] if lines else done.stdout[-200:]


if __name__ == "__main__":
    sys.exit(main())
