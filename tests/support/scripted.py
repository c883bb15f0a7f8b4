"""Exact prompts on vLLM's real scheduler with our real connector, one after another.

The oracle's parts without its dice: a test says what is asked, when the device forgets,
and when copies end. Every byte that a step reads is still checked.
"""

import itertools
import random
from dataclasses import dataclass, field
from typing import Any

from vllm.sampling_params import SamplingParams
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from kvcellar.testing.oracle.oracle import Oracle
from kvcellar.testing.oracle.workload import OracleRequest
from kvcellar.transfer.jobs import Direction, JobResult

MOST_STEPS = 5000
FIRST_PROMPT_TOKEN = 4  # the runner samples tokens below this


def prompt(num_tokens, seed=0):
    """A prompt that shares nothing with one of another seed."""
    rng = random.Random(seed)
    return [rng.randrange(FIRST_PROMPT_TOKEN, 500) for _ in range(num_tokens)]


@dataclass
class Answer:
    """What became of one request.

    Attributes:
        tokens: prompt and answer.
        local_tokens: prefix that the device held when it was admitted last.
        loaded_tokens: tokens loaded from host memory after that.
        num_look_ups: times the connector was asked.
    """

    request_id: str
    tokens: list
    request: Any = field(repr=False)
    local_tokens: int = 0
    loaded_tokens: int = 0
    num_look_ups: int = 0

    @property
    def hit_tokens(self):
        return self.local_tokens + self.loaded_tokens


