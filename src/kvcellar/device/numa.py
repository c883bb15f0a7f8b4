"""Host pages near the accelerator, provided before the driver locks them.

On a machine with several memory nodes a copy from the far one is slower and takes the
link between processors. The kernel is asked for pages of the near node first; if that
is full, others will do. Two system calls without a library: ``mbind`` and ``madvise``.
"""

import ctypes
import errno
import logging
import os
import platform
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

_MBIND_NUMBERS = {"x86_64": 237, "aarch64": 235}  # Source: the kernel's tables
_PREFERRED = 1  # MPOL_PREFERRED
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, Linux 5.14
_MASK_BITS = 1024


def node_of(pci_address: str, root: Path = Path("/sys")) -> int | None:
    """Memory node that a PCI device is attached to.

    Args:
        pci_address: such as ``0000:3b:00.0``.

    Returns:
        None if the machine has only one node, or does not say.
    """
    if len(list((root / "devices/system/node").glob("node[0-9]*"))) < 2:
        return None
    try:
        text = (root / f"bus/pci/devices/{pci_address}/numa_node").read_text("ascii")
        node = int(text)
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


class PageProvider:
    """Has the kernel provide pages, on a near node if it can.

    Args:
        node: the near node; None leaves the choice to the kernel.
        libc: stands in for the C library in tests.
    """

    def __init__(self, node: int | None, libc: Any = None) -> None:
        self._node = node
        self._libc = libc or ctypes.CDLL(None, use_errno=True)

    def __call__(self, address: int, num_bytes: int) -> None:
        """Provide the whole pages from ``address`` on; their content does not change.

        Raises:
            OSError: the kernel has no memory for them.
        """
        if self._node is not None:
            self._prefer(self._node, address, num_bytes)
        code = self._libc.madvise(
            ctypes.c_void_p(address),
            ctypes.c_size_t(num_bytes),
            ctypes.c_int(_POPULATE_WRITE),
        )
        # A kernel that does not know it lets the driver do the work.
        if code and (number := ctypes.get_errno()) != errno.EINVAL:
            raise OSError(number, f"no host memory: {os.strerror(number)}")

    def _prefer(self, node: int, address: int, num_bytes: int) -> None:
        """A refusal is a warning, once: pages then come from anywhere."""
        number = _MBIND_NUMBERS.get(platform.machine())
        if number is None:
            self._give_up("this processor's system calls are not known")
            return
        mask = (ctypes.c_uint64 * (_MASK_BITS // 64))()
        mask[node // 64] = 1 << node % 64
        code = self._libc.syscall(
            ctypes.c_long(number),
            ctypes.c_void_p(address),
            ctypes.c_size_t(num_bytes),
            ctypes.c_int(_PREFERRED),
            ctypes.byref(mask),
            ctypes.c_ulong(_MASK_BITS),
            ctypes.c_uint(0),
        )
        if code:
            self._give_up(os.strerror(ctypes.get_errno()))

    def _give_up(self, reason: str) -> None:
        logger.warning(
            "kvcellar: host memory is not placed near the accelerator (node %s): %s; "
            "in a container, mbind needs CAP_SYS_NICE",
            self._node,
            reason,
        )
        self._node = None
