"""Every row of "sizing and configuration confusion" in docs/trouble.md, as a trial.

Threads are named in full in the docstrings; the numbers are those of their reports.
"""

import dataclasses

import pytest
from doctor_facts import (
    CONNECTOR,
    GIB,
    facts_of,
    findings,
    is_fine,
    machine,
    only,
    own_command,
    software,
)

from kvcellar.config import EVICTION_POLICIES, SELECTIVE_POLICIES
from kvcellar.doctor.leftovers import Leftover
from kvcellar.doctor.machine import Room
from kvcellar.tiers.machine import MachineMemory

NEMOTRON = "nemotron-h --host-memory 64GiB"


def test_size_per_rank_node_or_server():
    """LMCache/LMCache#5127, vllm-project/vllm#37160: the product is printed, checked.

    512 GiB for each of eight ranks on 2 TiB is 4 TiB, and refused.
    """
    large = machine(memory=MachineMemory(2048 * GIB, 2048 * GIB))
    command = own_command(options="-tp 8", host_memory_per_rank="512GiB")
    facts = facts_of(command, on=large)
    shares = only("shares", facts, "note")
    assert shares.what.startswith("512.00 GiB per rank x TP 8 x PP 1 = 4.00 TiB")
    assert "a rank's own" in shares.why
    refused = only("memory", facts, "error")
    assert "4.00 TiB on this machine is more than" in refused.what
    assert "2.00 TiB" in refused.what


def test_size_of_replicas():
    """kserve/kserve#6086: four replicas of 10 GiB take 40 GiB, and share nothing."""
    facts = facts_of("llama-3.1-8b --host-memory 10GiB -dp 4")
    shares = only("shares", facts, "note")
    assert "= 10.00 GiB of host memory x DP 4 = 40.00 GiB in all" in shares.what
    assert "they share nothing" in shares.why
    small = machine(memory=MachineMemory(32 * GIB, 32 * GIB))
    command = "llama-3.1-8b --host-memory 10GiB -dp 4"
    assert "40.00 GiB" in only("memory", facts_of(command, on=small), "error").what


def test_size_of_the_whole_server():
    """vllm-project/vllm#24498: 64 GiB over TP 2 and PP 2 are 16 GiB for each rank."""
    facts = facts_of("llama-3.1-8b --host-memory 64GiB -tp 2 -pp 2")
    shares = only("shares", facts, "note")
    assert shares.what.startswith("16.00 GiB per rank x TP 2 x PP 2 = 64.00 GiB")


@pytest.mark.parametrize(
    ("mode", "host", "severity", "severity_if_selective"),
    [
        ("eager", "16GiB", "warning", "note"),
        ("lazy", "16GiB", "warning", "note"),
        ("eager", "40GiB", "warning", "note"),
        ("eager", "60GiB", "note", "ok"),
        ("lazy", "60GiB", "ok", "ok"),
        ("eager", "120GiB", "ok", "ok"),
    ],
)
@pytest.mark.parametrize("policy", [*EVICTION_POLICIES, None])
def test_host_smaller_than_device(mode, host, severity, severity_if_selective, policy):
    """vllm-project/vllm#43946: below the device nothing is gained, below twice little.

    An order that keeps out what is not worth its room, as the default does, still gains
    by what little it holds. The break-even is said in bytes.
    """
    given = {} if policy is None else {"eviction_policy": policy}
    facts = facts_of(
        own_command(host_memory=host, mode=mode, **given),
        device_memory_bytes=40 * GIB,
    )
    is_selective = policy is None or policy in SELECTIVE_POLICIES
    expected = severity_if_selective if is_selective else severity
    finding = only("device", facts, expected)
    assert "the device 80" in finding.what
    if expected in ("warning", "note"):
        assert "host_memory of 80.00 GiB or more" in finding.remedy
        assert ("mode lazy" in finding.remedy) == (not is_selective)


def test_tokens_printed_as_capacity():
    """vllm-project/vllm#51041: bytes per token and per resume point, told apart."""
    facts = facts_of("deepseek-v4-flash --host-memory 64GiB")
    what = only("costs", facts, "ok").what
    assert what.startswith("3.76 KiB per token and 3.89 MiB per resume point")
    plain = only("costs", facts_of("llama-3.1-8b"), "ok").what
    assert plain.startswith("128.00 KiB per token and 0 B per resume point")


