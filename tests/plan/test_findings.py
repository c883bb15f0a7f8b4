"""What is wrong with the settings: each is said, and its remedy mends it."""

import re
import shlex

import pytest
from plans import names_of, plan_of

from kvcellar.config import EVICTION_POLICIES, SELECTIVE_POLICIES
from kvcellar.plan import PlanRequest, make_plan
from kvcellar.plan.report.text import text_of

BASE = {"host_memory": "64GiB", "device_memory": "16GiB", "max_model_len": 32768}
CASES = {
    "context-not-on-device": {"device_memory": "1GiB", "max_model_len": 131072},
    "host-below-prompt": {"host_memory": "1GiB", "prompt_tokens": 30000},
    "host-below-device": {"host_memory": "12GiB", "eviction_policy": "lru"},
    "host-below-twice-device": {
        "host_memory": "24GiB",
        "mode": "eager",
        "eviction_policy": "lru",
    },
    "chunk-above-context": {"chunk_tokens": 40960},
    "chunk-above-prompt": {"chunk_tokens": 4096, "prompt_tokens": 4096},
    "concurrency-above-device": {"concurrency": 100},
    "concurrency-above-host": {"host_memory": "8GiB", "concurrency": 2000},
    "disk-not-served": {"disk": "1TiB"},
    "stages-differ": {
        "host_memory": None,
        "host_memory_per_rank": "64GiB",
        "pipeline_parallel": 3,
    },
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_said_with_a_remedy(name):
    """With all other settings sound, and never without the case."""
    options = {k: v for k, v in (BASE | CASES[name]).items() if v is not None}
    planned = plan_of("llama-3.1-8b", **options)
    assert name in names_of(planned)
    assert all(finding.what and finding.remedy for finding in planned.findings)
    assert [] == names_of(plan_of("llama-3.1-8b", **BASE))


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("context-not-on-device", "max-model-len"),
        ("host-below-prompt", "host-memory"),
        ("host-below-device", "host-memory"),
        ("host-below-twice-device", "host-memory"),
        ("concurrency-above-host", "host-memory"),
        ("host-below-device", "mode"),
        ("host-below-twice-device", "mode"),
        ("concurrency-above-host", "mode"),
    ],
)
def test_the_remedy_mends_it(name, option):
    """The option it names, with the value it names, makes the finding go away."""
    asked = BASE | CASES[name]
    planned = plan_of("llama-3.1-8b", **asked)
    (finding,) = [f for f in planned.findings if f.name == name]
    (value,) = re.findall(rf"--{option} (\S+?)(?= |,|$)", finding.remedy)
    mended = plan_of("llama-3.1-8b", **(asked | {option.replace("-", "_"): value}))
    assert name not in names_of(mended)


def test_a_chunk_names_the_group_that_sets_it():
    """Blocks that the engine raised, with the group they belong to."""
    planned = plan_of("qwen3-next", prompt_tokens=500, host_memory="32GiB")
    (finding,) = planned.findings
    assert "0 tokens are reusable" in finding.what
    assert "544 tokens" in finding.what
    assert any("raises blocks from 16 to 544" in note for note in planned.notes)


def test_ranks_that_hold_the_same_bytes_are_named():
    """They hold eight times as much as copies, or what one would if all keep one."""
    base = {"tensor_parallel": 8, "host_memory": "64GiB"}
    for share, said in (("auto", "hold what 512 GiB would"), ("off", "what 8 GiB")):
        planned = plan_of("deepseek-v3", **base, share_replicated=share)
        assert any(said in note for note in planned.notes)


@pytest.mark.parametrize(
    ("host", "mode"), [("16GiB", "lazy"), ("31GiB", "lazy"), ("32GiB", "eager")]
)
@pytest.mark.parametrize("policy", EVICTION_POLICIES)
def test_less_than_twice_the_device_is_lazy(host, mode, policy):
    """Where everything is let in, by what both hold; the commands say so.

    A selective order is for eager mode, whatever both hold.
    """
    asked = BASE | {"host_memory": host, "eviction_policy": policy}
    planned = plan_of("llama-3.1-8b", **asked)
    expected = "eager" if policy in SELECTIVE_POLICIES else mode
    assert expected == planned.figures.advice.mode
    assert f'"mode": "{expected}"' in planned.commands.vllm_serve
    assert f'"eviction_policy": "{policy}"' in planned.commands.vllm_serve


