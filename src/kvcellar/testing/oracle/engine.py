"""One engine put together: vLLM's scheduler, our connector, a simulated device."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vllm.distributed.kv_events import NullEventPublisher
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.utils.hashing import sha256
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.structured_output import StructuredOutputManager

from kvcellar.core.checks import check_ledger
from kvcellar.index.checks import check_index
from kvcellar.integrations.vllm.connector import CellarConnector
from kvcellar.integrations.vllm.dead_state import compressor_states
from kvcellar.integrations.vllm.kv_events import are_followed
from kvcellar.testing.oracle.device import SimulatedDevice
from kvcellar.testing.oracle.figures import OracleFigures
from kvcellar.testing.oracle.follower import EventFollower
from kvcellar.testing.oracle.layouts import OracleLayout
from kvcellar.testing.oracle.loop import EngineLoop
from kvcellar.testing.oracle.rows import Prompt
from kvcellar.testing.oracle.runner import OracleRunner
from kvcellar.testing.oracle.transfers import SeededTransfers

TICK_SECONDS = 0.001


class Ticks:
    """A clock that goes on when it is read, so that a run replays exactly."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self) -> float:
        """Seconds since it was made."""
        self._count += 1
        return self._count * TICK_SECONDS


class SimulatedEngine:
    """Scheduler side and one worker, in one process and without a thread.

    Args:
        layout: what to run on; says too whether the engine schedules ahead.
        seed: decides when copies end, what is sampled, and which places are checked.
        failure_rate: chance that a copy fails.
        seconds_per_byte: that a copy is said to take.
        is_v2: whether the engine talks to vLLM's second model runner.

    Attributes:
        scheduler: vLLM's own.
        planners: the core of our planning half; several behind a ``MultiConnector``.
        planner: the first of them.
        device: the simulated cache.
        all_transfers: what carries out each connector's copies.
        transfers: the first of them.
        runner: the workers' side of a step.
        loop: the engine's main loop.
        follower: believes the KV events; None if there are none.
    """

    def __init__(
        self,
        layout: OracleLayout,
        seed: int,
        *,
        failure_rate: float = 0.0,
        seconds_per_byte: float = 0.0,
        is_v2: bool = False,
    ) -> None:
        self._seed = seed
        self.layout = layout
        init_none_hash(sha256)
        self._hasher = get_request_block_hasher(layout.hash_block_tokens, sha256)
        self.device = SimulatedDevice(layout.worker_config, seed)
        self._worker: Any = KVConnectorFactory.create_connector(
            layout.vllm_config, KVConnectorRole.WORKER, layout.worker_config
        )
        self._worker.register_kv_caches(self.device.kv_caches)
        self.all_transfers = [
            self._seeded_transfers(
                number,
                half,
                failure_rate=failure_rate,
                seconds_per_byte=seconds_per_byte,
            )
            for number, half in enumerate(_ours(self._worker))
        ]
        self.transfers = self.all_transfers[0]
        with _model_runner(is_v2=is_v2):
            self.scheduler = self._make_scheduler()
        self._is_v2 = is_v2
        self._connector: Any = self.scheduler.connector
        self._connector.set_xfer_handshake_metadata_pp_aware(
            {(0, 0): self._worker.get_handshake_metadata()}
        )
        self._sides = [half.scheduler_side for half in _ours(self._connector)]
        for side in self._sides:
            side.clock = Ticks()
        self.planners = [side.offloader for side in self._sides]
        self.planner = self.planners[0]
        self.follower = self._follow()
        self._take_pictures()
        speculative = layout.vllm_config.speculative_config
        num_draft_tokens = speculative.num_speculative_tokens if speculative else 0
        self.runner = self._make_runner(has_drafter=bool(num_draft_tokens))
        self.loop = EngineLoop(
            self.scheduler,
            self.runner,
            self._prompt_of,
            random.Random(f"{seed}/loop"),
            num_draft_tokens,
        )

    def _prompt_of(self, request_id: str) -> Prompt:
        """A request's prefix as the engine knows it now."""
        raise NotImplementedError

    def _make_scheduler(self) -> Scheduler:
        layout = self.layout
        make: Any = layout.vllm_config.scheduler_config.get_scheduler_cls()
        scheduler: Scheduler = make(
            vllm_config=layout.vllm_config,
            kv_cache_config=layout.scheduler_config,
            structured_output_manager=StructuredOutputManager(layout.vllm_config),
            block_size=layout.scheduler_block_tokens,
            hash_block_size=layout.hash_block_tokens,
            log_stats=False,
        )
        return scheduler

    def _follow(self) -> EventFollower | None:
        """Let somebody believe the KV events of the first connector, if any are sent.

        Two tell of the same blocks each for itself, which is more than one can tell
        apart. And events that are published go to those who subscribe.
        """
        is_followed = are_followed(self.layout.vllm_config)
        is_published = not isinstance(
            self.scheduler.kv_event_publisher, NullEventPublisher
        )
        if not is_followed or is_published or len(self.planners) > 1:
            return None
        follower = EventFollower(self.planner, self.layout.hash_block_tokens)
        self.scheduler.kv_event_publisher = follower
        return follower

    def _take_pictures(self) -> None:
        """Let prompts hold pictures of up to four chunks; nothing looks at them."""
        num_tokens = 4 * self.planner.layout.chunk_tokens
        self.scheduler.max_num_encoder_input_tokens = num_tokens
        self.scheduler.encoder_cache_manager = EncoderCacheManager(2 * num_tokens)

    def _make_runner(self, *, has_drafter: bool) -> OracleRunner:
        is_ruled = self.planner.settings.dead_state
        worker_config = self.layout.worker_config
        return OracleRunner(
            self.planner.layout,
            self._worker,
            self.device,
            random.Random(f"{self._seed}/runner"),
            compressor_states(worker_config) if is_ruled else {},
            has_drafter=has_drafter,
            is_v2=self._is_v2,
        )

    def _seeded_transfers(
        self, number: int, half: CellarConnector, **rates: float
    ) -> SeededTransfers:
        side = half.worker_side
        assert side.device is not None
        assert side.transfers is not None
        side.transfers.close(1.0)
        rng = random.Random(f"{self._seed}/copies/{number}")
        transfers = SeededTransfers(side.device, rng, **rates)
        side.transfers = transfers
        return transfers

    def check(self) -> None:
        """Verify what host memory is said to hold, and where tokens came from.

        Raises:
            InvariantError: an index is broken, or accounts do not add up.
            WrongEventError: the KV events told something else.
        """
        for planner in self.planners:
            check_index(planner.index)
            check_ledger(planner.ledger)
        if self.follower is not None:
            self.follower.believe(self._sides[0].take_kv_events())
            self.follower.check()

    def held(self) -> dict[str, int]:
        """What is held, by its name; all 0 once the last request has ended."""
        pool = self.scheduler.kv_cache_manager.block_pool
        nodes = [n for planner in self.planners for n in planner.index.nodes.values()]
        return {
            "device blocks": pool.num_gpu_blocks - 1 - pool.get_num_free_blocks(),
            "jobs": sum(len(planner.jobs) for planner in self.planners),
            "requests": sum(len(planner.records) for planner in self.planners),
            "pinned nodes": sum(node.pins > 0 for node in nodes),
            "watched": sum(side.num_watched for side in self._sides),
        }

    def add_counters(self, figures: OracleFigures) -> None:
        """Put in what the engine's parts have counted."""
        figures.num_ahead = self.loop.num_ahead
        figures.num_units_checked = self.runner.num_units_checked
        figures.num_preemptions = self.loop.num_preemptions
        for side, planner in zip(self._sides, self.planners, strict=True):
            counters = planner.counters
            figures.loaded_tokens += counters.loaded_tokens
            figures.cheap_recomputes += counters.cheap_recomputes
            figures.stored_chunks += counters.stored_chunks
            figures.stored_checkpoints += counters.stored_checkpoints
            figures.refused_loads += counters.refused_loads
            figures.failed_jobs += counters.failed_jobs
            figures.lost_chunks += counters.lost_chunks
            figures.overtaken_jobs += side.num_overtaken
            figures.evicted_chunks += planner.index.counters.evicted_chunks
        if self.follower is not None:
            figures.announced_blocks = self.follower.num_stored
            figures.withdrawn_blocks = self.follower.num_removed

    def close(self) -> None:
        """Give host memory back."""
        self._worker.shutdown()


def _ours(connector: Any) -> list[CellarConnector]:
    """The connector itself, or our children of a ``MultiConnector``."""
    children = getattr(connector, "sub_connectors", [connector])
    return [child for child in children if isinstance(child, CellarConnector)]


@contextmanager
def _model_runner(*, is_v2: bool) -> Iterator[None]:
    """What is started meanwhile believes in one of vLLM's two model runners."""
    name = "VLLM_USE_V2_MODEL_RUNNER"
    before = os.environ.get(name)
    os.environ[name] = str(int(is_v2))
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
