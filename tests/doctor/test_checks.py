"""Checks that no row of public confusion stands for."""

import dataclasses
import json
import shlex
import socket

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
)

from kvcellar.demo.metrics import parse_metrics
from kvcellar.doctor.checks import ALL_CHECKS
from kvcellar.doctor.server import Server


def with_transfer(**content):
    """A ``vllm serve`` line with this transfer configuration."""
    text = shlex.quote(json.dumps(content))
    return f"vllm serve llama-3.1-8b --kv-transfer-config {text}"


OURS = json.loads(f"{{{CONNECTOR}}}")


def test_nothing_given_is_nothing_said_about_a_configuration():
    """Without a command line only the machine is looked at."""
    applied = [check.name for check in ALL_CHECKS if list(check.find(facts_of()))]
    assert [
        "engine",
        "versions",
        "memory",
        "control-group",
        "locked-memory",
        "shared-memory",
        "huge-pages",
        "numa",
        "leftovers",
    ] == applied


def test_huge_pages_that_are_off():
    """Worth a note with the command; not offered is worth one without."""
    off = only("huge-pages", facts_of(on=machine(huge_pages="never")), "note")
    assert "echo madvise" in off.remedy
    none = only("huge-pages", facts_of(on=machine(huge_pages="")), "note")
    assert "" == none.remedy


def test_memory_over_several_nodes():
    """Told only where host memory is larger than the smallest node."""
    two = machine(node_bytes={0: 512 * GIB, 1: 256 * GIB})
    told = only("numa", facts_of("llama-3.1-8b --host-memory 300GiB", on=two), "note")
    assert "spans 2 NUMA nodes, the smallest of 256.00 GiB" in told.what
    assert is_fine("numa", facts_of("llama-3.1-8b --host-memory 200GiB", on=two))


@pytest.mark.parametrize("ranks", [1, 2])
def test_shared_memory_of_dockers_default(ranks):
    """64 MiB stop several ranks; one needs none of it."""
    from kvcellar.doctor.machine import Room

    tiny = machine(shared_memory=Room(64 * 2**20, 64 * 2**20))
    facts = facts_of(f"llama-3.1-8b --host-memory 1GiB -tp {ranks}", on=tiny)
    if ranks == 1:
        assert is_fine("shared-memory", facts)
    else:
        assert "--shm-size" in only("shared-memory", facts, "warning").remedy
    missing = dataclasses.replace(tiny, shared_memory=None)
    assert (ranks > 1) == bool(
        findings("shared-memory", facts_of(f"m -tp {ranks}", on=missing))
    )


def test_kvcellar_not_switched_on():
    """No connector, or another one alone: a warning with what to write."""
    for command in ("llama-3.1-8b", with_transfer(kv_connector="NixlConnector")):
        told = only("connector", facts_of(command), "warning")
        assert "--host-memory SIZE" in told.remedy


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"kv_connector": "Cellar"}, "kv_connector='Cellar' is not kvcellar's"),
        ({"kv_connector_module_path": None}, "kv_connector_module_path=None"),
        ({"kv_role": None}, "kv_role=None cannot be used"),
        ({"kv_role": "both"}, "kv_role='both' cannot be used"),
        ({"kv_connector_extra_config": [1]}, "kv_connector_extra_config=[1]"),
        ({"kv_load_failure_polcy": "x"}, "kv_load_failure_polcy='x' stands beside"),
    ],
)
def test_a_connector_that_vllm_would_refuse(change, what):
    """The key, the value and what to write instead."""
    found = findings("connector", facts_of(with_transfer(**(OURS | change))))
    assert ["error"] == [finding.severity.word for finding in found]
    assert found[0].what.startswith(what)


def test_half_a_role_is_warned_of():
    """A producer does not load."""
    command = with_transfer(**(OURS | {"kv_role": "kv_producer"}))
    assert "kv_producer" in only("connector", facts_of(command), "warning").what


def test_broken_json_is_an_error():
    """Shown as it was given."""
    command = "vllm serve m --kv-transfer-config '{kv_connector: x}'"
    assert "{kv_connector: x}" in only("connector", facts_of(command), "error").what


