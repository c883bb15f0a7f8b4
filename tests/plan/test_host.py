"""Host memory in a plan: figures of the connector's own code, and their products."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import plan_of

from kvcellar.config import Settings, describe_host_memory, rank_bytes
from kvcellar.errors import ConfigError
from kvcellar.index.capacity import capacity, describe
from kvcellar.index.slabs import SlabAllocator
from kvcellar.layout.host import plan_geometry
from kvcellar.layout.models import MODEL_NAMES, model_layout
from kvcellar.plan.host import server_bytes_for
from kvcellar.plan.report.text import text_of
from kvcellar.plan.shape import ServerShape

GIB, MIB = 2**30, 2**20


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_the_log_lines_are_those_of_the_connectors_code(name):
    """Layout under the rules that serve, cut and described as at a start."""
    planned = plan_of(name, host_memory="256GiB", tensor_parallel=2)
    model = model_layout(name, tensor_parallel=2)
    layout = model.layout
    if model.compressor_ratios:
        layout = model.without_dead_state.layout
    chosen = Settings(host_memory_bytes=256 * GIB)
    num_sharing = model.num_identical_ranks
    arena_bytes = rank_bytes(chosen, 2) * num_sharing
    figures = capacity(layout, plan_geometry(layout, arena_bytes))
    whose = "per 2 ranks" if num_sharing == 2 else "per rank"
    expected = [
        describe_host_memory(chosen, 2, num_sharing),
        *describe(figures, whose).splitlines(),
    ]
    assert expected == list(planned.figures.host.log_lines)


def test_no_prompt_is_longer_than_requests_may_be():
    """What the start-up log counts, and the plan with it."""
    host = plan_of("gpt-oss-20b", host_memory="64GiB", max_model_len=2048).figures.host
    assert "prompts of 2048 tokens" in host.log_lines[1]
    assert f" {host.num_prompts} prompts" in host.log_lines[1]


@pytest.mark.parametrize("name", ["deepseek-v4-flash", "gemma-3-27b", "qwen3-next"])
def test_so_many_prompts_and_no_more_can_be_allocated(name):
    """The real allocator takes the cells of every prompt that the plan promises."""
    figures = plan_of(name, host_memory="3GiB", prompt_tokens=9000).figures
    (layout,) = figures.layouts
    slabs = SlabAllocator(plan_geometry(layout, 3 * GIB))
    chunks = figures.host.prompt_tokens // layout.chunk_tokens
    tails = {
        position: -(-group.checkpoint_bytes // group.block_bytes)
        for position, group in enumerate(figures.groups)
        if group.checkpoint_blocks
    }
    cells = dict.fromkeys(layout.chunk_positions, chunks) | tails
    for _ in range(figures.host.num_prompts):
        for position, number in cells.items():
            assert all(slabs.allocate(position) for _ in range(number))
    free = [slabs.allocate(p) for p, number in cells.items() for _ in range(number)]
    assert None in free


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["gemma-3-270m", "llama-3.1-8b", "qwen3-next"]),
    st.sampled_from([1, 2]),
    st.integers(1, 200),
)
def test_the_remedys_size_holds_as_many_prompts(name, tensor_parallel, num_prompts):
    """And the plan for that size says so."""
    options = {"tensor_parallel": tensor_parallel, "prompt_tokens": 5000}
    planned = plan_of(name, host_memory="8GiB", **options).figures
    enough = server_bytes_for(planned.layouts, planned.shape, planned.host, num_prompts)
    again = plan_of(name, host_memory=enough, **options)
    assert again.figures.host.num_prompts >= num_prompts
    assert enough < 1.6 * num_prompts * planned.host.bytes_per_prompt + 64 * MIB


def test_every_multiplication_is_printed():
    """Ranks, replicas and nodes, from one rank's share to the total."""
    planned = plan_of(
        "llama-3.1-70b",
        host_memory="32GiB",
        tensor_parallel=4,
        data_parallel=2,
        nodes=2,
        device_memory="10GiB",
    )
    assert (
        "8 GiB x 4 ranks = 32 GiB of host memory per server",
        "32 GiB x 2 replicas = 64 GiB in total, since each replica has its own",
        "8 GiB x 4 ranks = 32 GiB on each of 2 nodes",
        "256 chunks x 1.25 MiB = 320 MiB per prompt and rank",
        "8,192 blocks x 1.25 MiB = 10 GiB of KV cache on each GPU",
        "10 GiB x 8 GPUs = 80 GiB of KV cache in total",
    ) == planned.products


def test_ranks_replicas_and_nodes_multiply_bytes_and_replicas_multiply_prompts():
    """All ranks of a server hold a share of the same prompts."""
    one = plan_of("llama-3.1-70b", host_memory_per_rank="8GiB", tensor_parallel=4)
    many = plan_of(
        "llama-3.1-70b",
        host_memory_per_rank="8GiB",
        tensor_parallel=4,
        data_parallel=6,
        nodes=3,
    )
    first, second = one.figures.host, many.figures.host
    arena = first.arena_bytes_per_rank
    assert (arena, 4 * arena, 4 * arena) == (
        second.arena_bytes_per_rank,
        first.arena_bytes_in_total,
        second.arena_bytes_per_server,
    )
    assert (8 * arena, 24 * arena) == (
        second.arena_bytes_per_node,
        second.arena_bytes_in_total,
    )
    assert first.num_prompts == second.num_prompts
    assert 6 * first.num_prompts == second.num_prompts_in_total


