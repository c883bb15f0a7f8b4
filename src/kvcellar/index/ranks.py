"""What the host memory of all ranks holds, in the words of the start-up log."""

import itertools
from collections.abc import Iterator, Sequence

from kvcellar.config import Settings, describe_host_memory
from kvcellar.index.capacity import TYPICAL_PROMPT_TOKENS, capacity, describe
from kvcellar.layout.groups import CacheLayout
from kvcellar.layout.host import HostGeometry
from kvcellar.layout.ranks import RanksGeometry, server_layout
from kvcellar.layout.units import format_bytes

_WORTH_SAYING = 0.01  # of host memory that no cell covers


def describe_server(
    layouts: Sequence[CacheLayout],
    geometry: RanksGeometry,
    settings: Settings,
    longest_tokens: int = TYPICAL_PROMPT_TOKENS,
) -> list[str]:
    """The multiplication of sizes, then what fits.

    Ranks with equal bytes are described by one of them, others by their sum.

    Args:
        layouts: one per rank, in rank order.
        geometry: their cut.
        longest_tokens: that a request may have; no prompt is said to have more.
    """
    num_sharing = geometry.num_sharing
    prompt_tokens = min(TYPICAL_PROMPT_TOKENS, longest_tokens)
    if geometry.are_even:
        figures = capacity(layouts[0], geometry.ranks[0], prompt_tokens)
        whose = f"per {num_sharing} ranks" if num_sharing > 1 else "per rank"
        return [
            describe_host_memory(settings, len(layouts), num_sharing),
            *describe(figures, whose).splitlines(),
        ]
    whole = server_layout(layouts[::num_sharing])
    figures = capacity(whole, geometry.server, prompt_tokens)
    whose = f"in all {len(layouts)} ranks"
    return [
        describe_shares(geometry.arenas, num_sharing),
        *_describe_waste(geometry.server),
        *describe(figures, whose).splitlines(),
    ]


def describe_shares(arenas: Sequence[HostGeometry], num_sharing: int = 1) -> str:
    """What ranks map that hold different bytes, neighbours with equal ones together.

    Args:
        num_sharing: ranks that share each arena.
    """
    sizes = [arena.arena_bytes for arena in arenas]
    runs = [(size, len(list(run))) for size, run in itertools.groupby(sizes)]
    what = f"arena(s) of {num_sharing} ranks" if num_sharing > 1 else "rank(s)"
    parts = " + ".join(f"{count} {what} x {_both(size)}" for size, count in runs)
    return f"{parts} = {_both(sum(sizes))} of host memory, by the bytes each rank holds"


def wasted_share(geometry: HostGeometry) -> float:
    """Share of a slab that the cells of its worst size class do not cover."""
    held = min(c.cells_per_slab * c.cell_bytes for c in geometry.classes)
    return 1 - held / geometry.slab_bytes


def _describe_waste(geometry: HostGeometry) -> Iterator[str]:
    wasted = wasted_share(geometry)
    if wasted > _WORTH_SAYING:
        yield (
            f"up to {wasted:.1%} of it cannot be used, since the ranks hold the cache "
            "groups in different proportions"
        )


def _both(num_bytes: int) -> str:
    return f"{num_bytes} bytes ({format_bytes(num_bytes)})"
