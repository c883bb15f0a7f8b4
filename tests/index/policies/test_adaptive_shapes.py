"""On streams of many shapes `adaptive` finds as much as LRU, and often more."""

import itertools
import random
from array import array
from functools import cache

import pytest
from layouts import FULL, WINDOW, group, layout_of

from kvcellar.config import Settings
from kvcellar.replay.configuration import Configuration, replay
from kvcellar.replay.trace import Trace, TraceRequest

BLOCK = 512
NOISE = 0.003
NUM_REQUESTS = 1500
PLAIN = layout_of(group(0, FULL, BLOCK, None, 100), hash_tokens=BLOCK, alignment=BLOCK)
WINDOWED = layout_of(
    group(0, FULL, BLOCK, None, 100),
    group(1, WINDOW, BLOCK, BLOCK + 1, 100),
    hash_tokens=BLOCK,
    alignment=BLOCK,
)
LAYOUTS = {"plain": PLAIN, "windowed": WINDOWED}


def prompts_of(pick, num_sessions, num_blocks=6):
    """Sessions of one length, asked for as ``pick`` says."""
    return [
        [session * num_blocks + i for i in range(num_blocks)]
        for session in (pick(n) % num_sessions for n in range(NUM_REQUESTS))
    ]


def growing(num_sessions):
    """Agents' sessions: each request is the last one of its session and a bit more."""
    ids, sessions = itertools.count(), [[] for _ in range(num_sessions)]
    prompts = []
    rng = random.Random(2)
    for _ in range(NUM_REQUESTS):
        number = rng.randrange(num_sessions)
        if len(sessions[number]) > 15:
            sessions[number] = []
        sessions[number] = [*sessions[number], next(ids)]
        prompts.append(sessions[number])
    return prompts


def zipf(num_sessions):
    rng = random.Random(1)
    weights = [1 / (n + 1) for n in range(num_sessions)]
    picks = rng.choices(range(num_sessions), weights, k=NUM_REQUESTS)
    return prompts_of(lambda n: picks[n], num_sessions)


def recent():
    rng = random.Random(3)
    return prompts_of(lambda n: n // 3 + rng.randint(0, 4), 10**6)


SHAPES = {
    "loop": lambda: prompts_of(lambda n: n, 60),
    "scan": lambda: prompts_of(lambda n: n % 5 if n % 4 == 0 else n + 5, 10**6),
    "zipf": lambda: zipf(200),
    "shifting": lambda: prompts_of(lambda n: n // 250 * 20 + n * 7 % 20, 10**6),
    "recent": recent,
    "growing": lambda: growing(20),
}


@cache
def trace_of(shape):
    requests = [
        TraceRequest(float(n), BLOCK * len(ids) + 1, 1, array("q", ids))
        for n, ids in enumerate(SHAPES[shape]())
    ]
    return Trace(BLOCK, requests)


def hit_ratio(shape, layout, mode, num_chunks, policy):
    settings = Settings(
        host_memory_bytes=100 * num_chunks, mode=mode, eviction_policy=policy
    )
    rows = 60 if mode == "lazy" else None
    return replay(trace_of(shape), Configuration(layout, rows, settings)).hit_ratio


@pytest.mark.parametrize("mode", ["eager", "lazy"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_adaptive_is_never_below_lru_by_more_than_noise(shape, layout, mode):
    """In a third of what comes back, in two thirds of it, and in more than all."""
    for num_chunks in (40, 120, 400):
        cell = shape, LAYOUTS[layout], mode, num_chunks
        ours, base = (hit_ratio(*cell, policy) for policy in ("adaptive", "lru"))
        assert ours >= base - NOISE, f"{num_chunks} chunks: {ours} against {base}"
