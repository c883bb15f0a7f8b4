"""vLLM's second model runner writes blocks before it tells the connector of a step."""

import pytest

pytest.importorskip("vllm")

from types import SimpleNamespace

from kvcellar.core import actions
from kvcellar.integrations.vllm.compat import (
    DeviceBlocks,
    blocks_written_early,
    writes_blocks_early,
)
from kvcellar.integrations.vllm.jobs import Jobs
from kvcellar.integrations.vllm.messages import CellarMetadata
from kvcellar.integrations.vllm.worker_side import WorkerSide
from kvcellar.testing.oracle.layouts import build
from kvcellar.testing.oracle.setup import OracleOptions, make_oracle
from kvcellar.transfer.jobs import CopyJob, Direction, JobResult


class Block:
    """A device block that the prefix cache holds."""

    ref_cnt = 0

    def __init__(self, block_id):
        self.block_id, self.block_hash = block_id, b"held"


class Pool:
    """The parts of vLLM's block pool that are used."""

    def __init__(self):
        self.blocks = [Block(i) for i in range(10)]


class Transfers:
    """Copies that end when a test says so."""

    def __init__(self):
        self.results = []
        self.num_in_flight = 0

    def submit(self, job):
        del job

    def wait_for(self, job_ids, timeout_seconds):
        del job_ids, timeout_seconds
        return True

    def poll(self):
        results, self.results = self.results, []
        return results


def store(job_id, *blocks):
    copies = actions.BlockCopies(0, list(blocks), list(range(len(blocks))))
    return actions.Store(job_id, [copies])


def test_only_copies_that_read_what_was_written_are_spoiled():
    """Two sources are given away in a step; the workers write one of them early."""
    jobs, pool = Jobs(num_ranks=1), Pool()
    jobs.device_blocks = DeviceBlocks(pool)
    jobs.add(store(1, 3, 4))
    jobs.add(store(2, 5))
    jobs.take_metadata()
    pool.blocks[4].block_hash = pool.blocks[5].block_hash = None
    jobs.end_overtaken(written_early=lambda: {4, 9})
    metadata = jobs.take_metadata()
    assert [1, 2] == sorted(metadata.overtaken)
    assert [1] == metadata.spoiled


def test_what_had_ended_before_the_step_counts_and_the_rest_has_failed():
    """The worker knows more than the scheduler: one copy ended in the step before."""
    config = build("llama-3.1-8b", extra_config={"host_memory": "1MiB"})
    worker = WorkerSide(config.vllm_config, config.worker_config)
    worker.transfers = Transfers()
    stores = [CopyJob(job_id, Direction.STORE, ()) for job_id in (1, 2)]
    worker.start_stores(CellarMetadata(stores=stores))
    worker.transfers.results = [JobResult(1, Direction.STORE, 8, 0.0)]
    worker.take_results()
    worker.end_overtaken(CellarMetadata(overtaken=[1, 2], spoiled=[1, 2]))
    worker.transfers.results = [JobResult(2, Direction.STORE, 8, 0.0)]
    worker.take_results()
    report = worker.take_report()
    assert ({1: 1, 2: 1}, {2}) == (report.ended_by, report.failed)


def test_zeroed_copied_and_state_blocks_are_written_early():
    """New blocks of recurrent state count, those of attention do not by themselves."""
    copy = SimpleNamespace(src_block_id=1, dst_block_id=2)
    output = SimpleNamespace(
        new_block_ids_to_zero=[7],
        kv_cache_block_copies=[copy],
        scheduled_new_reqs=[SimpleNamespace(block_ids=([10, 11], [20]))],
        scheduled_cached_reqs=SimpleNamespace(new_block_ids=[None, ([12], [21])]),
    )
    assert {2, 7} == blocks_written_early(output, ())
    assert {2, 7, 20, 21} == blocks_written_early(output, {1: 16})
    output.new_block_ids_to_zero = output.kv_cache_block_copies = None
    assert set() == blocks_written_early(output, ())


@pytest.mark.parametrize("is_v2", [False, True])
def test_the_engine_s_own_choice_of_runner_counts(monkeypatch, is_v2):
    """As vLLM decides it: here by its environment variable."""
    # It refuses to start the second runner on CPUs, so the engine is planned before.
    config = build("llama-3.1-8b", extra_config={"host_memory": "1MiB"})
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", str(int(is_v2)))
    assert is_v2 == writes_blocks_early(config.vllm_config)


@pytest.mark.parametrize("name", ["ring", "deepseek-v4-flash", "short-states"])
def test_no_block_written_early_reaches_host_memory(name):
    """Zeroed blocks, and those of states: some copies fail, no byte read is wrong."""
    options = OracleOptions(
        name, "lazy", 7, device_prompts=1.0, async_scheduling=True, is_v2=True
    )
    oracle = make_oracle(options)
    try:
        figures = oracle.run(600)
    finally:
        oracle.close()
    assert figures.failed_jobs
    assert figures.loaded_tokens
