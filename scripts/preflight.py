"""Can this machine run kvcellar's demo and tests? One sentence if not.

Runs before anything is installed, so it uses the standard library only, and syntax
that old interpreters read well enough to be told that they are too old.

    preflight.py VENV                may .venv be created or updated at this path?
    preflight.py --explain-pip LOG   what went wrong in pip's log, in one sentence
"""

import os
import platform
import re
import shutil
import sys

MIN_PYTHON = (3, 11)
GIB = 1024**3
NEW_VENV_BYTES = 6 * GIB  # 2.4 GiB installed, the rest for downloads and pip's cache
UPDATE_BYTES = GIB

DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded")
UNREACHABLE = re.compile(
    r"Failed to establish a new connection|Connection to .* timed out"
    r"|NewConnectionError|NameResolutionError|Connection refused"
    r"|Temporary failure in name resolution|Network is unreachable"
    r"|Read timed out|ProxyError|SSLError|Connection aborted|RemoteDisconnected"
)
NOT_OFFERED = re.compile(r"No matching distribution found for (\S+)")


def check_platform(system, machine):
    """Return why this operating system or processor family is no good, or None."""
    if system == "Linux" and machine in ("x86_64", "amd64"):
        return None
    return (
        "kvcellar's demo and tests need Linux on x86-64, where vLLM's CPU build runs, "
        f"and this is {system} on {machine}"
    )


def check_cpu(cpuinfo_text):
    """Return why the processor in the text of /proc/cpuinfo is no good, or None."""
    flags = re.search(r"^flags\s*:(.*)$", cpuinfo_text, re.MULTILINE)
    if flags and "avx2" in flags.group(1).split():
        return None
    return (
        "vLLM's CPU build needs a processor with AVX2, and /proc/cpuinfo does not "
        "list avx2 among this one's flags"
    )


def check_python(version_info):
    """Return why an interpreter of this version is no good, or None."""
    if tuple(version_info[:2]) >= MIN_PYTHON:
        return None
    return (
        "kvcellar needs Python 3.11 or newer and this is Python "
        f"{version_info[0]}.{version_info[1]}; install a newer one and name it with "
        "PYTHON=/path/to/python3.11"
    )


def check_venv_module(has_ensurepip):
    """Return why no virtual environment can be made, or None."""
    if has_ensurepip:
        return None
    return (
        "this Python cannot make virtual environments because its ensurepip module "
        "is missing; install it (on Debian and Ubuntu: the package python3-venv)"
    )


def check_disk(free_bytes, needed_bytes, folder):
    """Return why this much free space is no good, or None."""
    if free_bytes >= needed_bytes:
        return None
    return (
        f"the set-up needs {needed_bytes / GIB:.0f} GiB of free disk space and "
        f"{folder} has {free_bytes / GIB:.1f} GiB; free some, or move the repository"
    )


def explain_pip_failure(log_text, log_path):
    """Return in one sentence what pip's log says went wrong."""
    offered = NOT_OFFERED.search(log_text)
    if DISK_FULL.search(log_text):
        reason = "the disk ran full while packages were being installed"
    elif UNREACHABLE.search(log_text):
        reason = "the Python package index could not be reached; check the network"
    elif offered:
        reason = (
            f"the package index in use offers no {offered.group(1)} for this Python "
            f"{platform.python_version()}"
        )
    else:
        reason = "pip could not install the pinned packages"
    return f"{reason} (pip's log: {log_path})"


def first_problem(venv):
    """Return the first reason why ``venv`` cannot be set up here, or None."""
    problem = check_platform(platform.system(), platform.machine())
    problem = problem or check_cpu(_read("/proc/cpuinfo"))
    problem = problem or check_python(sys.version_info)
    problem = problem or check_venv_module(_has_ensurepip())
    folder = os.path.dirname(os.path.abspath(venv))
    needed_bytes = UPDATE_BYTES if os.path.isdir(venv) else NEW_VENV_BYTES
    free_bytes = shutil.disk_usage(folder).free
    return problem or check_disk(free_bytes, needed_bytes, folder)


def _has_ensurepip():
    try:
        import ensurepip  # noqa: F401 - only its presence is asked for
    except ImportError:
        return False
    return True


def _read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def main(arguments):
    """Print the one sentence, if there is one, to stderr; exit status 1 then."""
    if arguments[:1] == ["--explain-pip"]:
        problem = explain_pip_failure(_read(arguments[1]), arguments[1])
    else:
        problem = first_problem(arguments[0])
    if problem:
        sys.stderr.write(f"kvcellar: {problem}\n")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
