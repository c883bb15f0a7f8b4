"""Whatever is asked for, a plan is consistent in itself, or one sentence refuses it."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from plans import plan_of

from kvcellar.errors import ConfigError, IncompatibleError
from kvcellar.layout.models import MODEL_NAMES
from kvcellar.plan.report.json import content_of
from kvcellar.plan.report.text import text_of

SIZES = st.sampled_from(["1MiB", "300MiB", "7GiB", "64GiB", "3TiB"])
OPTIONS = st.fixed_dictionaries(
    {"model": st.sampled_from(MODEL_NAMES)},
    optional={
        "host_memory": SIZES,
        "device_memory": SIZES,
        "tensor_parallel": st.sampled_from([1, 2, 4, 8]),
        "pipeline_parallel": st.integers(1, 6),
        "data_parallel": st.integers(1, 3),
        "nodes": st.sampled_from([1, 2]),
        "prompt_tokens": st.sampled_from([1, 16, 17, 1000, 8000, 200_000]),
        "concurrency": st.sampled_from([1, 50, 5000]),
        "cache_dtype": st.sampled_from(["auto", "fp8", "bfloat16"]),
        "mode": st.sampled_from(["eager", "lazy"]),
        "eviction_policy": st.sampled_from(["lru", "lhd"]),
        "blocks_per_chunk": st.sampled_from([1, 3, 64]),
        "gpu": st.sampled_from(["h100", "a100"]),
        "load_bytes_per_second": st.sampled_from(["1e6", "5e10"]),
        "max_model_len": st.sampled_from([64, 4096, 8192]),
    },
)


@settings(max_examples=150, deadline=None)
@given(OPTIONS)
def test_a_plan_holds_together_or_says_why_not(options):
    """Bytes fit, sums add up, both outputs can be written."""
    try:
        planned = plan_of(**options)
    except (ConfigError, IncompatibleError) as refusal:
        said = str(refusal)
        assert said
        assert "\n" not in said
        return
    figures = planned.figures
    host, shape = figures.host, figures.shape
    for stage in host.stages:
        assert host.num_prompts * stage.prompt_bytes <= stage.arena_bytes
        assert host.num_chunks * stage.chunk_bytes <= stage.arena_bytes
    assert host.arena_bytes_per_rank <= host.asked_bytes_per_rank * host.num_sharing
    assert host.arena_bytes_in_total <= shape.num_nodes * host.arena_bytes_per_node
    if host.are_ranks_even:
        on_nodes = shape.num_nodes * host.arena_bytes_per_node
        assert host.arena_bytes_in_total == on_nodes
    if figures.device is not None:
        device = figures.device
        assert device.num_blocks * device.row_bytes <= device.memory_bytes
        assert device.num_prompts * device.blocks_per_prompt < device.num_blocks
    content = content_of(planned)
    assert json.loads(json.dumps(content)).keys() == content.keys()
    text = text_of(planned, width=80)
    assert all(finding.remedy.split()[0] in text for finding in planned.findings)
    assert all(line in text for line in host.log_lines)
    assert "None" not in text
    assert "nan" not in text.split()
