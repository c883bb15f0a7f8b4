"""Compressors' states are recognised by facts, and the engine never reads dead ones."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kvcellar.attention.hybrid import HybridRules
from kvcellar.attention.reference import (
    first_token_read_by_compressor,
)
from kvcellar.integrations.vllm.translate import layout_from_kv_cache_config
from kvcellar.layout.groups import CacheLayout

pytest.importorskip("vllm")

import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.request import Request

from kvcellar.integrations.vllm.dead_state import (
    compressor_states,
    with_proven_dead_states,
)
from kvcellar.testing.oracle import runner
from kvcellar.testing.oracle.layouts import LAYOUT_NAMES, OracleLayout, build
from kvcellar.testing.oracle.oracle import Oracle

FLASH = "deepseek-v4-flash"
DEEPSEEK_V4 = (FLASH, "deepseek-v4-flash-bf16", "deepseek-v4-flash-mtp")
RATIOS = {3: 4, 4: 128}
OVERLAPS = {3: 4, 4: 0}


def planned(name: str = FLASH, *, is_small: bool = True, **settings: Any) -> Any:
    return build(name, extra_config=settings, is_small=is_small)


def checkpoint_bytes(layout: CacheLayout, boundary: int) -> int:
    rules = HybridRules(layout)
    return sum(
        len(blocks) * layout.cell_bytes(position)
        for position, blocks in rules.checkpoint_blocks(boundary)
    )


# -- recognition -------------------------------------------------------------------


@pytest.mark.parametrize("is_small", [True, False])
@pytest.mark.parametrize("name", DEEPSEEK_V4)
def test_finds_the_states_in_workers_and_schedulers_configs(
    name: str, is_small: bool
) -> None:
    """Both see group 3 with ratio 4 and group 4 with ratio 128."""
    layout = planned(name, is_small=is_small)
    assert compressor_states(layout.worker_config) == RATIOS
    assert compressor_states(layout.scheduler_config) == RATIOS


@pytest.mark.parametrize("name", sorted(set(LAYOUT_NAMES) - set(DEEPSEEK_V4)))
def test_finds_none_in_other_models(name: str) -> None:
    """Sliding windows of other models, DeepSeek-V4.1's rings included, are left be."""
    layout = planned(name)
    assert compressor_states(layout.worker_config) == {}
    assert compressor_states(layout.scheduler_config) == {}


@pytest.mark.parametrize(
    ("name", "declared", "ruled"),
    [
        (FLASH, 15_420_416, 4_074_496),
        ("deepseek-v4-flash-bf16", 17_842_176, 6_496_256),
    ],
)
def test_bytes_of_a_checkpoint(name: str, declared: int, ruled: int) -> None:
    """At full size: what one resume point costs without the rule, and with it."""
    config = planned(name, is_small=False).worker_config
    layout = layout_from_kv_cache_config(config)
    assert checkpoint_bytes(layout, 1024) == declared
    cut = with_proven_dead_states(layout, compressor_states(config))
    assert checkpoint_bytes(cut, 1024) == ruled


Change = Callable[[Any], Any]


def changed(config: Any, is_changed: Change, change: Change) -> Any:
    """The worker's configuration with some layers' specs replaced."""
    groups = []
    for group in config.kv_cache_groups:
        specs = {
            name: change(spec) if is_changed(name) else spec
            for name, spec in group.kv_cache_spec.kv_cache_specs.items()
        }
        wrapped = replace(group.kv_cache_spec, kv_cache_specs=specs)
        groups.append(replace(group, kv_cache_spec=wrapped))
    return replace(config, kv_cache_groups=groups)


def spec_change(**fields: Any) -> Change:
    return lambda spec: replace(spec, **fields)


@pytest.mark.parametrize(
    "change",
    [
        spec_change(dtype=torch.bfloat16),
        spec_change(sliding_window=16),
        spec_change(block_size=8),
        spec_change(extra_retained_tokens=1),
        spec_change(head_size=6),
        spec_change(num_kv_heads=2),
        spec_change(state_content_bytes=64),
        spec_change(model_version="deepseek_v4"),
    ],
)
def test_one_strange_layer_leaves_its_group_alone(change: Change) -> None:
    """A fact that does not hold for one of the layers is enough; others stay."""
    strange = "model.layers.4.attn.compressor.state_cache"
    config = changed(planned().worker_config, lambda name: name == strange, change)
    assert compressor_states(config) == {4: 128}


