"""From a handful of choices to an oracle that is ready to run."""

import itertools
import random
from dataclasses import dataclass, replace
from typing import Any

from vllm.config import KVEventsConfig, KVTransferConfig

from kvcellar.attention.hybrid import HybridRules
from kvcellar.config import ADMISSIONS, EVICTION_POLICIES, PLACEMENTS
from kvcellar.errors import ConfigError
from kvcellar.integrations.vllm.translate import layout_from_kv_cache_config
from kvcellar.layout.ranks import server_layout
from kvcellar.testing.oracle.layouts import OracleLayout, build, num_layers_of
from kvcellar.testing.oracle.layouts.ranks import RankShape
from kvcellar.testing.oracle.oracle import Oracle


@dataclass(frozen=True, slots=True)
class OracleOptions:
    """All that a run depends on, besides the versions of what runs.

    Attributes:
        layout: one of ``LAYOUT_NAMES``.
        mode: eager or lazy.
        seed: decides everything that happens.
        host_prompts: long prompts that host memory holds.
        device_prompts: long prompts that the device holds.
        failure_rate: chance that a copy fails.
        async_scheduling: whether the engine schedules a step ahead.
        is_v2: whether the engine talks to vLLM's second model runner.
        meddles: whether look-ups are delayed and promises shortened.
        num_connectors: of ours, side by side behind vLLM's ``MultiConnector`` if there
            is more than one.
        hash_divisor: prefix hashes per greatest common block of the groups.
        eviction_policy: one of ``config.EVICTION_POLICIES``.
        admission: one of ``config.ADMISSIONS``.
        placement: one of ``config.PLACEMENTS``.
        superseded_first: whether replaced checkpoints go before everything else; None
            leaves it to the policy.
        is_followed: whether KV events are sent, and believed.
        tenant_share: most host memory of one cache salt, as a share.
        seconds_per_byte: that copies are said to take; decides whether to load.
        tensor_ranks: ranks that hold every layer of their stage.
        stages: decoder layers of each pipeline stage; empty for one stage.
        slow_rank: whose copies take longer than those of the others; None for nobody.
        failing_rank: the only one whose copies fail; None for all of them.
    """

    layout: str
    mode: str = "eager"
    seed: int = 0
    host_prompts: float = 3.0
    device_prompts: float = 1.5
    failure_rate: float = 0.0
    async_scheduling: bool = False
    is_v2: bool = False
    meddles: bool = True
    num_connectors: int = 1
    hash_divisor: int = 1
    eviction_policy: str = "lru"
    admission: str = "all"
    placement: str = "geometric"
    superseded_first: bool | None = None
    is_followed: bool = False
    tenant_share: float | None = None
    seconds_per_byte: float = 0.0
    tensor_ranks: int = 1
    stages: tuple[int, ...] = ()
    slow_rank: int | None = None
    failing_rank: int | None = None

    @property
    def ranks(self) -> RankShape:
        """Who holds which layers."""
        return RankShape(self.tensor_ranks, tuple(self.stages))


def with_ranks(
    options: OracleOptions, tensor_ranks: int, pipeline_ranks: int
) -> OracleOptions:
    """The same run on several ranks; which layers and which rank lags is drawn.

    Args:
        pipeline_ranks: stages; each gets a random share of the layers.

    Raises:
        ConfigError: there is no such number of ranks, or no layer for each stage.
    """
    if min(tensor_ranks, pipeline_ranks) < 1:
        raise ConfigError(
            f"{tensor_ranks} x {pipeline_ranks} ranks cannot run; give 1 or more of "
            "each kind"
        )
    rng = random.Random(f"{options.seed}/ranks")
    stages = _draw_stages(rng, num_layers_of(options.layout), pipeline_ranks)
    num_ranks = tensor_ranks * pipeline_ranks
    someone = [None, *(range(num_ranks) if num_ranks > 1 else ())]
    return replace(
        options,
        tensor_ranks=tensor_ranks,
        stages=stages,
        slow_rank=rng.choice(someone),
        failing_rank=rng.choice(someone),
    )


def _draw_stages(
    rng: random.Random, num_layers: int, num_stages: int
) -> tuple[int, ...]:
    """Layers of each stage, one or more."""
    if num_stages == 1:
        return ()
    if num_stages > num_layers:
        raise ConfigError(
            f"{num_stages} pipeline stages cannot share {num_layers} layers with a "
            "cache; give fewer stages"
        )
    cuts = sorted(rng.sample(range(1, num_layers), num_stages - 1))
    return tuple(b - a for a, b in itertools.pairwise([0, *cuts, num_layers]))


