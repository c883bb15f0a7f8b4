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
NUM_REQUESTS = 1200
NUM_LEARNT = 3000  # where the orders differ little, it takes longer to tell
PLAIN = layout_of(group(0, FULL, BLOCK, None, 100), hash_tokens=BLOCK, alignment=BLOCK)
WINDOWED = layout_of(
    group(0, FULL, BLOCK, None, 100),
    group(1, WINDOW, BLOCK, BLOCK + 1, 100),
    hash_tokens=BLOCK,
    alignment=BLOCK,
)
LAYOUTS = {"plain": PLAIN, "windowed": WINDOWED}


def prompts_of(pick, num_sessions, num_requests=NUM_REQUESTS):
    """Sessions of six blocks each, asked for as ``pick`` says."""
    sessions = (pick(n) % num_sessions for n in range(num_requests))
    return [[session * 6 + i for i in range(6)] for session in sessions]


def growing(num_sessions):
    """Agents' sessions: each request is the last one of its session and a bit more."""
    ids, sessions = itertools.count(), [[] for _ in range(num_sessions)]
    prompts = []
    rng = random.Random(2)
    for _ in range(NUM_LEARNT):
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
    "shifting": lambda: prompts_of(
        lambda n: n // 250 * 20 + n * 7 % 20, 10**6, NUM_LEARNT
    ),
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


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("layout", "mode", "num_chunks"),
    [
        ("plain", "eager", 40),
        ("plain", "lazy", 120),
        ("windowed", "eager", 120),
        ("windowed", "lazy", 40),
    ],
)
def test_adaptive_is_never_below_lru_by_more_than_noise(
    shape, layout, mode, num_chunks
):
    """Where a part of what comes back fits, at once or behind a device."""
    cell = shape, LAYOUTS[layout], mode, num_chunks
    ours, base = (hit_ratio(*cell, policy) for policy in ("adaptive", "lru"))
    assert ours >= base - NOISE


def test_adaptive_finds_what_lru_gives_away():
    """Skewed sessions, and hot ones in a scan."""
    for shape in ("zipf", "scan"):
        cell = shape, PLAIN, "eager", 40
        assert hit_ratio(*cell, "adaptive") > hit_ratio(*cell, "lru") + 0.1