def test_stages_with_more_layers_get_more_of_the_servers_memory():
    """11, 11 and 10 layers: each stage holds a share of the same prompts."""
    options = {"host_memory": "64GiB", "pipeline_parallel": 3}
    host = plan_of("llama-3.1-8b", **options).figures.host
    assert {host.num_prompts} == {stage.num_prompts for stage in host.stages}
    shares = [stage.arena_bytes for stage in host.stages]
    assert 10 * shares[0] == 10 * shares[1] == 11 * shares[2]
    assert sum(shares) == host.arena_bytes_per_server <= 64 * GIB
    assert host.unusable_share < 0.01


def test_the_fullest_stage_decides_where_each_rank_has_its_own_memory():
    """The others leave a part of theirs alone, and that is said."""
    options = {"host_memory_per_rank": "16GiB", "pipeline_parallel": 3}
    host = plan_of("llama-3.1-8b", **options).figures.host
    shares = [stage.arena_bytes for stage in host.stages]
    assert 10 * shares[0] == 11 * shares[2]
    assert 0.99 * 16 * GIB < shares[1] <= 16 * GIB
    assert 48 * GIB == host.asked_bytes_per_server
    assert 0.03 < host.unusable_share < 0.04


def test_uneven_shares_are_multiplied_out():
    """As what each rank gets of the server's memory, stage by stage."""
    planned = plan_of(
        "llama-3.1-8b",
        host_memory="32GiB",
        pipeline_parallel=3,
        tensor_parallel=2,
        nodes=2,
    )
    assert (
        "5.50 GiB x 4 ranks + 5 GiB x 2 ranks = 32 GiB of host memory per server",
        "at most 16.50 GiB on each of 2 nodes",
    ) == planned.products[:2]
    said = planned.figures.host.log_lines[0]
    assert "2 rank(s) x" in said
    assert "4 rank(s) x" in said


@pytest.mark.parametrize("name", ["gpt-oss-20b", "gemma-3-27b"])
def test_stages_of_one_layer_are_planned(name):
    """Some lack a group; what fits, fits on all."""
    layers = {"gpt-oss-20b": 24, "gemma-3-27b": 62}[name]
    host = plan_of(name, host_memory="64GiB", pipeline_parallel=layers).figures.host
    assert {host.num_prompts} == {
        stage.num_prompts for stage in host.stages if stage.prompt_bytes
    }
    assert host.num_prompts * host.bytes_per_prompt <= 64 * GIB
    assert host.fullest_stage.chunk_bytes > 0  # what a plan's text says of a token


def test_without_a_size_the_connectors_default_is_planned():
    """8 GiB for the whole server."""
    host = plan_of("llama-3.1-8b", tensor_parallel=2).figures.host
    assert 4 * GIB == host.asked_bytes_per_rank


def test_uneven_nodes_are_refused():
    """Three machines cannot share four ranks."""
    with pytest.raises(ConfigError, match="nodes=3 cannot share 4 ranks"):
        ServerShape(tensor_parallel=4, num_nodes=3)


def test_ranks_that_hold_the_same_bytes_hold_them_once():
    """DeepSeek on four ranks: four times as many prompts as with copies, and said."""
    once = plan_of("deepseek-v3", host_memory="8GiB", tensor_parallel=4)
    alone = plan_of("deepseek-v3", host_memory="8GiB")
    assert once.figures.host.num_prompts == alone.figures.host.num_prompts
    assert once.figures.host.arena_bytes_per_server <= 8 * GIB
    assert once.figures.host.num_sharing == 4
    text = text_of(once, width=200)
    assert "1 arena(s), each shared by 4 ranks that hold the same bytes, x" in text
    assert "8 GiB hold what 32 GiB would in copies" in text


def test_ranks_on_two_machines_share_by_machine():
    """Each machine keeps a copy; alone on its machine, each rank does, and is told."""
    pairs = plan_of("deepseek-v3", host_memory="8GiB", tensor_parallel=4, nodes=2)
    assert pairs.figures.host.num_sharing == 2
    apart = plan_of("deepseek-v3", host_memory="8GiB", tensor_parallel=4, nodes=4)
    assert apart.figures.host.num_sharing == 1
    assert "each keeps its own copy" in text_of(apart, width=200)


def test_repeated_heads_are_shared_on_request():
    """One KV head on two ranks, with the setting; refused where nothing repeats."""
    options = {"host_memory": "1GiB", "share_replicated": "on"}
    found = plan_of("gemma-3-270m", tensor_parallel=2, **options)
    assert found.figures.host.num_sharing == 2
    with pytest.raises(ConfigError, match="nothing to share: no two ranks of llama"):
        plan_of("llama-3.1-8b", tensor_parallel=2, **options)
