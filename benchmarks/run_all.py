"""Run every benchmark, each in its own process, and print one report.

``--json FILE`` also writes the figures with the machine they were measured on.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from report import ROOT, describe_machine, format_rows, machine

HERE = Path(__file__).resolve().parent
SCRIPTS = (
    *("planner_lookup", "planner_idle", "planner_store", "host_bytes", "copies"),
    *("start_up", "instrumentation"),
)
COPIES_QUICK = ("--rounds", "1", "--payloads", "65536")


def main() -> int:
    """Run, print, and say which scripts failed."""
    options = _read_options()
    facts = machine()
    print(describe_machine(facts))
    results: dict[str, Any] = {}
    for name in options.only or SCRIPTS:
        tables = run_script(name, options)
        results[name] = tables
        for table in tables or []:
            title = table["title"] or name
            print(f"\n{name}: {title}\n{format_rows(table['rows'])}", flush=True)
    if options.json:
        report = {"machine": facts, "is_quick": options.quick, "results": results}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    failed = [name for name, tables in results.items() if tables is None]
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write JSON")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, for tests")
    parser.add_argument(
        "--without-vllm", action="store_true", help="leave vLLM's own connectors out"
    )
    parser.add_argument(
        "--only", nargs="+", choices=SCRIPTS, metavar="SCRIPT", help=", ".join(SCRIPTS)
    )
    return parser.parse_args()


def run_script(name: str, options: argparse.Namespace) -> list[dict[str, Any]] | None:
    """One script's tables; None if it failed, with its reason on stderr."""
    command = [sys.executable, str(HERE / f"{name}.py"), "--json"]
    if name == "copies":  # its options are its own, and so is its output
        command += COPIES_QUICK if options.quick else ()
    else:
        command += ["--quick"] if options.quick else []
        command += ["--without-vllm"] if options.without_vllm else []
    done = subprocess.run(
        command, env=_environment(), stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        return None
    found = json.loads(done.stdout)
    if isinstance(found, list):
        return [{"title": "shares of one thread's memcpy", "rows": found}]
    tables: list[dict[str, Any]] = found["tables"]
    return tables


def _environment() -> dict[str, str]:
    """So that the scripts run from a checkout that is not installed."""
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(p for p in paths if p)}


if __name__ == "__main__":
    sys.exit(main())