class Scripted(Oracle):
    """An engine that does what a test tells it.

    Attributes:
        answers: by request id.
        jobs: every job handed to the copies, in order.
        stats: the engine's own statistics, one per step.
    """

    def __init__(self, layout, **options):
        super().__init__(layout, seed=0, check_every=8, **options)
        self.transfers.slowness = 0.0
        self.answers = {}
        self.jobs = []
        self.stats = []
        self.side = self.scheduler.connector.scheduler_side
        self._ids = itertools.count(1)
        self._listen()

    # -- asking --------------------------------------------------------------------

    def ask(self, tokens, **options):
        """Start a request, let it end and its stores too."""
        answer = self.start(tokens, **options)
        self.settle()
        return answer

    def start(
        self, tokens, *, new_tokens=1, skip=False, content=None, params=None, **fields
    ):
        """Hand a request to the scheduler.

        Args:
            params: its ``kv_transfer_params``.
            content: tokens that stand for what is in the cache, where the token ids
                alone do not say it (pictures behind equal placeholders).
            fields: of the engine's request (``cache_salt``, ``lora_request`` ...).
        """
        request_id = f"r{next(self._ids)}"
        request = Request(
            request_id=request_id,
            prompt_token_ids=list(tokens),
            sampling_params=SamplingParams(
                max_tokens=new_tokens,
                ignore_eos=True,
                skip_reading_prefix_cache=skip,
                extra_args={"kv_transfer_params": params} if params else None,
            ),
            pooling_params=None,
            block_hasher=self._hasher,
            **fields,
        )
        wanted = OracleRequest(request_id, list(content or tokens), new_tokens)
        wanted.identity = hash((fields.get("cache_salt"), _adapter_of(fields))) % 2**31
        self._live[request_id] = wanted
        answer = Answer(request_id, wanted.tokens, request)
        self.answers[request_id] = answer
        self.scheduler.add_request(request)
        return answer

    def cancel(self, answer):
        """The client goes away."""
        self.scheduler.finish_requests(
            [answer.request_id], RequestStatus.FINISHED_ABORTED
        )
        del self._live[answer.request_id]

    # -- time ----------------------------------------------------------------------

    def step(self, count=1):
        for _ in range(count):
            super().step()

    def settle(self):
        """Step until no request and no copy is left, and no step is under way."""
        self._step_until(lambda: not self.loop.has_work)

    def end(self, answer):
        """Step until one request has ended; copies may still be under way."""
        self._step_until(lambda: answer.request_id not in self._live)

    def stall_copies(self):
        """No copy ends until ``release_copies``."""
        self.transfers.slowness = 1.0

    def release_copies(self):
        self.transfers.slowness = 0.0

    def fail_next_copy(self):
        """The copy that is carried out next fails."""
        carry_out = self.transfers._carry_out

        def fail(job, fence):
            del fence
            self.transfers._carry_out = carry_out
            return JobResult(job.job_id, job.direction, 0, 0.0, "planted fault")

        self.transfers._carry_out = fail

    def _step_until(self, is_done):
        for _ in range(MOST_STEPS):
            if is_done():
                return
            self.step()
        raise AssertionError(f"not done after {MOST_STEPS} steps")

    def take_pictures(self, num_tokens=1000):
        """Let prompts hold pictures of so many tokens; nothing looks at them."""
        self.scheduler.max_num_encoder_input_tokens = num_tokens
        self.scheduler.encoder_cache_manager = EncoderCacheManager(num_tokens)

    # -- memory --------------------------------------------------------------------

    def drop_device(self):
        """Clear the device's prefix cache; host memory stays."""
        assert self.scheduler.reset_prefix_cache()

    def forget_on_device(self, keep_tokens=0):
        """The device evicts what it can find, though copies still use its blocks.

        Args:
            keep_tokens: prefix of every request's first group that stays.
        """
        kept = set()
        for answer in self.answers.values() if keep_tokens else ():
            for key in answer.request.block_hashes[
                : keep_tokens // self.layout.hash_block_tokens
            ]:
                kept |= {b.block_id for b in self.pool.get_cached_block(key, [0]) or ()}
        self.pool.evict_blocks(set(range(1, self.pool.num_gpu_blocks)) - kept)

    def reset_all(self):
        """Clear device and host; what the engine answers."""
        is_done = self.scheduler.reset_prefix_cache(reset_connector=True)
        self.runner.epoch += is_done
        return is_done

    @property
    def pool(self):
        return self.scheduler.kv_cache_manager.block_pool

    @property
    def index(self):
        return self.planner.index

    def held_chunks(self, answer):
        """Depths of the request's chunks that can be loaded."""
        stride, hashes = self.index.hashes_per_chunk, answer.request.block_hashes
        nodes = self.index.nodes
        ends = range(stride, len(hashes) + 1, stride)
        return [end // stride for end in ends if hashes[end - 1] in nodes]

    def copies(self, direction):
        """(layout position, device blocks, host blocks) of all jobs of one kind."""
        return [
            (c.position, c.device_blocks.tolist(), c.host_blocks.tolist())
            for job in self.jobs
            if job.direction is Direction(direction)
            for c in job.copies
        ]

    def num_copied(self, direction):
        """Blocks copied so far, by layout position."""
        counts = dict.fromkeys(range(len(self.planner.layout.groups)), 0)
        for position, blocks, _ in self.copies(direction):
            counts[position] += len(blocks)
        return counts

    # -- listening -----------------------------------------------------------------

    def _make_scheduler(self):
        """The oracle's, with statistics."""
        layout = self.layout
        return Scheduler(
            vllm_config=layout.vllm_config,
            kv_cache_config=layout.scheduler_config,
            structured_output_manager=StructuredOutputManager(layout.vllm_config),
            block_size=layout.scheduler_block_tokens,
            hash_block_size=layout.hash_block_tokens,
            log_stats=True,
        )

    def _listen(self):
        """Note what passes between engine, connector and copies."""
        look_up, allocated = self.side.look_up, self.side.allocated
        submit, make_stats = self.transfers.submit, self.scheduler.make_stats

        def noted_look_up(request, local_tokens):
            answer = self.answers[request.request_id]
            answer.local_tokens, answer.loaded_tokens = local_tokens, 0
            answer.num_look_ups += 1
            return look_up(request, local_tokens)

        def noted_allocated(request, external_tokens):
            self.answers[request.request_id].loaded_tokens += external_tokens
            return allocated(request, external_tokens)

        def noted_submit(job):
            self.jobs.append(job)
            return submit(job)

        def noted_stats(*args, **kwargs):
            stats = make_stats(*args, **kwargs)
            self.stats.append(stats)
            return stats

        self.side.look_up, self.side.allocated = noted_look_up, noted_allocated
        self.transfers.submit, self.scheduler.make_stats = noted_submit, noted_stats


def is_waiting_for_load(answer):
    return answer.request.status is RequestStatus.WAITING_FOR_REMOTE_KVS


def _adapter_of(fields):
    lora = fields.get("lora_request")
    return (lora.lora_name, lora.lora_path) if lora else None
