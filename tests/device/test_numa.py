"""Pages near the accelerator: asked of the kernel, and done without if it refuses."""

import ctypes
import errno
import logging
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvcellar.device.numa import PageProvider, node_of

PAGE = mmap.PAGESIZE


class FakeLibc:
    """Answers the two system calls with what it is told to."""

    def __init__(self, *, mbind: int = 0, madvise: int = 0) -> None:
        self.errors = {"mbind": mbind, "madvise": madvise}
        self.calls: list[tuple[Any, ...]] = []

    def syscall(self, *arguments: Any) -> int:
        node_mask = list(arguments[4]._obj)
        values = [getattr(a, "value", node_mask) for a in arguments]
        return self._answer("mbind", values)

    def madvise(self, *arguments: Any) -> int:
        return self._answer("madvise", [a.value for a in arguments])

    def _answer(self, name: str, values: list[Any]) -> int:
        self.calls.append((name, *values))
        ctypes.set_errno(self.errors[name])
        return -1 if self.errors[name] else 0


def machine(root: Path, nodes: int, device_node: str) -> Path:
    for node in range(nodes):
        (root / f"devices/system/node/node{node}").mkdir(parents=True)
    device = root / "bus/pci/devices/0000:3b:00.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text(device_node + "\n")
    return root


@pytest.mark.parametrize(
    ("nodes", "text", "expected"),
    [(2, "1", 1), (2, "0", 0), (2, "-1", None), (1, "0", None), (2, "?", None)],
)
def test_node_is_the_one_the_kernel_names(
    tmp_path: Path, nodes: int, text: str, expected: int | None
) -> None:
    """Where there is only one, or none is named, there is nothing to choose."""
    assert expected == node_of("0000:3b:00.0", machine(tmp_path, nodes, text))


def test_unknown_device_has_no_node(tmp_path: Path) -> None:
    """A missing file is not an error."""
    assert None is node_of("0000:00:00.0", machine(tmp_path, 2, "1"))


def test_pages_are_preferred_on_the_node_then_provided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """First the policy, then the pages; the mask has the node's bit."""
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    libc = FakeLibc()
    PageProvider(65, libc)(4096, 8192)
    (mbind, madvise) = libc.calls
    assert ("mbind", 237, 4096, 8192, 1) == mbind[:5]
    assert [0, 2] + [0] * 14 == mbind[5]
    assert (1024, 0) == mbind[6:]
    assert ("madvise", 4096, 8192, 23) == madvise


def test_without_a_node_the_kernel_chooses() -> None:
    """Pages are provided all the same."""
    libc = FakeLibc()
    PageProvider(None, libc)(4096, 8192)
    assert ["madvise"] == [call[0] for call in libc.calls]


def test_refused_placement_is_one_warning_with_the_reason(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not asked again for later pieces; pages come from anywhere."""
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    libc = FakeLibc(mbind=errno.EPERM)
    provide = PageProvider(1, libc)
    with caplog.at_level(logging.WARNING, "kvcellar"):
        provide(4096, 4096)
        provide(8192, 4096)
    assert ["mbind", "madvise", "madvise"] == [call[0] for call in libc.calls]
    (record,) = caplog.records
    assert "node 1" in record.getMessage()
    assert "Operation not permitted" in record.getMessage()


def test_unknown_processor_is_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No system call is guessed."""
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    libc = FakeLibc()
    with caplog.at_level(logging.WARNING, "kvcellar"):
        PageProvider(1, libc)(4096, 4096)
    assert ["madvise"] == [call[0] for call in libc.calls]
    assert "not known" in caplog.text


def test_old_kernels_leave_providing_to_the_driver() -> None:
    """They do not know the advice; that is not an error."""
    PageProvider(None, FakeLibc(madvise=errno.EINVAL))(4096, 4096)


def test_no_memory_is_an_error() -> None:
    """With the kernel's words."""
    with pytest.raises(OSError, match="no host memory: Cannot allocate"):
        PageProvider(None, FakeLibc(madvise=errno.ENOMEM))(4096, 4096)


def test_provided_pages_are_resident_and_keep_their_bytes() -> None:
    """On this kernel: what was written before stays, the rest is there and zero."""
    mapping = mmap.mmap(-1, 64 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    array = np.frombuffer(mapping, dtype=np.uint8)
    array[5] = 7
    address = array.ctypes.data
    PageProvider(None)(address, 64 * PAGE)
    resident = (ctypes.c_ubyte * 64)()
    libc = ctypes.CDLL(None)
    size = ctypes.c_size_t(64 * PAGE)
    assert 0 == libc.mincore(ctypes.c_void_p(address), size, resident)
    assert [1] * 64 == [flag & 1 for flag in resident]
    assert (7, 7) == (array[5], int(array.sum()))