def test_other_names_are_not_trusted() -> None:
    """The shapes of a state under another name are a window's."""
    config = planned().worker_config
    groups = list(config.kv_cache_groups)
    specs = groups[4].kv_cache_spec.kv_cache_specs
    renamed = {name.removesuffix(".state_cache"): s for name, s in specs.items()}
    groups[4] = replace(
        groups[4],
        layer_names=list(renamed),
        kv_cache_spec=replace(groups[4].kv_cache_spec, kv_cache_specs=renamed),
    )
    assert compressor_states(replace(config, kv_cache_groups=groups)) == {3: 4}


def test_a_state_must_feed_a_cache_of_its_ratio() -> None:
    """A layer that compresses by another ratio than its state's window says."""
    config = changed(
        planned().worker_config,
        lambda name: name == "model.layers.3.attn",
        spec_change(tokens_per_state=64),
    )
    assert compressor_states(config) == {3: 4}


def test_another_model_s_caches_are_not_trusted() -> None:
    """Without the mark of DeepSeek-V4 on any cache, nothing counts."""
    config = changed(
        planned().worker_config,
        lambda name: not name.endswith("state_cache"),
        lambda spec: replace(spec, model_version=None, state_content_bytes=None),
    )
    assert compressor_states(config) == {}


def test_replay_below_the_resume_point_turns_the_rule_off() -> None:
    """A model that recomputes its last window after a hit recomputes closed groups."""
    config = changed(
        planned().worker_config,
        lambda name: name.endswith("swa_cache"),
        spec_change(bounded_replay=True),
    )
    assert compressor_states(config) == {}