def test_chunk_longer_than_prompts():
    """vllm-project/vllm#53902: 200 blocks of 16 are 3200 tokens, longer than requests.

    An error where no request can be as long, a warning where usual prompts are not.
    """
    command = own_command(options="--max-model-len 2048", blocks_per_chunk=200)
    refused = only("chunk", facts_of(command), "error")
    assert "a chunk is 200 x 16 = 3200 tokens" == refused.what
    assert "longer than 2048" in refused.why
    longer = own_command(blocks_per_chunk=200)
    assert "3000" in only("chunk", facts_of(longer, prompt_tokens=3000), "warning").why
    assert "coarser" in only("chunk", facts_of(longer), "note").why
    assert is_fine("chunk", facts_of(own_command()))


def test_block_raised_by_the_engine():
    """vllm-project/vllm#48401: the granularity, the shortest hit, and the culprit."""
    facts = facts_of("nemotron-h --host-memory 64GiB --max-model-len 64")
    refused = only("granularity", facts, "error")
    assert "no request is longer than 64 tokens" in refused.why
    assert "has blocks of" in refused.why
    usual = facts_of(NEMOTRON, prompt_tokens=100)
    assert (
        "prompts of 100 tokens never reach" in only("granularity", usual, "warning").why
    )
    unit = usual.sizing.smallest_chunk_tokens
    assert (
        f"the shortest that can hit has {unit + 1}"
        in only("granularity", facts_of(NEMOTRON), "note").what
    )
    assert is_fine("granularity", facts_of("llama-3.1-8b"))


@pytest.mark.parametrize(
    ("extra", "what", "remedy"),
    [
        ({"lazy_ofload": True}, "'lazy_ofload'=True", "'lazy_offload'"),
        ({"lazy_offload": "false"}, "lazy_offload='false'", "true or false"),
        ({"disk_path": "/x"}, "disk_path='/x' belongs to vLLM", "remove it"),
    ],
)
def test_setting_ignored_without_a_word(extra, what, remedy):
    """vllm-project/vllm#52170, #52656: refused, with the nearest key."""
    refused = only("settings", facts_of(own_command(**extra)), "error")
    assert what in refused.what
    assert remedy in refused.remedy


def test_setting_at_the_wrong_place():
    """vllm-project/vllm#44791: a key beside kv_connector is sent where it belongs."""
    content = f'{{{CONNECTOR}, "host_memory": "64GiB"}}'
    command = f"vllm serve m --kv-transfer-config '{content}'"
    refused = only("connector", facts_of(command), "error")
    assert "host_memory='64GiB' stands beside kv_connector" in refused.what
    assert "inside kv_connector_extra_config" in refused.remedy


def test_hybrid_manager_flag():
    """vllm-project/vllm#42911: merging groups is warned of where there are any."""
    flag = "--disable-hybrid-kv-cache-manager"
    warned = only("hybrid-manager", facts_of(f"gemma-3-27b {flag}"), "warning")
    assert "7 groups" in warned.what
    assert "leave it out" in warned.remedy
    assert is_fine("hybrid-manager", facts_of(f"llama-3.1-8b {flag}"))
    assert is_fine("hybrid-manager", facts_of("gemma-3-27b"))


@pytest.mark.parametrize(
    "flag",
    [
        "--no-enable-prefix-caching",
        "--no_enable_prefix_caching",
        "--no-enable-prefix-cach",
    ],
)
def test_prefix_caching_off(flag):
    """LMCache/LMCache#3655: offload on and prefix caching off is refused."""
    command = f"llama-3.1-8b --host-memory 64GiB {flag}"
    refused = only("prefix-caching", facts_of(command), "error")
    assert refused.what.startswith("--no-enable-prefix-caching")
    assert is_fine("prefix-caching", facts_of("llama-3.1-8b --host-memory 64GiB"))


def test_reset_that_leaves_host_memory():
    """vllm-project/vllm#57727: where the endpoint is on, what it reaches is said."""
    facts = facts_of(using=software({"VLLM_SERVER_DEV_MODE": "1"}))
    finding = only("reset", facts, "note")
    assert "leaves host memory warm" in finding.why
    assert "reset_external=true" in finding.remedy
    assert [] == findings("reset", facts_of())
    assert [] == findings(
        "reset", facts_of(using=software({"VLLM_SERVER_DEV_MODE": "0"}))
    )


