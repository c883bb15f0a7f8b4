"""Several ranks under vLLM's real scheduler: bytes are right on every one of them."""

import pytest

pytest.importorskip("vllm")

from kvcellar.errors import ConfigError
from kvcellar.index.states import State
from kvcellar.testing.oracle import events
from kvcellar.testing.oracle.forward import WrongBytesError
from kvcellar.testing.oracle.layouts import num_layers_of
from kvcellar.testing.oracle.setup import (
    OracleOptions,
    drawn,
    make_oracle,
    with_ranks,
)

PROMPT = (("p", 0, 130),)

# Layout, mode, tensor ranks, pipeline stages; stages get a random share of layers.
RUNS = (
    ("three-windows", "eager", 2, 1),
    ("three-windows", "lazy", 1, 3),
    ("chunked-odd", "eager", 1, 4),
    ("short-states", "lazy", 2, 2),
    ("full-two-pages", "eager", 1, 2),
    ("ring", "lazy", 2, 2),
    ("deepseek-v4-flash-mtp", "eager", 1, 2),
)


def start(name="three-windows", tensor=1, stages=(), **options):
    options = {"meddles": False, "host_prompts": 8.0} | options
    return make_oracle(
        OracleOptions(name, tensor_ranks=tensor, stages=stages, **options)
    )


@pytest.mark.parametrize(("name", "mode", "tensor", "pipeline"), RUNS)
def test_a_random_run_reads_only_right_bytes_on_every_rank(
    name, mode, tensor, pipeline
):
    """Equal ranks and stages that differ; one slow, one failing, as the seed has it."""
    seed = RUNS.index((name, mode, tensor, pipeline))
    options = OracleOptions(name, mode, seed, failure_rate=0.05)
    oracle = make_oracle(drawn(with_ranks(options, tensor, pipeline)))
    try:
        figures = oracle.run(60)
        while not figures.stored_chunks and figures.num_steps < 1000:
            figures = oracle.run(60)
    finally:
        oracle.close()
    assert figures.stored_chunks > 0
    checked = [rank.forward.num_units_checked for rank in oracle.runner._ranks]
    assert tensor * pipeline == len(checked)
    assert all(checked)


def test_a_stage_without_a_group_keeps_nothing_of_it():
    """One windowed layer, then the rest: loads come back right on both stages."""
    oracle = start("gpt-oss-20b", stages=(1, 3))
    held = [
        [group.payload_bytes for group in worker.worker_side._own_facts.layout.groups]
        for worker in oracle._workers
    ]
    assert 0 in held[0]
    assert 0 not in held[1]
    assert oracle.planner.layout.groups[held[0].index(0)].payload_bytes > 0
    oracle.apply(events.Arrive("r1", PROMPT, new_tokens=1))
    oracle.apply(events.Steps(15))
    oracle.apply(events.Forget(1.0, seed=0))
    oracle.apply(events.Arrive("r2", PROMPT, new_tokens=1))
    oracle.apply(events.Finish())
    assert 128 == oracle.figures.loaded_tokens
    assert all(transfers.num_bytes for transfers in oracle.all_transfers)
    oracle.close()


def test_bytes_are_the_ranks_own_and_counts_are_shared():
    """Figures of the planner are of all ranks together; each maps its part of them."""
    oracle = start(stages=(2, 6))
    arenas = [worker.worker_side._memory.num_bytes for worker in oracle._workers]
    geometry = oracle.planner.slabs.geometry
    assert sum(arenas) == geometry.arena_bytes
    assert 2 * arenas[0] == arenas[1]  # cells of either size fill one stage at most
    oracle.close()


@pytest.mark.parametrize("rank", [0, 1])
def test_wrong_bytes_on_one_rank_are_seen(rank, monkeypatch):
    """The oracle can fail: the other rank's bytes are right, which must not help."""
    oracle = start(tensor=2)
    device = oracle.all_transfers[rank]._device
    copy = device.copy

    def shifted(job, fence=None):
        for part in job.copies:
            if job.direction.value == "store" and len(part.device_blocks) > 1:
                part.device_blocks[:] = part.device_blocks[::-1].copy()
        return copy(job, fence)

    monkeypatch.setattr(device, "copy", shifted)
    with pytest.raises(WrongBytesError, match="not what its prefix demands"):
        oracle.run(400)
    oracle.close()


