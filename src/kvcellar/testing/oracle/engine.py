"""One engine put together: vLLM's scheduler, our connector, a simulated device."""

import random
from typing import Any

from vllm.distributed.kv_events import NullEventPublisher
from vllm.distributed.kv_transfer.kv_connector.utils import KVOutputAggregator
from vllm.utils.hashing import sha256
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.structured_output import StructuredOutputManager

from kvcellar.core.checks import check_ledger
from kvcellar.index.checks import check_index
from kvcellar.integrations.vllm.connector import CellarConnector
from kvcellar.integrations.vllm.dead_state import compressor_states
from kvcellar.integrations.vllm.kv_events import are_followed
from kvcellar.testing.oracle.figures import OracleFigures
from kvcellar.testing.oracle.follower import EventFollower
from kvcellar.testing.oracle.layouts import OracleLayout
from kvcellar.testing.oracle.layouts.engine import model_runner
from kvcellar.testing.oracle.loop import EngineLoop, most_in_flight
from kvcellar.testing.oracle.rows import Prompt
from kvcellar.testing.oracle.runner import OracleRunner
from kvcellar.testing.oracle.transfers import SeededTransfers
from kvcellar.testing.oracle.workers import ours, start_workers

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
    """Scheduler side and the workers of all ranks, in one process, without a thread.

    Args:
        layout: what to run on; says too whether the engine schedules ahead.
        seed: decides when copies end, what is sampled, and which places are checked.
        failure_rate: chance that a copy fails.
        failing_rank: the only one whose copies fail; None for all.
        slow_rank: whose copies take longer than those of the others, if any.
        seconds_per_byte: that a copy is said to take.
        is_v2: whether the engine talks to vLLM's second model runner.

    Attributes:
        scheduler: vLLM's own.
        planners: the core of our planning half; several behind a ``MultiConnector``.
        planner: the first of them.
        device: the first rank's simulated cache.
        all_transfers: what carries out each connector's copies, rank by rank.
        transfers: the first of them.
        runner: all ranks' side of a step.
        loop: the engine's main loop.
        follower: believes the KV events; None if there are none.
    """

    def __init__(  # noqa: PLR0913 - what a run depends on, all by keyword
        self,
        layout: OracleLayout,
        seed: int,
        *,
        failure_rate: float = 0.0,
        failing_rank: int | None = None,
        slow_rank: int | None = None,
        seconds_per_byte: float = 0.0,
        is_v2: bool = False,
    ) -> None:
        self._seed = seed
        self._slow_rank = slow_rank
        self.layout = layout
        init_none_hash(sha256)
        self._hasher = get_request_block_hasher(layout.hash_block_tokens, sha256)
        self._workers, self._devices = start_workers(layout, seed)
        self._worker, self.device = self._workers[0], self._devices[0]
        self._transfers_by_rank = [
            [
                self._seeded_transfers(
                    rank,
                    number,
                    half,
                    failure_rate=failure_rate if failing_rank in (None, rank) else 0.0,
                    seconds_per_byte=seconds_per_byte,
                )
                for number, half in enumerate(ours(worker))
            ]
            for rank, worker in enumerate(self._workers)
        ]
        self.all_transfers = [t for one in self._transfers_by_rank for t in one]
        self.transfers = self.all_transfers[0]
        with model_runner(is_v2=is_v2):
            self.scheduler = self._make_scheduler()
        self._is_v2 = is_v2
        self._connector: Any = self.scheduler.connector
        self._shake_hands()
        self._sides = [half.scheduler_side for half in ours(self._connector)]
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
            self._most_in_flight(has_drafter=bool(num_draft_tokens)),
        )

    def _prompt_of(self, request_id: str) -> Prompt:
        """A request's prefix as the engine knows it now."""
        raise NotImplementedError

    def _most_in_flight(self, *, has_drafter: bool) -> int:
        config = self.layout.vllm_config
        is_async = config.scheduler_config.async_scheduling
        num_stages = config.parallel_config.pipeline_parallel_size
        # Without async scheduling, drafts come back with the step that made them.
        if has_drafter and not is_async:
            num_stages = 1
        return most_in_flight(
            num_stages=num_stages, is_async=is_async, is_v2=self._is_v2
        )

    def _shake_hands(self) -> None:
        """What the engine core does before it serves."""
        num_tensor = self.layout.vllm_config.parallel_config.tensor_parallel_size
        self._connector.set_xfer_handshake_metadata_pp_aware(
            {
                divmod(rank, num_tensor): worker.get_handshake_metadata()
                for rank, worker in enumerate(self._workers)
            }
        )

    def set_slowness(self, slowness: float) -> None:
        """Copies get faster or slower, on one rank less so than on the others.

        Args:
            slowness: chance that a poll ends no further copy.
        """
        for rank, several in enumerate(self._transfers_by_rank):
            is_slow = rank == self._slow_rank
            for transfers in several:
                transfers.slowness = (1 + slowness) / 2 if is_slow else slowness

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
        ratios: dict[int, int] = {}
        for worker_config in self.layout.worker_configs if is_ruled else ():
            ratios |= compressor_states(worker_config)
        aggregator = KVOutputAggregator.from_connector(
            self._connector, len(self._workers)
        )
        return OracleRunner(
            self.planner.layout,
            list(zip(self._workers, self._devices, strict=True)),
            lambda outputs: _merged(aggregator, outputs),
            random.Random(f"{self._seed}/runner"),
            ratios,
            has_drafter=has_drafter,
            is_v2=self._is_v2,
        )

    def _seeded_transfers(
        self, rank: int, number: int, half: CellarConnector, **rates: float
    ) -> SeededTransfers:
        side = half.worker_side
        assert side.device is not None
        assert side.transfers is not None
        side.transfers.close(1.0)
        whose = f"{number}/{rank}" if rank else f"{number}"
        rng = random.Random(f"{self._seed}/copies/{whose}")
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
        for worker in self._workers:
            worker.shutdown()


def _merged(
    aggregator: KVOutputAggregator, outputs: list[ModelRunnerOutput]
) -> ModelRunnerOutput:
    merged = aggregator.aggregate(list(outputs))
    assert merged is not None
    return merged