def drawn(options: OracleOptions, **fixed: Any) -> OracleOptions:
    """The same layout, mode and seed; what is not fixed follows from the seed.

    Args:
        fixed: attributes by name; None leaves the choice to the seed.
    """
    rng = random.Random(f"{options.seed}/options")
    choices: dict[str, Any] = {
        "host_prompts": rng.choice([2.0, 4.0, 12.0]),
        "device_prompts": rng.choice([1.0, 1.5, 3.0]),
        "async_scheduling": rng.choice([False, True]),
        "is_v2": rng.choice([False, True]),
        "meddles": rng.random() < 0.7,
        "num_connectors": rng.choice([1, 1, 1, 1, 1, 2]),
        "hash_divisor": rng.choice([1, 1, 2]),
        "eviction_policy": rng.choice(["lru", "lru", *EVICTION_POLICIES]),
        "admission": rng.choice(["all", "all", "all", *ADMISSIONS]),
        "placement": rng.choice(["geometric", "geometric", *PLACEMENTS]),
        "superseded_first": rng.choice((None, None, True, False)),
        "is_followed": rng.random() < 0.5,
        "tenant_share": rng.choice([None, None, 0.3, 0.8]),
        "seconds_per_byte": rng.choice([0.0, 0.0, 1e-8, 1e-6]),
    }
    if choices["hash_divisor"] > 1:
        # A hit inside a block takes blocks beside its own, to copy from. With a device
        # that holds one request, vLLM 0.32 then waits for ever for blocks to get free.
        choices["device_prompts"] = 3.0
    choices |= {name: value for name, value in fixed.items() if value is not None}
    if len(options.stages) > 1 and choices["async_scheduling"]:
        # With its first runner vLLM leaves this out by itself. Who insists gets steps
        # behind an answer's last token, since the engine takes all steps under way but
        # one for drafts: harmless but for a session, whose tokens are then taken back
        # by counting, and a running state knows no counting back.
        # Source: VllmConfig.__post_init__, Scheduler.schedule, and
        # AsyncScheduler._update_after_schedule, which spreads the steps of a request
        # out for the second runner only, vLLM 0.32.
        choices["is_v2"] = True
    return replace(options, **choices)


def _extra_config(options: OracleOptions, host_bytes: int) -> dict[str, object]:
    """What the user of such an engine would write."""
    extra: dict[str, object] = {
        "host_memory": host_bytes,
        "mode": options.mode,
        "eviction_policy": options.eviction_policy,
        "admission": options.admission,
        "placement": options.placement,
    }
    if options.superseded_first is not None:
        extra["superseded_first"] = options.superseded_first
    if options.tenant_share is not None:
        extra["tenant_share"] = options.tenant_share
    return extra


def make_oracle(options: OracleOptions) -> Oracle:
    """Plan the layout, start both halves of the connector and the scheduler."""
    probe = build(options.layout, extra_config={}, ranks=options.ranks)
    host_bytes = round(options.host_prompts * prompt_bytes(probe))
    layout = build(
        options.layout,
        extra_config=_extra_config(options, host_bytes),
        device_prompts=options.device_prompts,
        async_scheduling=options.async_scheduling,
        hash_divisor=options.hash_divisor,
        ranks=options.ranks,
        is_v2=options.is_v2,
    )
    if options.is_followed:
        layout.vllm_config.kv_events_config = KVEventsConfig(
            enable_kv_cache_events=True, publisher="null"
        )
    if options.num_connectors > 1:
        several = _multi_connector(layout, options.num_connectors)
        layout.vllm_config.kv_transfer_config = several
    oracle = Oracle(
        layout,
        options.seed,
        failure_rate=options.failure_rate,
        failing_rank=options.failing_rank,
        slow_rank=options.slow_rank,
        seconds_per_byte=options.seconds_per_byte,
        is_v2=options.is_v2,
    )
    if options.meddles:
        oracle.meddle()
    return oracle


def _multi_connector(layout: OracleLayout, count: int) -> KVTransferConfig:
    """Several of ours in one engine; each has a smaller memory than the one before."""
    one = layout.vllm_config.kv_transfer_config
    children = []
    for number in range(count):
        extra = dict(one.kv_connector_extra_config)
        extra["host_memory"] //= number + 1
        children.append(
            {
                "kv_connector": one.kv_connector,
                "kv_connector_module_path": one.kv_connector_module_path,
                "kv_role": one.kv_role,
                "kv_load_failure_policy": one.kv_load_failure_policy,
                "kv_connector_extra_config": extra,
            }
        )
    return KVTransferConfig(
        kv_connector="MultiConnector",
        kv_role=one.kv_role,
        kv_load_failure_policy=one.kv_load_failure_policy,
        kv_connector_extra_config={"connectors": children},
    )


def prompt_bytes(built: OracleLayout) -> int:
    """Host bytes of a long prompt on all ranks: its chunks and one checkpoint."""
    layout = server_layout(
        [layout_from_kv_cache_config(config) for config in built.worker_configs]
    )
    rules = HybridRules(layout)
    boundary = built.prompt_tokens // layout.chunk_tokens * layout.chunk_tokens
    chunk = sum(layout.cell_bytes(p) for p in layout.chunk_positions)
    checkpoint = sum(
        len(blocks) * layout.cell_bytes(position)
        for position, blocks in rules.checkpoint_blocks(boundary)
    )
    return chunk * (boundary // layout.chunk_tokens) + checkpoint
