"""Memory files that processes of one machine open from each other."""

import mmap
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kvcellar.errors import ConfigError, TierError
from kvcellar.layout.host import HostGeometry, SizeClass
from kvcellar.tiers import shared_memory
from kvcellar.tiers.machine import MachineMemory
from kvcellar.tiers.memory import HostMemory
from kvcellar.tiers.shared_memory import (
    describe_file,
    fix_size,
    new_memory_file,
    open_file,
)

MIB = 2**20
SOURCE = str(Path(__file__).resolve().parents[2] / "src")


def geometry_of(slab_bytes: int, num_slabs: int) -> HostGeometry:
    size_class = SizeClass(slab_bytes, 1, (0,))
    return HostGeometry(slab_bytes, num_slabs, (size_class,), (0,), (1,))


@pytest.fixture
def file():
    made = new_memory_file()
    yield made
    os.close(made)


def test_mappings_of_one_file_are_one_memory(file: int) -> None:
    """What is written through one mapping is read through the other."""
    with (
        HostMemory(geometry_of(4096, 3), file=file) as one,
        HostMemory(geometry_of(4096, 3), file=file) as other,
    ):
        assert one.address != other.address
        one.array[5000] = 7
        assert 7 == other.array[5000]
        assert 12288 == other.num_bytes == other.array.nbytes


def test_the_size_is_given_once(file: int) -> None:
    """The same size may be given again; another, or a truncation, is refused."""
    fix_size(file, 3 * MIB)
    fix_size(file, 3 * MIB)
    for other in (MIB, 4 * MIB):
        with pytest.raises(ConfigError, match=f"{other} bytes .* has {3 * MIB} bytes"):
            fix_size(file, other)
    with pytest.raises(PermissionError):
        os.ftruncate(file, 0)
    with mmap.mmap(file, 3 * MIB) as mapping:
        assert 0 == mapping[3 * MIB - 1]


def test_ranks_may_give_the_size_at_the_same_time(
    file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is overtaken by another between two calls finds what it wanted."""
    real = shared_memory.fcntl.fcntl

    def overtaken(number: int, command: int, argument: int = 0) -> int:
        if command == shared_memory.fcntl.F_ADD_SEALS:
            real(number, command, argument)  # the other rank's
        return real(number, command, argument)

    monkeypatch.setattr(shared_memory.fcntl, "fcntl", overtaken)
    fix_size(file, 3 * MIB)
    assert 3 * MIB == os.fstat(file).st_size


def test_a_size_beyond_all_files_is_refused(file: int) -> None:
    """The kernel's refusal is a sentence with the setting that helps."""
    with pytest.raises(ConfigError, match="set share_replicated to off"):
        fix_size(file, 2**64)


def test_sharing_ranks_are_counted_once(file: int) -> None:
    """The check of the machine counts an arena as often as it is there."""
    machine = MachineMemory(total_bytes=10 * MIB, available_bytes=3 * MIB)
    HostMemory(
        geometry_of(MIB, 3), machine=machine, machine_bytes=3 * MIB, file=file
    ).close()


OPENER = """
import mmap, os, sys
from kvcellar.tiers.shared_memory import OpenFile, open_file
theirs = eval(sys.argv[1])
file = open_file(theirs, os.O_RDWR)
mapping = mmap.mmap(file, 4096)
assert mapping[0] == 1
mapping[1] = 2
print("written", flush=True)
sys.stdin.read()
"""


def test_another_process_opens_it_and_its_death_leaves_nothing(file: int) -> None:
    """A child writes where the parent reads; killed, it leaves no name behind."""
    fix_size(file, 4096)
    mapping = mmap.mmap(file, 4096)
    mapping[0] = 1
    with subprocess.Popen(
        [sys.executable, "-c", OPENER, repr(describe_file(file))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": SOURCE},
    ) as child:
        assert child.stdout is not None
        assert b"written\n" == child.stdout.readline()
        assert 2 == mapping[1]
        named = [e.name for e in os.scandir("/dev/shm") if "kvcellar" in e.name]
        assert [] == named
        child.send_signal(signal.SIGKILL)
    assert 2 == mapping[1]
    mapping.close()


def test_a_process_of_another_machine_is_refused(file: int) -> None:
    """Its numbers mean nothing here."""
    theirs = replace(describe_file(file), machine="another one")
    with pytest.raises(TierError, match=r"process \d+ is on another machine"):
        open_file(theirs, os.O_RDWR)


def test_another_file_under_the_number_is_refused(file: int) -> None:
    """A descriptor that was closed and given out again is not taken for the arena."""
    theirs = replace(describe_file(file), identity=(1, 1))
    before = os.listdir("/proc/self/fd")
    with pytest.raises(TierError, match="another file by now"):
        open_file(theirs, os.O_RDWR)
    assert before == os.listdir("/proc/self/fd")


def test_a_closed_file_is_refused() -> None:
    """What is no more open cannot be opened, and the path is named."""
    file = new_memory_file()
    theirs = describe_file(file)
    os.close(file)
    with pytest.raises(TierError, match=f"fd/{file} cannot be opened"):
        open_file(theirs, os.O_RDWR)


def test_a_system_without_proc_is_refused(file: int, tmp_path: Path) -> None:
    """Then nobody can say where the file is."""
    with pytest.raises(TierError, match="boot_id"):
        describe_file(file, tmp_path)


@pytest.mark.parametrize("error", [AttributeError, OSError])
def test_a_system_without_memory_files_is_refused(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old kernels and other systems have none."""

    def refuse(*_: object) -> int:
        raise error("no such call")

    monkeypatch.setattr(shared_memory.os, "memfd_create", refuse)
    with pytest.raises(TierError, match="no such call"):
        new_memory_file()
