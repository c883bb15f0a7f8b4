"""What the planner itself costs: decisions about stores, and look-ups."""

import functools
import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvcellar.config import Settings
from kvcellar.core import actions, events
from kvcellar.core.offloader import Offloader
from kvcellar.layout.groups import CacheLayout
from kvcellar.layout.host import plan_geometry

NUM_PROMPTS = 5
PROMPT_TOKENS = 65_536
STEP_TOKENS = 8192
_KEY_BYTES = 32
_SPARE = 2  # of the memory that the prompts need


@dataclass(frozen=True, slots=True)
class PlannerSpeed:
    """Medians over prompts of ``PROMPT_TOKENS``.

    Attributes:
        store_seconds_per_chunk: planning the stores of a step, by its chunks.
        look_up_seconds: asking about a stored prompt for the first time.
        repeat_seconds: asking again, as the engine does while it waits for room.
    """

    store_seconds_per_chunk: float
    look_up_seconds: float
    repeat_seconds: float


class _Tables:
    """Block tables in which every block is there."""

    def block_ids(self, group_id: int, indices: range) -> list[int]:
        return list(range(indices.start + 1, indices.stop + 1))

    def is_kept(self, group_id: int, index: int) -> bool:
        return True


def measure_planner(layout: CacheLayout) -> PlannerSpeed:
    """Plan stores and look-ups of long prompts; no byte is copied."""
    num_tokens = max(PROMPT_TOKENS // layout.chunk_tokens, 1) * layout.chunk_tokens
    planner = _planner(layout, num_tokens * NUM_PROMPTS)
    stores: list[float] = []
    looked_up: list[float] = []
    repeated: list[float] = []
    for number in range(NUM_PROMPTS):
        hashes = _hashes(layout, num_tokens, number)
        gc.collect()
        stores += _store(planner, f"stored-{number}", hashes, num_tokens)
        asked = [bytes(bytearray(key)) for key in hashes]  # as if never hashed before
        event = events.LookUp(f"asked-{number}", asked, num_tokens + 1, 0)
        for laps in (looked_up, repeated):
            laps.append(_seconds(functools.partial(planner.handle, event, 0.0)))
    return PlannerSpeed(*map(statistics.median, (stores, looked_up, repeated)))


def _planner(layout: CacheLayout, num_tokens: int) -> Offloader:
    """One with room for the tokens; memory is only a number here."""
    cells = range(len(layout.groups))
    per_chunk = sum(layout.cell_bytes(position) for position in cells)
    num_bytes = per_chunk * (num_tokens // layout.chunk_tokens) * _SPARE
    return Offloader(layout, plan_geometry(layout, num_bytes), Settings())


def _hashes(layout: CacheLayout, num_tokens: int, seed: int) -> list[bytes]:
    num_keys = num_tokens // layout.hash_block_tokens
    first = seed * num_keys
    return [(first + i).to_bytes(_KEY_BYTES, "big") for i in range(num_keys)]


def _store(
    planner: Offloader, request_id: str, hashes: Sequence[bytes], num_tokens: int
) -> list[float]:
    """Seconds per chunk of each step; every job succeeds at once."""
    laps, tables = [], _Tables()
    for first in range(0, num_tokens, STEP_TOKENS):
        end = min(first + STEP_TOKENS, num_tokens)
        event = events.TokensComputed(
            request_id, hashes, num_tokens, first, end, tables, (end,)
        )
        started = time.perf_counter()
        planned = planner.handle(event, 0.0)
        seconds = time.perf_counter() - started
        laps.append(seconds * planner.layout.chunk_tokens / (end - first))
        for action in planned:
            if isinstance(action, actions.Store | actions.Move):
                planner.handle(events.JobDone(action.job_id), 0.0)
    planner.handle(events.RequestFinished(request_id), 0.0)
    return laps


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