def test_an_alignment_inside_a_group_keeps_the_declared_windows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The rule stays off, the engine starts, and the log says why."""
    config = planned().worker_config
    layout = layout_from_kv_cache_config(config, alignment_tokens=64)
    with caplog.at_level(logging.INFO, logger="kvcellar"):
        assert with_proven_dead_states(layout, compressor_states(config)) == layout
    assert "the dead-state rule stays off: prefix hits are multiples" in caplog.text


# -- the engine's own cache of blocks that a load left unwritten --------------------


class Device:
    """vLLM's real cache manager, and the states that loads left unwritten."""

    def __init__(self, layout: OracleLayout, retention: int | None) -> None:
        init_none_hash(sha256)
        self._hasher = get_request_block_hasher(layout.hash_block_tokens, sha256)
        self.manager = KVCacheManager(
            replace(layout.scheduler_config, prefix_cache_retention_interval=retention),
            max_model_len=layout.vllm_config.model_config.max_model_len,
            scheduler_block_size=layout.scheduler_block_tokens,
            hash_block_size=layout.hash_block_tokens,
            max_in_flight_tokens=layout.vllm_config.max_in_flight_tokens,
            enable_caching=True,
        )
        declared = layout_from_kv_cache_config(layout.worker_config)
        ruled = with_proven_dead_states(
            declared, compressor_states(layout.worker_config)
        )
        self.declared, self.ruled = HybridRules(declared), HybridRules(ruled)
        self._count = 0

    def request(self, tokens: list[int]) -> Request:
        self._count += 1
        params = SamplingParams(max_tokens=4)
        name = f"r{self._count}"
        return Request(name, tokens, params, None, block_hasher=self._hasher)

    def block_ids(self, request: Request, position: int) -> list[int]:
        return self.manager.get_block_ids(request.request_id)[position]

    def load(self, request: Request, boundary: int) -> set[int]:
        """Admit, load and hash as the scheduler does; the unwritten blocks."""
        self.manager.allocate_slots(
            request, 0, num_external_computed_tokens=boundary, delay_cache_blocks=True
        )
        self.manager.cache_blocks(request, boundary)
        request.num_computed_tokens = boundary
        unwritten = set()
        for position in RATIOS:
            blocks = self.block_ids(request, position)
            written = self.ruled.rules[position].needed(boundary)
            declared = self.declared.rules[position].needed(boundary)
            unwritten |= {blocks[i] for i in declared if i not in written}
        assert 0 not in unwritten  # allocated all the same
        return unwritten

    def compute(self, request: Request, num_tokens: int) -> None:
        self.manager.allocate_slots(request, num_tokens)
        request.num_computed_tokens += num_tokens

    def hit(self, tokens: list[int]) -> tuple[int, set[int], set[int]]:
        """Device hit: tokens, all state blocks found, and those of them read."""
        blocks, num_tokens, *_ = self.manager.get_computed_blocks(self.request(tokens))
        found, read = set(), set()
        for position, ratio in RATIOS.items():
            size = self.declared.rules[position].tokens_per_block
            ids = [block.block_id for block in blocks.blocks[position]]
            overlap = OVERLAPS[position]
            first = first_token_read_by_compressor(ratio, overlap, num_tokens)
            found |= set(ids) - {0}
            read |= set(ids[first // size :])
        return num_tokens, found, read


@pytest.mark.parametrize(
    ("retention", "num_tokens", "expected"),
    [(None, 1200, {0, 512, 768, 1024}), (0, 600, {0, 512})],
)
def test_a_device_hit_finds_unwritten_states_and_reads_none(
    retention: int | None, num_tokens: int, expected: set[int]
) -> None:
    """vLLM hands them out as valid, at the boundary of the load and nowhere else.

    There a compressor reads none of them; at every other boundary they are not found.
    """
    ample = build(FLASH, extra_config={}, num_device_blocks=4000)
    device = Device(ample, retention)
    tokens = [n % 7 for n in range(num_tokens)]
    first = device.request(tokens)
    unwritten = device.load(first, 512)
    assert len(unwritten) == 1 + 16
    while first.num_computed_tokens < num_tokens:
        device.compute(first, min(172, num_tokens - first.num_computed_tokens))
    boundaries = set()
    for length in {*range(1, num_tokens, 37), 256, 257, 512, 513, 768, 769, num_tokens}:
        boundary, found, read = device.hit(tokens[:length])
        assert boundary % 256 == 0
        assert boundary < length
        assert unwritten.isdisjoint(read)
        assert bool(read) == bool(boundary)  # ratio 4 reads its one block
        assert unwritten <= found if boundary == 512 else unwritten.isdisjoint(found)
        boundaries.add(boundary)
    assert boundaries == expected


# -- everything together -----------------------------------------------------------


def declared_windows(ratio: int, overlap_tokens: int, query: int) -> int:
    """What the engine declares that it reads."""
    del overlap_tokens
    window = {4: 8, 128: 128}[ratio]
    return max(query - window + 1, 0)


def run_oracle() -> Any:
    oracle = Oracle(planned(host_memory=900_000), seed=11)
    spans = [group.span_tokens for group in oracle.planner.layout.groups]
    assert spans == [128, 128, None, 5, 1]
    try:
        return oracle.run(500)
    finally:
        oracle.close()


def test_no_step_reads_a_wrong_state() -> None:
    """Oracle, rule on: loads, device hits, eviction; every state read is right."""
    figures = run_oracle()
    assert figures.loaded_tokens > 0
    assert figures.num_units_checked > 100_000


def test_the_oracle_would_see_unwritten_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the states were windows that every token reads, the same run would fail."""
    monkeypatch.setattr(runner, "first_token_read_by_compressor", declared_windows)
    with pytest.raises(runner.WrongBytesError, match=r"entries of group [34]"):
        run_oracle()


def test_the_rule_can_be_turned_off() -> None:
    """``dead_state: false`` keeps the windows that the engine declares."""
    oracle = Oracle(planned(host_memory=900_000, dead_state=False), seed=1)
    oracle.close()
    spans = [group.span_tokens for group in oracle.planner.layout.groups]
    assert spans == [128, 128, None, 8, 128]
