"""Sizes that were misread elsewhere: what ``kvcellar plan`` says before a start."""

import pytest
from plans import names_of, plan_of

from kvcellar.errors import ConfigError
from kvcellar.layout.groups import AttentionKind, GroupLayout, make_layout
from kvcellar.plan.units import units_of

FULL, WINDOW = AttentionKind.FULL, AttentionKind.WINDOW


def group(group_id, kind, tokens_per_block):
    """A group of one layer and one byte per token."""
    span = 64 if kind is WINDOW else None
    size = tokens_per_block
    return GroupLayout(group_id, kind, tokens_per_block, size, size, 1, span)


def test_vllm_ascend_16270_the_plan_names_the_group():
    """Blocks of 128, 4096, 32, 2 and 8: hits are multiples of 4096, for group 1."""
    kinds = (FULL, WINDOW, FULL, WINDOW, WINDOW)
    blocks = (128, 4096, 32, 2, 8)
    groups = [
        group(i, kind, size)
        for i, (kind, size) in enumerate(zip(kinds, blocks, strict=True))
    ]
    layout = make_layout(
        groups, hash_block_tokens=2, alignment_tokens=4096, scheduler_block_tokens=4096
    )
    units = units_of(layout)
    assert (4096, 4097) == (units.chunk_tokens, units.shortest_prompt_tokens)
    assert "window group 1, in blocks of 4096 tokens" == units.set_by


def test_sglang_40135_the_plan_shares_one_budget_among_all_ranks():
    """Eight ranks of 20 GiB on a node of 128 GiB: refused, 16 GiB each at most."""
    base = {"tensor_parallel": 8, "node_memory": "128GiB"}
    with pytest.raises(ConfigError, match="at most 16 GiB per rank"):
        plan_of("llama-3.1-70b", host_memory_per_rank="20GiB", **base)
    host = plan_of("llama-3.1-70b", host_memory_per_rank="16GiB", **base).figures.host
    assert host.arena_bytes_per_node <= 128 * 2**30


def test_lmcache_5127_the_plan_refuses_the_product():
    """512 GiB x 8 ranks = 4 TiB on a machine of 2 TiB."""
    with pytest.raises(ConfigError, match=r"512 GiB x 8 rank\(s\) = 4 TiB") as info:
        plan_of(
            "llama-3.1-70b",
            host_memory_per_rank="512GiB",
            tensor_parallel=8,
            node_memory="2TiB",
        )
    assert "256 GiB per rank" in str(info.value)


def test_kserve_6086_the_plan_says_that_each_replica_has_its_own():
    """10 GiB and four replicas on one machine: 40 GiB, and 39 GiB will not do."""
    planned = plan_of("llama-3.1-8b", host_memory="10GiB", data_parallel=4)
    words = "10 GiB x 4 replicas = 40 GiB in total, since each replica has its own"
    assert words in planned.products
    with pytest.raises(ConfigError, match="40 GiB on each node"):
        plan_of(
            "llama-3.1-8b", host_memory="10GiB", data_parallel=4, node_memory="39GiB"
        )


def test_vllm_53474_the_plan_gives_two_nodes_the_room_of_both():
    """64 GiB on each of two nodes hold what 128 GiB on one would."""
    base = {"host_memory": "128GiB", "tensor_parallel": 8}
    one, two = (plan_of("llama-3.1-70b", nodes=n, **base) for n in (1, 2))
    assert one.figures.host.num_chunks == two.figures.host.num_chunks
    assert "16 GiB x 4 ranks = 64 GiB on each of 2 nodes" in two.products


def test_vllm_53902_the_plan_sets_the_chunk_beside_the_prompt():
    """Chunks of 200 x 16 tokens: 3,200 are longer than prompts of 2,048."""
    planned = plan_of("llama-3.1-8b", blocks_per_chunk=200, prompt_tokens=2048)
    assert ["chunk-above-prompt"] == names_of(planned)
    assert "3,200 tokens" in planned.findings[0].what
    longest = plan_of("llama-3.1-8b", blocks_per_chunk=200, max_model_len=2048)
    assert ["chunk-above-context"] == names_of(longest)


def test_vllm_48401_the_plan_says_that_no_request_can_be_cached():
    """Blocks that the engine raises to 1,040 tokens, requests of at most 1,024."""
    planned = plan_of("nemotron-h", max_model_len=1024, host_memory="32GiB")
    assert ["chunk-above-context"] == names_of(planned)
    assert "1,040 tokens" in planned.findings[0].what


def test_vllm_56871_the_plan_counts_no_group_for_another():
    """Every group pays for its own payload, not for the widest one's row."""
    figures = plan_of("deepseek-v4-flash", host_memory="64GiB").figures
    paid = sum(group.checkpoint_bytes for group in figures.groups)
    assert figures.host.stages[0].checkpoint_bytes == paid
    blocks = sum(group.checkpoint_blocks for group in figures.groups)
    assert paid < blocks * figures.model.row_bytes


def test_vllm_53042_the_plan_takes_no_byte_more_than_asked_for():
    """200 GiB on four ranks are at most 200 GiB, whatever the cell sizes."""
    host = plan_of("gemma-3-27b", host_memory="200GiB", tensor_parallel=4).figures.host
    assert 0.99 * 200 * 2**30 < host.arena_bytes_per_server <= 200 * 2**30
