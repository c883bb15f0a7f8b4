"""Moves, loads and stores reach the copy thread in the order they were planned."""

import pytest

pytest.importorskip("vllm")

from kvcellar.core import actions
from kvcellar.index.slabs import Cell, CellMove
from kvcellar.integrations.vllm.compat import DeviceBlocks
from kvcellar.integrations.vllm.jobs import Jobs
from kvcellar.integrations.vllm.worker_side import WorkerSide
from kvcellar.testing.oracle.layouts import build
from kvcellar.testing.oracle.setup import OracleOptions, make_oracle


class Block:
    """A device block that the prefix cache does not hold."""

    block_hash = None
    ref_cnt = 0


class Pool:
    """The parts of vLLM's block pool that are used."""

    def __init__(self):
        self.blocks = [Block() for _ in range(10)]

    def touch(self, blocks):
        for block in blocks:
            block.ref_cnt += 1


class Recorder:
    """Notes the order in which jobs are handed to the copy thread."""

    def __init__(self):
        self.job_ids = []

    def submit(self, job):
        self.job_ids.append(job.job_id)


def move(job_id):
    return actions.Move(job_id, [CellMove(Cell(0, 5), 0, 9, 5)])


def store(job_id):
    return actions.Store(job_id, [actions.BlockCopies(0, [3], [7])])


def load(job_id):
    return actions.Load(job_id, f"r{job_id}", [actions.BlockCopies(0, [4], [5])])


def submitted(*planned):
    """Job ids before and after the forward's end, as the workers submit them."""
    jobs = Jobs(num_ranks=1)
    jobs.device_blocks = DeviceBlocks(Pool())
    for action in planned:
        jobs.add(action)
    config = build("llama-3.1-8b", extra_config={"host_memory": "1MiB"})
    worker = WorkerSide(config.vllm_config, config.worker_config)
    worker.transfers = Recorder()
    metadata = jobs.take_metadata()
    worker.start_loads(metadata, is_idle=False)
    first, worker.transfers = worker.transfers, Recorder()
    worker.start_stores(metadata)
    return first.job_ids, worker.transfers.job_ids


def test_a_load_comes_behind_the_moves_planned_before_it():
    """It reads cells where they will be, not where they were."""
    assert ([1, 2, 3, 4], []) == submitted(move(1), store(2), move(3), load(4))


def test_a_load_does_not_wait_for_stores_without_a_move_behind_them():
    """Only moves change what a load finds; the others wait for the forward."""
    assert ([3], [1, 2]) == submitted(store(1), store(2), load(3))
    assert ([1, 3], [2]) == submitted(move(1), store(2), load(3))


def test_moves_planned_behind_a_load_stay_behind_it():
    """They may overwrite what it reads."""
    assert ([1], [2, 3]) == submitted(load(1), move(2), store(3))
    assert ([1, 2, 3], [4]) == submitted(move(1), load(2), load(3), move(4))


def num_steps_with_moves_ahead(seed):
    """Steps of a random run in which a load had to follow a move."""
    count = 0
    oracle = make_oracle(OracleOptions("gemma-3-27b", "lazy", seed, host_prompts=2.0))
    side = oracle._worker.worker_side
    start_loads = side.start_loads

    def watched(metadata, *, is_idle):
        nonlocal count
        count += bool(metadata.num_ahead)
        start_loads(metadata, is_idle=is_idle)

    side.start_loads = watched
    try:
        oracle.run(600)
    finally:
        oracle.close()
    return count


def test_a_move_and_a_load_in_one_step_on_the_real_scheduler():
    """It is rare, and it happens: a request ends, cells move, another is admitted."""
    assert any(num_steps_with_moves_ahead(seed) for seed in range(12))