def test_shared_memory_too_small():
    """vllm-project/vllm#46949, #50358: a region larger than /dev/shm, with both sizes.

    It is another connector's; kvcellar's memory is not there.
    """
    content = (
        '{"kv_connector": "MultiConnector", "kv_role": "kv_both", '
        f'"kv_connector_extra_config": {{"connectors": [{{{CONNECTOR}}}, '
        '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both", '
        '"kv_connector_extra_config": {"cpu_bytes_to_use": 4294967296}}]}}'
    )
    command = f"vllm serve llama-3.1-8b --kv-transfer-config '{content}'"
    small = machine(shared_memory=Room(2 * GIB, 1473 * 2**20))
    warned = findings("shared-memory", facts_of(command, on=small))[0]
    assert "4.00 GiB into /dev/shm, which has 1.44 GiB free" in warned.what
    assert is_fine("shared-memory", facts_of("m --host-memory 64GiB", on=small))


def test_locked_memory_too_small():
    """vllm-project/vllm#52496: with GPUs a limit below host memory is warned of."""
    tight = machine(locked_limit_bytes=8 * 2**20, num_gpus=1)
    facts = facts_of("llama-3.1-8b --host-memory 64GiB", on=tight)
    warned = only("locked-memory", facts, "warning")
    assert "8.00 MiB, host memory takes 64.00 GiB" in warned.what
    without_gpu = dataclasses.replace(tight, num_gpus=0)
    assert is_fine("locked-memory", facts_of("m --host-memory 64GiB", on=without_gpu))


def test_control_group_smaller_than_the_machine():
    """vllm-project/vllm#51579: what counts as unreclaimable is said, and refused."""
    memory = MachineMemory(512 * GIB, 400 * GIB, 128 * GIB, 118 * GIB)
    pod = machine(memory=memory)
    assert (
        "128.00 GiB of the machine's 512.00 GiB"
        in only("control-group", facts_of(on=pod), "note").what
    )
    facts = facts_of("llama-3.1-8b --host-memory 160GiB", on=pod)
    assert "limit of the control group" in only("memory", facts, "error").what
    nearly = facts_of("llama-3.1-8b --host-memory 120GiB", on=pod)
    assert "left under the control group" in only("memory", nearly, "warning").what


def test_leftovers_of_crashes():
    """vllm-project/vllm#54002: each file that no process owns is named and sized."""
    left = Leftover("/dev/shm/vllm_offload_a.mmap", 8 * GIB)
    engine = Leftover("engine process 77", 2 * GIB, 77)
    found = findings("leftovers", facts_of(on=machine(leftovers=(left, engine))))
    assert ["rm /dev/shm/vllm_offload_a.mmap", "kill 77"] == [f.remedy for f in found]
    assert "(8.00 GiB)" in found[0].what


def test_allocator_rounding():
    """vllm-project/vllm#53042: 200 GiB asked for are 200 GiB taken, never 384."""
    facts = facts_of("gemma-3-27b --host-memory 200GiB -tp 4")
    what = only("rounding", facts, "ok").what
    assert what.startswith("50.00 GiB per rank asked for, 50.00 GiB mapped")
    rounded = facts_of("gemma-3-27b --host-memory 200GiB -tp 4").sizing
    assert 0 <= rounded.host_bytes - rounded.figures.arena_bytes < 0.01 * 50 * GIB
    small = facts_of("gemma-3-27b --host-memory 333MiB")
    assert "left unused" in only("rounding", small, "note").why


