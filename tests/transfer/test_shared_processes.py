"""Real processes that share one arena: random jobs, every loaded byte checked."""

import os
import re
from pathlib import Path

import pytest
from arena_planner import SharedArena

pytestmark = pytest.mark.timeout(1200)  # it starts processes

HOST_BYTES = 2**20
NUM_JOBS = 300


@pytest.mark.parametrize("lags", [[0, 25], [3, 0, 40, 0]], ids=["two", "four"])
def test_every_rank_loads_what_was_stored_and_it_is_there_once(lags: list[int]):
    """Stores in parts, moves, reused cells, ranks that lag: no wrong byte anywhere.

    The full arena costs the machine its bytes once, whatever the number of ranks.
    """
    with SharedArena(lags, HOST_BYTES, seed=len(lags)) as arena:
        arena.play(NUM_JOBS)
        arena.fill()
        arena.play(NUM_JOBS, has_moves=False)
        arena.drain()
        shared = [pss_and_file(worker.pid) for worker in arena.workers]
    assert 0 == arena.num_wrong == arena.num_failed
    assert all(count > NUM_JOBS // 20 for count in arena.num_good.values())
    arena_bytes, page = arena.geometry.arena_bytes, os.sysconf("SC_PAGESIZE")
    used = sum(pss for pss, _ in shared)
    assert 1 == len({file for _, file in shared})
    assert 0.9 * arena_bytes < used <= arena_bytes + len(lags) * page


def test_a_killed_rank_hangs_nobody_and_spoils_nothing():
    """Jobs end; what is reported as loaded is right; after a move nothing is served."""
    with SharedArena([0, 0, 8], HOST_BYTES, seed=5) as arena:
        arena.play(NUM_JOBS)
        arena.kill(1)
        arena.play(NUM_JOBS)
        arena.drain()
        good = dict(arena.num_good)
        arena.play(50)
        arena.drain()
        assert good == arena.num_good
    assert 0 == arena.num_wrong
    assert arena.num_failed > 0


def pss_and_file(pid: int) -> tuple[int, str]:
    """A process's share of its memory files, in bytes, and their inodes.

    Source: proc(5): Pss counts a page that n processes map as a n-th of one.
    """
    found, inodes, is_ours = 0, set(), False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if match := re.match(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ (\d+)\s+(.*)", line):
            is_ours = match[2].startswith("/memfd:kvcellar")
            inodes |= {match[1]} if is_ours else set()
        elif is_ours and line.startswith("Pss:"):
            found += int(line.split()[1]) * 1024
    return found, " ".join(sorted(inodes))
