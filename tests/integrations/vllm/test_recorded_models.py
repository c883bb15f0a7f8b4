"""Real models' cache configurations: replayed from JSON, and as vLLM plans them now."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kvcellar.attention.hybrid import HybridRules
from kvcellar.errors import IncompatibleError
from kvcellar.integrations.vllm.translate import layout_from_kv_cache_config
from kvcellar.layout.groups import AttentionKind, CacheLayout

DATA = Path(__file__).parents[2] / "data"
MODELS = sorted(
    path.stem for path in DATA.glob("*.json") if "kv_cache_groups" in path.read_text()
)
FULL, WINDOW = AttentionKind.FULL, AttentionKind.WINDOW
CHUNKED, STATE = AttentionKind.CHUNKED, AttentionKind.STATE


def spec_class(names: list[str]) -> type[SimpleNamespace]:
    """A class of that name, with bases of the other names, like the recorded one's."""
    base: type[SimpleNamespace] = SimpleNamespace
    for name in reversed(names):
        base = type(name, (base,), {})
    return base


def replay(model: str) -> Any:
    """A recorded configuration as objects with the recorded attributes."""
    recorded = json.loads((DATA / f"{model}.json").read_text())

    def spec(number: int) -> Any:
        fields = dict(recorded["specs"][number])
        made = spec_class(fields.pop("classes"))(**fields)
        if "kv_cache_specs" in fields:
            inner = fields["kv_cache_specs"].items()
            made.kv_cache_specs = {name: spec(n) for name, n in inner}
        return made

    groups = [
        SimpleNamespace(**(group | {"kv_cache_spec": spec(group["kv_cache_spec"])}))
        for group in recorded["kv_cache_groups"]
    ]
    tensors = [SimpleNamespace(**tensor) for tensor in recorded["kv_cache_tensors"]]
    scalars = {k: v for k, v in recorded.items() if k not in ("specs",)}
    return SimpleNamespace(
        **(scalars | {"kv_cache_groups": groups, "kv_cache_tensors": tensors})
    )


def summary(
    layout: CacheLayout,
) -> list[tuple[AttentionKind, int, int | None, int, int]]:
    """Kind, block, span, layers and payload of each group."""
    return [
        (g.kind, g.tokens_per_block, g.span_tokens, g.num_layers, g.payload_bytes)
        for g in layout.groups
    ]


def units(layout: CacheLayout) -> tuple[int, int, int, int]:
    return (
        layout.hash_block_tokens,
        layout.alignment_tokens,
        layout.scheduler_block_tokens,
        layout.chunk_tokens,
    )


@pytest.fixture(scope="module")
def recorder() -> ModuleType:
    """tests/data/record.py, or a visible skip where vLLM is missing."""
    pytest.importorskip("vllm")
    found = importlib.util.spec_from_file_location("record", DATA / "record.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("model", "expected_units", "expected_groups"),
    [
        ("tiny_llama", (32, 32, 32, 32), [(FULL, 32, None, 2, 32768)]),
        (
            "tiny_gemma3",
            (16, 16, 16, 16),
            [(WINDOW, 16, 128, 1, 8192)] * 5 + [(FULL, 16, None, 1, 8192)],
        ),
        (
            "tiny_llama4",
            (16, 16, 16, 16),
            [(CHUNKED, 16, 64, 1, 8192)] * 3 + [(FULL, 16, None, 1, 8192)],
        ),
        (
            "tiny_qwen3_next",
            (256, 256, 256, 256),
            [(STATE, 256, None, 1, 68608)] * 3 + [(FULL, 256, None, 1, 131072)],
        ),
        (
            "gemma3_27b",
            (16, 16, 16, 16),
            [(WINDOW, 16, 1024, 9, 9 * 131072)] * 4
            + [(WINDOW, 16, 1024, 8, 8 * 131072)] * 2
            + [(FULL, 16, None, 10, 10 * 131072)],
        ),
        (
            "gpt_oss_20b",
            (16, 16, 16, 16),
            [(WINDOW, 16, 128, 12, 393216), (FULL, 16, None, 12, 393216)],
        ),
        (
            "deepseek_v4_flash",
            (4, 256, 256, 256),
            [
                (WINDOW, 64, 128, 22, 22 * 64 * 584),
                (WINDOW, 64, 128, 21, 21 * 64 * 584),
                (FULL, 256, None, 62, 20 * 1168 + 21 * 37376 + 21 * 8448),
                (WINDOW, 4, 8, 42, 21 * 32768 + 21 * 8192),
                (WINDOW, 8, 128, 20, 20 * 32768),
            ],
        ),
    ],
)
def test_recorded_models(
    model: str, expected_units: tuple[int, ...], expected_groups: list[Any]
) -> None:
    """Kinds, spans, layers, unpadded bytes and units of real models."""
    layout = layout_from_kv_cache_config(replay(model))
    assert expected_groups == summary(layout)
    assert expected_units == units(layout)


