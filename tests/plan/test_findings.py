"""What is wrong with the settings: each is said, and its remedy mends it."""

import re
import shlex

import pytest
from plans import names_of, plan_of

BASE = {"host_memory": "64GiB", "device_memory": "16GiB", "max_model_len": 32768}
CASES = {
    "context-not-on-device": {"device_memory": "1GiB", "max_model_len": 131072},
    "host-below-prompt": {"host_memory": "1GiB", "prompt_tokens": 30000},
    "host-below-device": {"host_memory": "12GiB"},
    "host-below-twice-device": {"host_memory": "24GiB", "mode": "eager"},
    "chunk-above-context": {"chunk_tokens": 40960},
    "chunk-above-prompt": {"chunk_tokens": 4096, "prompt_tokens": 4096},
    "concurrency-above-device": {"concurrency": 100},
    "concurrency-above-host": {"concurrency": 2000},
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
def test_less_than_twice_the_device_is_lazy(host, mode):
    """By what both hold; the commands say so."""
    planned = plan_of("llama-3.1-8b", **(BASE | {"host_memory": host}))
    assert mode == planned.figures.advice.mode
    assert f'"mode": "{mode}"' in planned.commands.vllm_serve
    assert ("--mode lazy" in planned.commands.kvcellar_serve) == (mode == "lazy")


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
    base = {"host_memory": "64GiB"}
    limit = plan_of("gemma-3-27b", **base).figures.advice.lazy_above_device_bytes
    for factor, mode in ((1.001, "lazy"), (0.999, "eager")):
        device = int(limit * factor)
        planned = plan_of("gemma-3-27b", device_memory=device, **base)
        assert mode == planned.figures.advice.mode


def test_the_recommended_context_fits_the_device():
    """A context that the engine would refuse is replaced in the commands."""
    planned = plan_of("llama-3.1-8b", **(BASE | CASES["context-not-on-device"]))
    words = shlex.split(planned.commands.vllm_serve)
    longest = words[words.index("--max-model-len") + 1]
    assert str(planned.figures.device.longest_request_tokens) == longest
