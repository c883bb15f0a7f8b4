"""Several ranks under vLLM's real scheduler: bytes are right on every one of them."""

import logging

import pytest

pytest.importorskip("vllm")

from kvcellar.errors import ConfigError
from kvcellar.index.states import State
from kvcellar.integrations.vllm import worker_side
from kvcellar.testing.oracle import events, record
from kvcellar.testing.oracle.__main__ import main
from kvcellar.testing.oracle.forward import WrongBytesError
from kvcellar.testing.oracle.layouts import build, num_layers_of
from kvcellar.testing.oracle.layouts.ranks import RankShape
from kvcellar.testing.oracle.setup import (
    OracleOptions,
    drawn,
    make_oracle,
    with_ranks,
)
from kvcellar.testing.oracle.workers import start_workers
from kvcellar.tiers.memory import HostMemory

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


SESSION = (
    events.Arrive(
        "r1",
        (("p", 0, 16),),
        new_tokens=10,
        is_session=True,
        controls=(("skip_load", True), ("skip_store", True)),
    ),
    events.Extend("r1", "q", num_tokens=32, new_tokens=20),
    events.Steps(17),
)
"""An answer of ten tokens, and more input behind it; nothing of it is ever copied."""


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"async_scheduling": True, "is_v2": False}, "WrongBytesError"),
        ({"async_scheduling": True, "is_v2": True}, None),
        ({"async_scheduling": False, "is_v2": False}, None),
    ],
)
def test_the_engine_alone_loses_a_session_s_state_where_nothing_is_drawn(change, kind):
    """Several steps behind the answer's end run over stages with the first runner."""
    options = OracleOptions("short-states", stages=(2, 2, 2), meddles=False, **change)
    failure, _ = record.run_events(options, SESSION)
    assert kind == (failure and failure.kind)


def test_stages_that_schedule_ahead_have_the_second_runner():
    """As the engine has it unless one insists; whatever the seed draws."""
    for seed in range(50):
        options = with_ranks(OracleOptions("three-windows", seed=seed), 1, 3)
        options = drawn(options, async_scheduling=True)
        assert options.is_v2


def test_more_stages_than_layers_are_refused():
    """Both numbers are said."""
    with pytest.raises(ConfigError, match="9 pipeline stages cannot share 8 layers"):
        with_ranks(OracleOptions("three-windows"), 1, 9)


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--pipeline-ranks", "9", "9 pipeline stages cannot share 8 layers"),
        ("--tensor-ranks", "0", "0 x 1 ranks cannot run"),
    ],
)
def test_a_shell_hears_in_one_sentence_what_cannot_run(option, value, told, capsys):
    """And gets the exit code of wrong use; messages are let through again."""
    assert 2 == main(["--layout", "three-windows", "--steps", "1", option, value])
    assert told in capsys.readouterr().err
    assert logging.getLogger("vllm").isEnabledFor(logging.WARNING)


def test_a_run_on_several_ranks_is_written_and_read(tmp_path):
    """Shares and ranks that lag are part of what a run depends on."""
    options = with_ranks(OracleOptions("three-windows", seed=3), 2, 3)
    path = tmp_path / "run.jsonl"
    failure = record.Failure("WrongBytesError", "said", 1)
    record.write(path, options, [events.Steps(1)], failure)
    assert options == record.read(path).options


def test_stages_keep_as_many_steps_under_way_as_there_are():
    """Steps are scheduled before the outcome of the last one is known."""
    oracle = start("llama-3.1-8b", stages=(2, 2))
    for name in ("r1", "r2", "r3"):
        oracle.apply(events.Arrive(name, PROMPT, new_tokens=5))
    oracle.apply(events.Finish())
    assert oracle.figures.num_ahead > 5
    oracle.close()


def test_ranks_of_a_machine_are_checked_together_and_no_others(monkeypatch):
    """Two machines with a stage each: every rank asks for its own machine's bytes."""
    asked = []

    class Counted(HostMemory):
        def __init__(self, geometry, *, machine_bytes=None):
            asked.append((geometry.arena_bytes, machine_bytes))
            super().__init__(geometry, machine_bytes=machine_bytes)

    monkeypatch.setattr(worker_side, "HostMemory", Counted)
    extra = {"host_memory": "4MiB"}
    shape = RankShape(tensor=2, stages=(1, 3))
    layout = build("gpt-oss-20b", extra_config=extra, ranks=shape)
    layout.vllm_config.parallel_config.nnodes = 2
    for worker in start_workers(layout, seed=0)[0]:
        worker.shutdown()
    assert 4 == len(asked)
    assert all(machine == 2 * own for own, machine in asked)


def test_stages_that_do_not_add_up_are_refused():
    """As the model's layers are."""
    with pytest.raises(
        ConfigError, match=r"stages of \[1, 2\] layers do not share out"
    ):
        start(stages=(1, 2))