def chunks_ready(oracle):
    """Chunks that a look-up finds."""
    return sum(
        node.state is State.READY for node in oracle.planner.index.nodes.values()
    )


def test_a_chunk_is_found_when_the_slowest_rank_has_it():
    """Not when three of four have copied it."""
    oracle = start("llama-3.1-8b", tensor=2, stages=(1, 3))
    oracle.set_slowness(0.0)
    oracle.all_transfers[3].slowness = 1.0
    oracle.apply(events.Arrive("r1", PROMPT, new_tokens=1))
    oracle.apply(events.Steps(12))
    assert [0, 0, 0] == [t.num_in_flight for t in oracle.all_transfers[:3]]
    assert 0 == chunks_ready(oracle)
    oracle.all_transfers[3].slowness = 0.0
    oracle.apply(events.Finish())
    assert 8 == chunks_ready(oracle)
    oracle.close()


def test_a_store_that_fails_on_one_rank_is_found_on_none():
    """And what one rank has copied of it is given back."""
    oracle = start("llama-3.1-8b", tensor=2, failure_rate=1.0, failing_rank=1)
    oracle.apply(events.Arrive("r1", PROMPT, new_tokens=1))
    oracle.apply(events.Finish())
    assert 0 == len(oracle.planner.index.nodes)
    assert 0 == oracle.planner.slabs.used_bytes
    assert oracle.all_transfers[0].num_bytes > 0
    oracle.close()


def test_a_load_that_fails_on_one_rank_is_computed_on_all():
    """The engine hears of it once every rank is done."""
    oracle = start("llama-3.1-8b", tensor=2, failing_rank=1)
    oracle.apply(events.Arrive("r1", PROMPT, new_tokens=1))
    oracle.apply(events.Steps(12))
    oracle.apply(events.Forget(1.0, seed=0))
    oracle.all_transfers[1].failure_rate = 1.0
    oracle.apply(events.Arrive("r2", PROMPT, new_tokens=1))
    oracle.apply(events.Steps(4))
    oracle.all_transfers[1].failure_rate = 0.0
    oracle.apply(events.Finish())
    assert 1 == oracle.figures.failed_jobs
    oracle.close()


def test_what_a_slow_rank_ends_after_a_reset_is_never_found():
    """The planner forgets at once; the late report ends the job and no more."""
    oracle = start("llama-3.1-8b", tensor=2)
    oracle.set_slowness(0.0)
    oracle.all_transfers[1].slowness = 1.0
    oracle.apply(events.Arrive("r1", PROMPT, new_tokens=1))
    oracle.apply(events.Steps(12))
    assert oracle.planner.jobs
    oracle.apply(events.Reset(is_paused=True, is_forced=False))
    oracle.all_transfers[1].slowness = 0.0
    oracle.apply(events.Steps(3))
    assert not oracle.planner.jobs
    assert 0 == chunks_ready(oracle)
    oracle.apply(events.Finish())
    assert 0 == oracle.planner.slabs.used_bytes
    oracle.close()


def test_the_drawn_stages_share_all_layers():
    """Whatever the seed: each has one or more, and all of them together."""
    for seed in range(50):
        options = with_ranks(OracleOptions("three-windows", seed=seed), 2, 3)
        assert num_layers_of("three-windows") == sum(options.stages)
        assert 3 == len(options.stages)
        assert min(options.stages) > 0
        assert options.slow_rank in (None, *range(6))


def test_more_stages_than_layers_are_refused():
    """Both numbers are said."""
    with pytest.raises(ConfigError, match="9 pipeline stages cannot share 8 layers"):
        with_ranks(OracleOptions("three-windows"), 1, 9)


def test_stages_that_do_not_add_up_are_refused():
    """As the model's layers are."""
    with pytest.raises(
        ConfigError, match=r"stages of \[1, 2\] layers do not share out"
    ):
        start(stages=(1, 2))