@pytest.mark.parametrize("host", ["12GiB", "24GiB"])
def test_the_default_order_is_a_selective_one(host):
    """Nothing is wrong with little host memory then, whatever mode is asked for."""
    asked = BASE | {"host_memory": host}
    for mode in (None, "eager", "lazy"):
        planned = plan_of("llama-3.1-8b", **asked, **({"mode": mode} if mode else {}))
        assert ("eager", []) == (planned.figures.advice.mode, names_of(planned))
        is_lazy = "--mode lazy" in planned.commands.kvcellar_serve
        assert is_lazy == (mode == "lazy")  # either may find more: who asks has it
        said = [n for n in planned.notes if "more host memory is what helps" in n]
        assert (host == "12GiB") == bool(said)


def test_a_mode_asked_for_by_its_other_name_is_asked_for():
    """A setting of vLLM's own connector."""
    extra = {"host_memory": "12GiB", "lazy_offload": True}
    planned = make_plan(PlanRequest("llama-3.1-8b", extra, device_bytes=16 * 2**30))
    assert "--mode lazy" in planned.commands.kvcellar_serve


@pytest.mark.parametrize("policy", ["adaptive", "lru"])
def test_less_than_what_runs_at_once_is_lazy(policy):
    """Under any order; what the device has no room for does not run."""
    asked = {"host_memory": "8GiB", "eviction_policy": policy}
    for concurrency, mode in ((16, "eager"), (17, "lazy"), (2000, "lazy")):
        planned = plan_of("llama-3.1-8b", **asked, concurrency=concurrency)
        assert mode == planned.figures.advice.mode
        assert ("concurrency-above-host" in names_of(planned)) == (mode == "lazy")
    planned = plan_of("llama-3.1-8b", **(BASE | asked), concurrency=10)
    assert "concurrency-above-host" not in names_of(planned)
    planned = plan_of("llama-3.1-8b", **BASE, concurrency=2000)
    assert "eager" == planned.figures.advice.mode
    assert ["concurrency-above-device"] == names_of(planned)


def test_what_both_modes_hold_adds_up():
    """Eager has the device's content in host memory as well; lazy has both."""
    figures = plan_of("llama-3.1-8b", **BASE).figures
    host, device = figures.host.num_prompts, figures.device.num_prompts
    assert host > 2 * device > 0
    assert (host, host + device, 4.0) == (
        figures.advice.eager_prompts,
        figures.advice.lazy_prompts,
        figures.advice.coverage,
    )


def test_without_the_device_the_limit_for_lazy_is_said():
    """A device a little larger than that makes the plan lazy, a smaller one not."""
    base = {"host_memory": "64GiB", "eviction_policy": "lru"}
    limit = plan_of("gemma-3-27b", **base).figures.advice.lazy_above_device_bytes
    for factor, mode in ((1.001, "lazy"), (0.999, "eager")):
        device = int(limit * factor)
        planned = plan_of("gemma-3-27b", device_memory=device, **base)
        assert mode == planned.figures.advice.mode
    adaptive = plan_of("gemma-3-27b", host_memory="64GiB").figures.advice
    assert adaptive.lazy_above_device_bytes is None


MODE_WORDS = {
    "unknown": ({"eviction_policy": "lru"}, "as long as the device's memory is"),
    "small": ({"eviction_policy": "lru", "device_memory": "64GiB"}, "less than twice"),
    "large": ({"eviction_policy": "lru", "device_memory": "16GiB"}, "at least twice"),
    "selective": ({"device_memory": "64GiB"}, "eager suits: adaptive takes in only"),
    "crowded": ({"concurrency": 2000}, "lazy suits: 2,000 prompts are to run at once"),
}


@pytest.mark.parametrize("reason", MODE_WORDS)
def test_why_a_mode_suits_is_said(reason):
    """For each reason; where modes are close, how to find out."""
    options, words = MODE_WORDS[reason]
    planned = plan_of("llama-3.1-8b", host_memory="64GiB", **options)
    (_, _, rest) = text_of(planned, width=1000).partition("\neager or lazy\n")
    section, _, _ = rest.partition("\n\n")
    assert reason == planned.figures.advice.reason
    assert words in section
    assert ("kvcellar replay --mode eager,lazy" in section) == (reason == "selective")


def test_the_recommended_context_fits_the_device():
    """A context that the engine would refuse is replaced in the commands."""
    planned = plan_of("llama-3.1-8b", **(BASE | CASES["context-not-on-device"]))
    words = shlex.split(planned.commands.vllm_serve)
    longest = words[words.index("--max-model-len") + 1]
    assert str(planned.figures.device.longest_request_tokens) == longest
