"""Jobs in flight: device blocks held, ranks counted, overtaken copies ended first."""

import pytest

pytest.importorskip("vllm")

from kvcellar.core import actions
from kvcellar.integrations.vllm.compat import DeviceBlocks
from kvcellar.integrations.vllm.jobs import EndedJob, Jobs
from kvcellar.integrations.vllm.messages import WorkerReport

RANK_0, RANK_1 = 0b01, 0b10


class Block:
    def __init__(self, block_id, block_hash=None):
        self.block_id, self.block_hash, self.ref_cnt = block_id, block_hash, 0


class Pool:
    """The parts of vLLM's block pool that are used."""

    def __init__(self, num_blocks=10):
        self.blocks = [Block(i) for i in range(num_blocks)]
        self.freed = []

    def touch(self, blocks):
        for block in blocks:
            block.ref_cnt += 1

    def free_blocks(self, blocks):
        for block in blocks:
            block.ref_cnt -= 1
            self.freed.append(block.block_id)


def make_jobs(num_ranks=1):
    jobs, pool = Jobs(num_ranks), Pool()
    jobs.device_blocks = DeviceBlocks(pool)
    return jobs, pool


def store(job_id, *device_blocks):
    copies = actions.BlockCopies(
        0, list(device_blocks), list(range(len(device_blocks)))
    )
    return actions.Store(job_id, [copies])


def test_unknown_sources_are_referenced_until_all_ranks_reported():
    """Not in the prefix cache: pinned, released after the last rank, tail first."""
    jobs, pool = make_jobs(num_ranks=2)
    jobs.add(store(1, 3, 4, 5))
    assert [1, 1, 1] == [pool.blocks[i].ref_cnt for i in (3, 4, 5)]
    assert [] == jobs.take_report(WorkerReport({1: RANK_0}))
    assert [EndedJob(1, False, None)] == jobs.take_report(WorkerReport({1: RANK_1}))
    jobs.release(1)
    assert [5, 4, 3] == pool.freed
    assert not jobs.has_work()


def test_a_failure_on_any_rank_fails_the_job():
    """Also when another rank reports later that it succeeded."""
    jobs, _ = make_jobs(num_ranks=2)
    jobs.add(store(1, 3))
    jobs.take_report(WorkerReport({1: RANK_0}, {1}))
    assert [EndedJob(1, True, None)] == jobs.take_report(WorkerReport({1: RANK_1}))


def test_reports_of_ranks_add_up():
    """Ranks and failures are joined, whatever the order."""
    total = WorkerReport({1: RANK_0, 2: RANK_0}).aggregate(
        WorkerReport({1: RANK_1}, {1})
    )
    assert WorkerReport({1: RANK_0 | RANK_1, 2: RANK_0}, {1}) == total


def test_a_rank_that_tells_twice_counts_once():
    """Nor does it matter when it tells once more, after the job's end."""
    jobs, _ = make_jobs(num_ranks=2)
    jobs.add(store(1, 3))
    assert [] == jobs.take_report(WorkerReport({1: RANK_0}))
    assert [] == jobs.take_report(WorkerReport({1: RANK_0}))
    assert [EndedJob(1, False, None)] == jobs.take_report(WorkerReport({1: RANK_1}))
    assert [] == jobs.take_report(WorkerReport({1: RANK_1}, {1}))
    assert not jobs.has_work()


def test_the_slowest_ranks_load_is_the_loads_time():
    """Whoever reports last."""
    jobs, _ = make_jobs(num_ranks=2)
    jobs.add(actions.Load(7, "r1", [actions.BlockCopies(0, [1], [0])]))
    jobs.take_report(WorkerReport({7: RANK_0}, load_seconds={7: 2.0}))
    (ended,) = jobs.take_report(WorkerReport({7: RANK_1}, load_seconds={7: 1.0}))
    assert EndedJob(7, False, "r1", 2.0) == ended


def test_fenced_sources_keep_their_place_in_the_free_queue():
    """What the prefix cache holds is not referenced; what it does not hold is."""
    jobs, pool = make_jobs()
    pool.blocks[3].block_hash = b"x"
    jobs.add(store(1, 3, 4))
    assert [0, 1] == [pool.blocks[3].ref_cnt, pool.blocks[4].ref_cnt]


def test_a_copy_whose_source_was_given_away_must_end_first():
    """A handed-over job is waited for; one not yet handed over runs ahead."""
    jobs, pool = make_jobs()
    pool.blocks[3].block_hash = pool.blocks[4].block_hash = b"x"
    jobs.add(store(1, 3))
    handed_over = jobs.take_metadata()
    assert [1] == [job.job_id for job in handed_over.stores]
    jobs.add(store(2, 4))
    pool.blocks[3].block_hash = pool.blocks[4].block_hash = None
    jobs.end_overtaken()
    jobs.add(store(3, 5))
    metadata = jobs.take_metadata()
    assert [1, 2] == sorted(metadata.overtaken)
    assert [2] == [job.job_id for job in metadata.early_stores]
    assert [3] == [job.job_id for job in metadata.stores]
    assert 2 == jobs.num_overtaken


def test_a_source_given_away_and_hashed_alike_again_is_overtaken():
    """The same prefix in the same block, not computed yet: another key object."""
    jobs, pool = make_jobs()
    pool.blocks[3].block_hash = bytes([1, 2])
    jobs.add(store(1, 3))
    jobs.take_metadata()
    pool.blocks[3].block_hash = bytes([1]) + bytes([2])
    jobs.end_overtaken()
    assert [1] == jobs.take_metadata().overtaken


def test_waiting_helps_only_if_a_copy_holds_the_last_reference():
    """The engine waits instead of preempting when a copy's end frees a block."""
    jobs, pool = make_jobs()
    pool.blocks[3].ref_cnt = 1
    jobs.add(store(1, 3))
    assert not jobs.device_blocks.holds_last_reference()
    pool.blocks[3].ref_cnt -= 1
    assert jobs.device_blocks.holds_last_reference()


def test_loads_name_the_request_that_waits():
    """Its end is told with the request's id."""
    jobs, _ = make_jobs()
    jobs.add(actions.Load(7, "r1", [actions.BlockCopies(0, [1], [2])]))
    assert ["r1"] == list(jobs.take_metadata().loads)
    assert [EndedJob(7, False, "r1")] == jobs.take_report(WorkerReport({7: 1}))
