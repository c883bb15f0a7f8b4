"""Which part of a job is whose, and joining at start."""

import os
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from meeting_ranks import ThreadGather, in_threads, meetings

from kvcellar.errors import TierError
from kvcellar.transfer import joining
from kvcellar.transfer.arena_share import ArenaShare
from kvcellar.transfer.jobs import CopyJob, Direction, GroupCopy
from kvcellar.transfer.joining import Joined, NotJoined, join


class NoMeeting:
    """Stands in where nobody meets."""


@st.composite
def jobs(draw) -> CopyJob:
    """Any job: the numbers within a group are distinct."""
    copies = []
    for position in range(draw(st.integers(0, 3))):
        count = draw(st.integers(0, 12))
        blocks = [
            np.array(draw(st.permutations(range(count))), dtype=np.int64)
            for _ in range(2)
        ]
        copies.append(GroupCopy(position, *blocks))
    direction = draw(st.sampled_from(Direction))
    return CopyJob(draw(st.integers(0, 50)), direction, tuple(copies))


def pairs_of(job: CopyJob) -> list[tuple[int, int, int]]:
    return [
        (copy.position, int(device), int(host))
        for copy in job.copies
        for device, host in zip(copy.device_blocks, copy.host_blocks, strict=True)
    ]


@given(jobs(), st.integers(1, 5))
def test_parts_add_up_to_the_job(job: CopyJob, num_ranks: int):
    """Every block is stored or moved by one rank, and loaded by all."""
    shares = [ArenaShare(rank, num_ranks, NoMeeting()) for rank in range(num_ranks)]
    parts = [share.part_of(job) for share in shares]
    pairs = [pair for part in parts for pair in pairs_of(part)]
    times = num_ranks if job.direction is Direction.LOAD else 1
    assert sorted(pairs_of(job) * times) == sorted(pairs)
    assert {(job.job_id, job.direction)} == {(p.job_id, p.direction) for p in parts}
    if job.direction is not Direction.LOAD:
        assert all(len(copy.host_blocks) for part in parts for copy in part.copies)


def test_single_blocks_are_dealt_out_in_turns():
    """Over the jobs of a while, all ranks store as many of one block each."""
    block = np.zeros(1, dtype=np.int64)
    counts = [
        sum(
            len(share.part_of(CopyJob(n, Direction.STORE, (copy,))).copies)
            for n in range(40)
        )
        for copy in [GroupCopy(0, block, block)]
        for share in [ArenaShare(rank, 4, NoMeeting()) for rank in range(4)]
    ]
    assert [10] * 4 == counts


def test_a_part_is_one_stretch():
    """Blocks that follow each other are cut once for each rank, not one by one."""
    blocks = np.arange(10, dtype=np.int64)
    job = CopyJob(1, Direction.STORE, (GroupCopy(0, blocks, blocks + 50),))
    for rank in range(3):
        (copy,) = ArenaShare(rank, 3, NoMeeting()).part_of(job).copies
        assert 3 <= len(copy.host_blocks) <= 4
        assert {1} == set(np.diff(copy.host_blocks)) == set(np.diff(copy.device_blocks))


def test_both_meetings_of_a_move_have_names_of_their_own():
    """A rank cannot take another's end of one move for the start of the next."""
    made = meetings(2)
    shares = [ArenaShare(rank, 2, meeting) for rank, meeting in enumerate(made)]
    move = CopyJob(3, Direction.MOVE, ())

    def work(rank: int) -> bool:
        try:
            (shares[rank].meet_before if rank else shares[rank].meet_after)(move)
        except TierError:
            return True
        return False

    assert any(in_threads(work, 2))
    for share in shares:
        share.close()


# -- joining ---------------------------------------------------------------------------


def join_all(num_ranks: int, num_sharing: int) -> list[Joined | NotJoined]:
    gather = ThreadGather(num_ranks)
    return in_threads(lambda r: join(gather.of(r), r, num_sharing), num_ranks)


def num_open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(("num_ranks", "num_sharing"), [(2, 2), (4, 4), (4, 2), (6, 2)])
def test_each_set_of_ranks_gets_one_file(num_ranks: int, num_sharing: int):
    """Ranks of a set have the same memory file, and can meet; others have another."""
    before = num_open_files()
    joined = join_all(num_ranks, num_sharing)
    files = [os.fstat(one.file).st_ino for one in joined]
    for rank in range(num_ranks):
        same = [r for r in range(num_ranks) if files[r] == files[rank]]
        first = rank // num_sharing * num_sharing
        assert list(range(first, first + num_sharing)) == same
    move = CopyJob(1, Direction.MOVE, ())
    in_threads(lambda rank: joined[rank].share.meet_before(move), num_ranks)
    for one in joined:
        os.close(one.file)
        one.share.close()
    assert before == num_open_files()


def fail_of(name: str, only_call: int) -> Callable[..., object]:
    """One of the calls that joining makes, failing once."""
    real = getattr(joining, name)
    calls = iter(range(10**6))

    def call(*arguments: object) -> object:
        if next(calls) == only_call:
            raise TierError("host", "share memory", "no such thing here")
        return real(*arguments)

    return call


@pytest.mark.parametrize("name", ["new_memory_file", "describe_file", "open_file"])
@pytest.mark.parametrize("only_call", [0, 1])
def test_if_one_rank_fails_none_shares(
    name: str, only_call: int, monkeypatch: pytest.MonkeyPatch
):
    """All hear the same reason, and no file is left open."""
    before = num_open_files()
    monkeypatch.setattr(joining, name, fail_of(name, only_call))
    reasons = {answer.reason for answer in join_all(4, 2)}
    assert 1 == len(reasons)
    assert "no such thing here" in reasons.pop()
    assert before == num_open_files()
