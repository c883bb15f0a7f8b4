"""What ranks tell each other at start, between threads and between processes."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("vllm")

from kvcellar.errors import ConfigError, IncompatibleError
from kvcellar.integrations.vllm.exchange import (
    AloneExchange,
    gather_or_refuse,
    open_exchange,
)
from kvcellar.testing.exchange import local_exchanges, run_together

RANK_PROCESS = Path(__file__).parents[2] / "support" / "rank_process.py"


def test_one_rank_asks_nobody():
    """No process group is needed, or looked for."""
    exchange = open_exchange(SimpleNamespace(world_size=1))
    assert isinstance(exchange, AloneExchange)
    assert (0, 1, ["x"]) == (
        exchange.rank,
        exchange.num_ranks,
        exchange.gather("name", "x"),
    )


def test_all_ranks_get_all_values_in_rank_order():
    """Whoever comes first, and as often as they like."""

    def talk(exchange):
        first = exchange.gather("first", {"rank": exchange.rank})
        return first, exchange.gather("second", -exchange.rank)

    ends = local_exchanges(3)
    answers = run_together([lambda end=end: talk(end) for end in ends])
    assert [([{"rank": r} for r in range(3)], [0, -1, -2])] * 3 == answers


def test_ranks_that_ask_for_different_things_are_refused():
    """One of them has another release or other settings."""
    ends = local_exchanges(2)
    with pytest.raises(IncompatibleError, match=r"rank \d exchanges '[ab]'"):
        run_together(
            [lambda e=e, n=n: e.gather(n, 0) for e, n in zip(ends, "ab", strict=True)]
        )


def test_a_rank_that_cannot_start_ends_all_others_too():
    """With its own reason everywhere; nobody waits for one that has raised."""

    def make(rank):
        if rank == 1:
            raise ConfigError("chunk_tokens=33 does not fit this model")
        return rank

    def start(end, errors):
        try:
            gather_or_refuse(end, "start", lambda: make(end.rank))
        except Exception as cause:  # noqa: BLE001 - it is what the test looks at
            errors[end.rank] = cause

    errors = {}
    run_together([lambda e=e: start(e, errors) for e in local_exchanges(3)])
    assert isinstance(errors[1], ConfigError)
    for rank in (0, 2):
        assert isinstance(errors[rank], IncompatibleError)
        assert "rank 1 cannot start: chunk_tokens=33" in str(errors[rank])


def test_processes_in_groups_get_all_values_in_rank_order(tmp_path):
    """Stage by stage: as the keys of the engine's handshake are sorted."""
    command = [sys.executable, RANK_PROCESS]
    processes = [
        subprocess.Popen(
            [*command, str(rank), tmp_path / "store"], stdout=subprocess.PIPE, text=True
        )
        for rank in range(4)
    ]
    try:
        told = [process.communicate(timeout=280)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    everybody = [f"rank {rank}" for rank in range(4)]
    assert [[rank, 4, everybody] for rank in range(4)] == [json.loads(t) for t in told]