@pytest.mark.parametrize("model", MODELS)
def test_units_are_the_same_when_worked_out(model: str) -> None:
    """Without the engine's resolved sizes the same ones follow from the groups."""
    config = replay(model)
    resolved = units(layout_from_kv_cache_config(config))
    config.hash_block_size = config.cache_hit_alignment_tokens = None
    assert resolved == units(layout_from_kv_cache_config(config))


@pytest.mark.parametrize("model", MODELS)
def test_bytes_fit_the_tensors(model: str) -> None:
    """Padded bytes times blocks never exceed the allocation they lie in."""
    config = replay(model)
    size = config.kv_cache_tensors[0].size
    for group in layout_from_kv_cache_config(config).groups:
        assert group.payload_bytes <= group.padded_bytes <= size // config.num_blocks


def test_deepseek_v4_checkpoint_bytes() -> None:
    """One DeepSeek-V4 checkpoint is 22 blocks and 14.7 MiB, a chunk 0.94 MiB."""
    layout = layout_from_kv_cache_config(replay("deepseek_v4_flash"))
    checkpoint = HybridRules(layout).checkpoint_blocks(32768)
    assert [2, 2, 2, 16] == [len(blocks) for _, blocks in checkpoint]
    sizes = [layout.cell_bytes(p) * len(blocks) for p, blocks in checkpoint]
    assert 15_420_416 == sum(sizes)
    assert 985_664 == layout.cell_bytes(2)


def test_the_schedulers_shortened_copy_is_refused_without_bytes() -> None:
    """The engine shows its scheduler one spec per group: bytes are not guessed."""
    config = replay("deepseek_v4_flash")
    exact = layout_from_kv_cache_config(config)
    for group in config.kv_cache_groups:
        wrapped = getattr(group.kv_cache_spec, "kv_cache_specs", None)
        if wrapped is not None:
            group.kv_cache_spec = next(iter(wrapped.values()))
    with pytest.raises(IncompatibleError, match="pass the workers' payload_bytes"):
        layout_from_kv_cache_config(config)
    payloads = {g.group_id: g.payload_bytes for g in exact.groups}
    found = layout_from_kv_cache_config(config, payload_bytes_by_group=payloads)
    assert summary(exact) == summary(found)
    assert units(exact) == units(found)


@pytest.mark.parametrize("model", MODELS)
def test_recorded_is_what_vllm_builds_now(recorder: ModuleType, model: str) -> None:
    """The recorded files equal what the installed vLLM plans, and read the same."""
    live = recorder.cache_config(model)
    recorded = json.loads((DATA / f"{model}.json").read_text())
    assert recorded == json.loads(json.dumps(recorder.to_json(live)))
    expected = layout_from_kv_cache_config(replay(model))
    assert expected == layout_from_kv_cache_config(live)


def test_scales_inside_the_cell_are_counted(recorder: ModuleType) -> None:
    """fp8 with a scale per token and head: 16 x 2 x 2 x (64 + 4) bytes, not 4096."""
    import torch

    spec = recorder.full(dtype=torch.uint8, state_content_bytes=2 * (64 + 4))
    group = SimpleNamespace(layer_names=["layer0"], kv_cache_spec=spec)
    config = SimpleNamespace(kv_cache_groups=[group], kv_cache_tensors=[])
    layout = layout_from_kv_cache_config(config)
    assert 4352 == layout.groups[0].payload_bytes


def test_kinds_agree_with_vllm(recorder: ModuleType) -> None:
    """Our reading of the class names is vLLM's own kind, for every recorded group."""
    from vllm.v1.kv_cache_interface import KVCacheSpecKind, get_kv_cache_spec_kind

    ours = {
        KVCacheSpecKind.FULL_ATTENTION: FULL,
        KVCacheSpecKind.MLA_ATTENTION: FULL,
        KVCacheSpecKind.SLIDING_WINDOW: WINDOW,
        KVCacheSpecKind.SLIDING_WINDOW_MLA: WINDOW,
        KVCacheSpecKind.CHUNKED_LOCAL_ATTENTION: CHUNKED,
        KVCacheSpecKind.MAMBA: STATE,
    }
    for model in MODELS:
        config = recorder.cache_config(model)
        expected = [
            ours[get_kv_cache_spec_kind(g.kv_cache_spec)]
            for g in config.kv_cache_groups
        ]
        found = layout_from_kv_cache_config(config)
        assert expected == [g.kind for g in found.groups]