def test_failed_loads_that_fail_requests():
    """vLLM's own default is warned of."""
    content = {key: OURS[key] for key in OURS if key != "kv_load_failure_policy"}
    warned = only("load-failure", facts_of(with_transfer(**content)), "warning")
    assert "'fail'" in warned.what
    assert is_fine("load-failure", facts_of(with_transfer(**OURS)))


def test_two_sizes_and_no_size():
    """The server's size beside a rank's is ignored; none at all is 8 GiB."""
    both = own_command(cpu_bytes_to_use=8 * GIB, host_memory_per_rank="2GiB")
    assert (
        "cpu_bytes_to_use=8589934592 is ignored"
        in only("settings", facts_of(both), "warning").what
    )
    assert "8 GiB" in only("settings", facts_of(own_command()), "warning").what
    assert is_fine("settings", facts_of(own_command(host_memory="64GiB")))


@pytest.mark.parametrize(
    ("other", "severity"),
    [("SimpleCPUOffloadConnector", "warning"), ("NixlConnector", "note")],
)
def test_another_connector_beside_ours(other, severity):
    """A second host tier is warned of, any other is a note; ours alone is fine."""
    children = [OURS, {"kv_connector": other, "kv_role": "kv_both"}]
    command = with_transfer(
        kv_connector="MultiConnector",
        kv_role="kv_both",
        kv_load_failure_policy="recompute",
        kv_connector_extra_config={"connectors": children},
    )
    facts = facts_of(command)
    assert other in only("other-connectors", facts, severity).what
    assert is_fine("connector", facts)
    assert is_fine("load-failure", facts)
    assert is_fine("other-connectors", facts_of(with_transfer(**OURS)))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ("--model other", "--model cannot be given"),
        ("--kv-transfer-config {}", "--kv-transfer-config cannot be given"),
        ("--kv-transfer-config.kv_role x", "--kv-transfer-config cannot be given"),
        ("--kv_offloading_size=4", "--kv-offloading-size cannot be given"),
        ("--kv-offloading-siz 4", "--kv-offloading-size cannot be given"),
        ("--chunk-tokens 512", "--chunk-tokens=512 is no option of vLLM"),
        ("--lazy_offload=true", "--lazy-offload=true is no option of vLLM"),
    ],
)
def test_options_that_contradict(options, what):
    """Each is named as vLLM knows it, with what to do."""
    command = f"llama-3.1-8b --host-memory 1GiB {options}"
    refused = only("options", facts_of(command), "error")
    assert what == refused.what
    assert refused.remedy


def test_native_offloading_beside_our_connector():
    """Also on a command line of the user's own."""
    command = own_command(options="--kv-offloading-size 4", host_memory="1GiB")
    assert "in the place of kvcellar" in only("options", facts_of(command), "error").why
    assert [] == findings("options", facts_of("llama-3.1-8b --kv-offloading-size 4"))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ("-tp two", "--tensor-parallel-size=two cannot be used"),
        ("--pipeline-parallel-size 0", "--pipeline-parallel-size=0 cannot be used"),
        ("--max-model-len 1.5K", "--max-model-len=1.5K cannot be used"),
        ("--nnodes", "--nnodes= cannot be used"),
    ],
)
def test_numbers_that_are_none(options, what):
    """The option by its long name, the text as given."""
    found = findings("numbers", facts_of(f"llama-3.1-8b {options}"))
    assert [what] == [finding.what for finding in found]
    assert "give a whole number of at least 1" in found[0].remedy


def test_words_that_stand_for_numbers_are_fine():
    """auto and None are vLLM's own words."""
    options = "--max-model-len auto --prefix-cache-retention-interval None"
    assert [] == findings("numbers", facts_of(f"llama-3.1-8b {options}"))


def test_no_model_is_a_warning():
    """The figures that follow from one are unknown then."""
    assert "no model" in only("model", facts_of("-tp 2"), "warning").what


