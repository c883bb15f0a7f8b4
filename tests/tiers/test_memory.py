"""The host arena: one anonymous mapping."""

import ctypes
import mmap
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kvcellar.errors import ClosedError, ConfigError
from kvcellar.layout.host import HostGeometry, SizeClass
from kvcellar.tiers.machine import MachineMemory
from kvcellar.tiers.memory import HostMemory

MIB = 2**20


def geometry_of(slab_bytes: int, num_slabs: int) -> HostGeometry:
    size_class = SizeClass(slab_bytes, 1, (0,))
    return HostGeometry(slab_bytes, num_slabs, (size_class,), (0,), (1,))


def test_mapping_is_exactly_the_arena() -> None:
    """No rounding: the array has the arena's bytes, zero at first, and is writable."""
    with HostMemory(geometry_of(1000, 7)) as memory:
        assert (7000, 7000, 0) == (
            memory.num_bytes,
            memory.array.nbytes,
            int(memory.array.sum()),
        )
        memory.array[-1] = 9
        assert 9 == memory.array[6999]


def test_address_is_that_of_the_array() -> None:
    """Bytes written through the array are the bytes at the address."""
    with HostMemory(geometry_of(4096, 1)) as memory:
        memory.array[:3] = [1, 2, 3]
        raw = (ctypes.c_uint8 * 3).from_address(memory.address)
        assert [1, 2, 3] == list(raw)


def test_close_may_be_called_twice() -> None:
    """The second close does nothing, and use after it is an error of its own."""
    memory = HostMemory(geometry_of(4096, 1))
    memory.close()
    memory.close()
    with pytest.raises(ClosedError, match="closed"):
        _ = memory.array
    with pytest.raises(ClosedError, match="closed"):
        _ = memory.address


def test_close_under_a_living_view_keeps_the_view_valid() -> None:
    """A view taken before close still reads its bytes after it."""
    memory = HostMemory(geometry_of(4096, 1))
    view = memory.array[:4]
    view[:] = 5
    memory.close()
    assert [5, 5, 5, 5] == view.tolist()


def test_memory_that_the_machine_lacks_is_refused_before_mapping() -> None:
    """The check runs with the given machine and counts all ranks."""
    machine = MachineMemory(total_bytes=10 * MIB, available_bytes=3 * MIB)
    HostMemory(geometry_of(MIB, 3), machine=machine).close()
    with pytest.raises(ConfigError, match="available on this machine"):
        HostMemory(geometry_of(MIB, 2), machine_bytes=4 * MIB, machine=machine)


def test_kernel_refusal_is_a_config_error() -> None:
    """A size no address space holds is refused in our words, with the cause chained."""
    huge = MachineMemory(total_bytes=2**62, available_bytes=2**62)
    with pytest.raises(ConfigError, match="refused to map") as caught:
        HostMemory(geometry_of(2**55, 1), machine=huge)
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("advice", [None, 9999])
def test_kernel_without_huge_pages_is_no_hindrance(
    monkeypatch: pytest.MonkeyPatch, advice: int | None
) -> None:
    """Unknown or refused advice leaves an ordinary mapping."""
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", advice)
    with HostMemory(geometry_of(4096, 1)) as memory:
        memory.array[:] = 1
        assert 4096 == int(memory.array.sum())


def test_starting_touches_no_memory() -> None:
    """Mapping an arena of 512 MiB leaves the process's resident size as it was."""
    before = _resident_bytes(os.getpid())
    with HostMemory(geometry_of(512 * MIB, 1)):
        assert _resident_bytes(os.getpid()) - before < 64 * MIB


_CHILD = """
import sys
from tests_geometry import geometry
from kvcellar.tiers.memory import HostMemory
memory = HostMemory(geometry)
memory.array[:] = 1
print("filled", flush=True)
sys.stdin.read()
"""


def test_killed_process_leaves_nothing(tmp_path: Path) -> None:
    """After kill -9 no file is new in /dev/shm or the temporary folder."""
    child = _CHILD.replace("from tests_geometry import geometry", _GEOMETRY)
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": _SOURCE}
    with subprocess.Popen(
        [sys.executable, "-c", child],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert b"filled\n" == process.stdout.readline()
        assert _resident_bytes(process.pid) > 64 * MIB
        assert [] == _named_backing(process.pid)
        process.send_signal(signal.SIGKILL)
        assert -signal.SIGKILL == process.wait()
        assert not Path(f"/proc/{process.pid}/statm").exists()
    assert [] == list(tmp_path.iterdir())


_SOURCE = str(Path(__file__).resolve().parents[2] / "src")
_GEOMETRY = (
    "from kvcellar.layout.host import HostGeometry, SizeClass\n"
    "geometry = HostGeometry(2**26, 1, (SizeClass(2**26, 1, (0,)),), (0,), (1,))"
)


def _named_backing(pid: int) -> list[str]:
    """Shared or temporary files that the process has mapped, libraries aside.

    The environment itself may lie below the temporary folder.
    """
    folders = ("/dev/shm", "/memfd", "/dev/zero", tempfile.gettempdir() + "/")
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    names = [line.split(None, 5)[5] for line in maps if len(line.split(None, 5)) == 6]
    return [
        name
        for name in names
        if name.startswith(folders) and not name.startswith(sys.prefix)
    ]


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")
