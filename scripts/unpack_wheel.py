"""Unpack what Python reads of a wheel, and leave compiled parts and headers out.

unpack_wheel.py WHEEL FOLDER
"""

import pathlib
import sys
import zipfile

LEFT_OUT = {".so", ".h", ".hpp", ".cuh", ".inl"}
PROGRAMS = {"vllm-rs"}


def is_wanted(name):
    """Whether a file of a wheel is worth unpacking.

    Args:
        name: its path inside the wheel.
    """
    path = pathlib.PurePosixPath(name)
    return path.suffix not in LEFT_OUT and path.name not in PROGRAMS


def main(wheel, folder):
    """Unpack ``wheel`` into ``folder``, which may exist."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, filter(is_wanted, archive.namelist()))


if __name__ == "__main__":
    main(*sys.argv[1:])