def test_a_port_in_use_is_an_error_unless_its_server_is_asked():
    """A running server listens on its own port rightly."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        command = f"llama-3.1-8b --host 127.0.0.1 --port {port}"
        assert f"port={port}" in only("address", facts_of(command), "error").what
        assert [] == findings("address", facts_of(command, server=Server("u")))
    assert is_fine("address", facts_of(command))
    wrong = facts_of("llama-3.1-8b --port http")
    assert "port='http'" in only("address", wrong, "error").what


def test_context_parallelism():
    """Refused, over decoding and over prefills."""
    ours = "llama-3.1-8b --host-memory 1GiB"
    decode = only("context-parallel", facts_of(f"{ours} -dcp 2"), "error")
    assert "--decode-context-parallel-size=2" in decode.what
    prefill = only("context-parallel", facts_of(f"{ours} -pcp 2"), "error")
    assert "--prefill-context-parallel-size=2" in prefill.what
    assert is_fine("context-parallel", facts_of(ours))


@pytest.mark.parametrize(
    ("command", "severity"),
    [
        ("llama-3.1-8b", "ok"),
        ("gemma-3-27b", "ok"),
        ("gemma-3-27b --prefix-cache-retention-interval None", "note"),
        ("gemma-3-27b --prefix-cache-retention-interval 100", "warning"),
        ("gemma-3-27b --prefix-cache-retention-interval 1024", "ok"),
        ("qwen3-next", "note"),
    ],
)
def test_retention(command, severity):
    """Dense windows, odd intervals and states that are handed over are told."""
    only("retention", facts_of(command), severity)


def test_a_remedy_for_states_is_one_that_passes():
    """The interval advised is a multiple of what the engine wants."""
    advised = only("retention", facts_of("qwen3-next"), "note").remedy.split()[0]
    option, _, value = advised.partition("=")
    assert is_fine("retention", facts_of(f"qwen3-next {option} {value}"))


@pytest.mark.parametrize(
    ("method", "shortest"), [("mtp", 513), ("eagle3", 513), ("ngram", 257)]
)
def test_a_drafter_takes_one_more_chunk(method, shortest):
    """Hits are given back by a chunk where the drafter's layers are in the cache."""
    config = shlex.quote(json.dumps({"method": method, "num_speculative_tokens": 1}))
    facts = facts_of(f"deepseek-v4-flash --speculative-config {config}")
    assert f"hit has {shortest}" in only("granularity", facts, "note").what


def test_a_model_that_is_not_known_has_no_figures():
    """Said once; the checks that need them stay silent."""
    facts = facts_of("some/unknown-model --host-memory 1GiB")
    told = only("figures", facts, "note")
    assert "unknown-model" in told.why
    for check in ("device", "rounding", "pools", "granularity", "costs", "context"):
        assert [] == findings(check, facts)


def test_a_chunk_that_does_not_fit_the_model():
    """With the multiple that would."""
    command = own_command("deepseek-v4-flash", host_memory="64GiB", chunk_tokens=100)
    refused = only("figures", facts_of(command), "error")
    assert "chunk_tokens=100" in refused.what
    assert "multiple of 256" in refused.remedy


def test_host_memory_that_holds_no_prompt():
    """Too small for a cell is an error, too small for a prompt a warning."""
    few = facts_of("gemma-3-27b --host-memory 100MiB")
    assert "not hold one prompt" in only("figures", few, "warning").what
    tiny = facts_of("gemma-3-27b --host-memory 1MiB")
    assert "too small" in only("figures", tiny, "error").what


def test_device_memory_from_where_it_is_stated():
    """The user, the option, the CPU's variable, or a running server, in this order."""
    from doctor_facts import software

    cpu = software({"VLLM_CPU_KVCACHE_SPACE": "3"})
    info = parse_metrics('vllm:cache_config_info{num_gpu_blocks="1000"} 1\n')
    server = Server("u", samples=info)
    plain, option = "llama-3.1-8b", "llama-3.1-8b --kv-cache-memory-bytes 2G"
    hint = {"device_memory_bytes": GIB}
    assert GIB == facts_of(option, using=cpu, **hint).sizing.device_bytes
    assert 2 * GIB == facts_of(option, using=cpu).sizing.device_bytes
    assert 3 * GIB == facts_of(plain, using=cpu).sizing.device_bytes
    row = 1000 * 2**21  # a block of 16 tokens
    assert row == facts_of(plain, server=server).sizing.device_bytes
    assert facts_of(plain).sizing.device_bytes is None


def test_a_config_file_that_cannot_be_read_is_warned_of():
    """What it would say is unknown."""
    facts = facts_of("llama-3.1-8b --config /no/such.yaml")
    assert "/no/such.yaml" in only("options", facts, "warning").what