def test_allocator_mode():
    """vllm-project/vllm#42404: expandable segments are refused, with the way out."""
    using = software({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
    command = "llama-3.1-8b --host-memory 64GiB"
    refused = only("allocator", facts_of(command, using=using), "error")
    assert "expandable_segments:True" in refused.what
    assert "--enable-cumem-allocator" in refused.remedy
    for option in ("--enable-cumem-allocator", "--enable-sleep-mode"):
        assert is_fine("allocator", facts_of(f"{command} {option}", using=using))
    newer = software({"PYTORCH_ALLOC_CONF": "expandable_segments:True"})
    assert "newer name" in only("allocator", facts_of(command, using=newer), "note").why


def test_several_nodes():
    """vllm-project/vllm#54415, vllm-project/vllm#53474: each node has its ranks' share.

    Eight ranks of 64 GiB over two nodes take 256 GiB here, and not 512.
    """
    command = "llama-3.1-8b --host-memory 512GiB -tp 8 --nnodes 2"
    node = machine(memory=MachineMemory(300 * GIB, 300 * GIB))
    facts = facts_of(command, on=node)
    assert "4 on each" in only("nodes", facts, "note").what
    assert "256.00 GiB on this machine fits" in only("memory", facts, "ok").what
    uneven = facts_of("llama-3.1-8b --host-memory 1GiB -tp 2 --nnodes 3")
    assert "does not divide the 2 ranks" in only("nodes", uneven, "error").what


def test_hash_seed():
    """vllm-project/vllm#51875, LMCache/LMCache#1095: random roots are warned of."""
    command = "llama-3.1-8b --host-memory 1GiB --prefix-caching-hash-algo xxhash"
    assert "random root" in only("hash", facts_of(command), "warning").why
    seeded = software({"PYTHONHASHSEED": "0"})
    assert is_fine("hash", facts_of(command, using=seeded))
    assert is_fine("hash", facts_of("llama-3.1-8b"))
    wrong = command.replace("xxhash", "md5")
    assert "sha256" in only("hash", facts_of(wrong), "error").remedy


def beside(other, **extra):
    """A command whose MultiConnector has ours and another connector."""
    import json

    settings = json.dumps(extra)
    content = (
        '{"kv_connector": "MultiConnector", "kv_role": "kv_both", '
        '"kv_load_failure_policy": "recompute", '
        f'"kv_connector_extra_config": {{"connectors": [{{{CONNECTOR}}}, '
        f'{{"kv_connector": "{other}", "kv_role": "kv_both", '
        f'"kv_connector_extra_config": {settings}}}]}}}}'
    )
    return f"vllm serve llama-3.1-8b -tp 2 --kv-transfer-config '{content}'"


def test_workers_of_a_cache_server():
    """LMCache/LMCache#4247: a server beside us needs as many workers as ranks."""
    warned = only("cache-server", facts_of(beside("LMCacheMPConnector")), "warning")
    assert "at least 2 worker(s)" in warned.remedy
    assert is_fine("cache-server", facts_of("llama-3.1-8b --host-memory 1GiB"))


def test_offload_does_not_lengthen_the_context():
    """vllm-project/vllm#43755, NVIDIA/TensorRT-LLM#17246: one request, one device."""
    command = "llama-3.1-8b --host-memory 512GiB"
    facts = facts_of(command, device_memory_bytes=8 * GIB)
    warned = only("context", facts, "warning")
    assert "131072 tokens holds 16.00 GiB of a device's 8.00 GiB" in warned.what
    assert "lengthens no context" in warned.why
    assert is_fine("context", facts_of(command, device_memory_bytes=20 * GIB))


def test_two_cost_pools():
    """sgl-project/sglang#29034, #39436: which of the two costs binds is said."""
    short = facts_of("deepseek-v4-flash --host-memory 64GiB", prompt_tokens=512)
    binding = only("pools", short, "note")
    assert "1.88 MiB of chunks and 3.89 MiB for its checkpoint" in binding.what
    assert "checkpoints bind" in binding.why
    long = facts_of("deepseek-v4-flash --host-memory 64GiB", prompt_tokens=65536)
    assert "one pool" in only("pools", long, "ok").what


def test_folder_shared_across_settings():
    """vllm-project/vllm#55907, vllm-project/vllm#49261: what its content depends on."""
    facts = facts_of(beside("ExampleConnector", shared_storage_path="/cache/kv"))
    told = only("folders", facts, "note")
    assert told.what.startswith("/cache/kv")
    for part in ("model=llama-3.1-8b", "revision=", "kv-cache-dtype=auto", "ranks=2x1"):
        assert part in told.why
    assert is_fine("folders", facts_of("llama-3.1-8b --host-memory 1GiB"))
