"""Reading a machine: from files stated here, and this very one."""

import os
import subprocess
import sys

import pytest

from kvcellar.doctor.leftovers import find_leftovers
from kvcellar.doctor.machine import read_this_machine

MEMINFO = "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n"
GIB = 2**30


@pytest.fixture
def root(tmp_path):
    """Write files below an empty root, and give it back."""

    def write(files):
        for name, text in {"proc/meminfo": MEMINFO, **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def test_stated_machine_is_read(root):
    """Memory, huge pages, nodes and GPUs come from where the kernel puts them."""
    found = read_this_machine(
        root(
            {
                "sys/kernel/mm/transparent_hugepage/enabled": "always [never]\n",
                "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal: 1024 kB\n",
                "sys/devices/system/node/node1/meminfo": "Node 1 MemTotal: 2048 kB\n",
                "proc/driver/nvidia/gpus/0000:01:00.0/information": "Model: x\n",
                "sys/class/kfd/kfd/topology/nodes/0/gpu_id": "0\n",
                "sys/class/kfd/kfd/topology/nodes/1/gpu_id": "4711\n",
            }
        )
    )
    assert 16 * GIB == found.memory.total_bytes
    assert "never" == found.huge_pages
    assert {0: 2**20, 1: 2**21} == found.node_bytes
    assert 2 == found.num_gpus
    assert found.shared_memory is None


def test_bare_machine_is_read(root):
    """What the kernel does not tell is empty, never an error."""
    found = read_this_machine(root({}))
    assert ("", {}, 0, ()) == (
        found.huge_pages,
        found.node_bytes,
        found.num_gpus,
        found.leftovers,
    )


def test_this_machine_is_read():
    """The real files of the machine that runs the tests parse."""
    found = read_this_machine()
    assert 0 < found.memory.available_bytes <= found.memory.total_bytes
    assert found.locked_limit_bytes is None or found.locked_limit_bytes >= 0
    room = found.shared_memory
    assert room is None or 0 <= room.free_bytes <= room.total_bytes


def leave(root, name, pages=2):
    """A file in shared memory."""
    path = root / "dev/shm" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(4096 * pages))
    return path


def maps_line(path):
    """A line of /proc/PID/maps that maps a file."""
    status = path.stat()
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    return f"7f00-7f01 rw-s 00000000 {device} {status.st_ino}   {path}\n"


def test_file_that_nobody_maps_is_a_leftover(root):
    """Only files by the engines' names count; its size is what it takes."""
    folder = root({})
    dead = leave(folder, "vllm_offload_abc.mmap")
    leave(folder, "psm_other")
    (found,) = find_leftovers(folder)
    assert (str(dead), None) == (found.name, found.process_id)
    assert 8192 == found.num_bytes


def test_file_that_somebody_maps_is_none(root):
    """A mapping counts by device and inode, whatever the name was."""
    folder = root({})
    mapped = leave(folder, "vllm_offload_abc.mmap")
    root({"proc/7/maps": "garbage\n" + maps_line(mapped)})
    assert () == find_leftovers(folder)


def test_successor_under_the_same_name_is_not_taken_for_the_dead_one(root):
    """The old inode is mapped, the new file of that name is not: a leftover."""
    folder = root({})
    old = leave(folder, "vllm_offload_abc.mmap")
    line = maps_line(old)
    old.rename(folder / "kept")
    leave(folder, "vllm_offload_abc.mmap")
    root({"proc/7/maps": line})
    assert 1 == len(find_leftovers(folder))


def test_open_file_is_none(root):
    """An open descriptor keeps a file, mapped or not."""
    folder = root({})
    held = leave(folder, "vllm_offload_abc.mmap")
    (folder / "proc/7/fd").mkdir(parents=True)
    (folder / "proc/7/fd/3").symlink_to(held)
    assert () == find_leftovers(folder)


STATUS = "Name:\tVLLM::EngineCor\nPPid:\t{parent}\nVmRSS:\t  2048 kB\n"


@pytest.mark.parametrize(
    ("first", "parent", "num_found"),
    [
        ("/sbin/init\0", 1, 1),
        ("/sbin/init\0", 5, 0),
        ("python3\0-m\0vllm.entrypoints.openai.api_server\0", 1, 0),
    ],
)
def test_engine_without_a_server_is_a_leftover(root, first, parent, num_found):
    """Adopted by the first process, unless that is the server itself."""
    folder = root(
        {
            "proc/1/cmdline": first,
            "proc/77/comm": "VLLM::EngineCor\n",
            "proc/77/status": STATUS.format(parent=parent),
        }
    )
    found = find_leftovers(folder)
    assert num_found == len(found)
    assert [(77, 2**21)] * num_found == [(f.process_id, f.num_bytes) for f in found]


HOLD = """
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.ftruncate(file, 8192)
region = mmap.mmap(file, 8192)
os.close(file)
print("held", flush=True)
sys.stdin.read()
"""


def test_real_file_is_left_over_only_after_its_process(tmp_path):
    """A real process that maps a real file: none while it lives, one after kill -9."""
    (tmp_path / "proc").symlink_to("/proc")
    path = tmp_path / "dev/shm/vllm_offload_test.mmap"
    path.parent.mkdir(parents=True)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert b"held\n" == holder.stdout.readline()
        assert str(path) not in _names(find_leftovers(tmp_path))
        holder.kill()
        holder.wait()
        assert str(path) in _names(find_leftovers(tmp_path))


def _names(leftovers):
    """The processes are this machine's, so there may be more than the test's own."""
    return [left.name for left in leftovers]
