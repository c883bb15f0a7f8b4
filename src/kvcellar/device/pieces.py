"""How host memory is cut for registering: whole pages, near the borders of slabs.

    slabs    |      0      |      1      |      2      |      3      |
    pages    |  |  |  |  |  |  |  |  |  |  |  |  |  |  |  |  |  |  |
    pieces   [          0            ][           1            ][ 2  ]

The driver locks whole pages, and no page twice. A slab may be any number of bytes, so a
piece begins at the last page border at or before a slab's first byte. Runs of copies
are cut there, since a copy must lie within one registered range.
"""

import mmap

import numpy as np

from kvcellar.device.driver import Addresses
from kvcellar.layout.host import HostGeometry

MAX_PIECE_BYTES = 64 * 2**30
"""More than this at once is refused by some drivers."""

DEFAULT_PIECE_BYTES = 2**30
"""Small, because other threads' calls wait while the driver locks a piece."""


def cut_pieces(
    address: int, geometry: HostGeometry, piece_bytes: int = DEFAULT_PIECE_BYTES
) -> Addresses:
    """Where pieces begin, and the end of the last one, in ascending order.

    Args:
        address: of the arena; a page border.
        piece_bytes: most bytes of a piece, three pages or more and at most
            ``MAX_PIECE_BYTES``; a larger slab is cut too.
    """
    slab, page = geometry.slab_bytes, mmap.PAGESIZE
    # Rounding to pages adds less than one at either end.
    limit = max(min(piece_bytes, MAX_PIECE_BYTES) - 2 * page, page)
    arena_end = -(-geometry.arena_bytes // page) * page  # the mapping's last page
    slabs_per_piece = limit // slab
    step = slabs_per_piece * slab if slabs_per_piece else limit // page * page
    begins = np.arange(0, geometry.arena_bytes, step, dtype=np.int64) // page * page
    return address + np.append(np.unique(begins), arena_end)
