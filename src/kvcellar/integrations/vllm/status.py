"""What the engine's process says of itself when it is asked on its socket."""

import logging
import os
import time
from typing import TYPE_CHECKING, Any

import kvcellar
from kvcellar.integrations.vllm.compat import engine_number
from kvcellar.integrations.vllm.scheduler_counts import read_all
from kvcellar.integrations.vllm.totals import copies_state, device_state, read_totals
from kvcellar.status.accounts import account_as_json, find_accounts
from kvcellar.status.rates import WINDOW_SECONDS, RateWindow
from kvcellar.status.run_folder import own_run_folder
from kvcellar.status.server import Answer, Question, StatusServer
from kvcellar.status.snapshot import fixed_facts, planner_state
from kvcellar.status.steady import read_steadily

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm.config import VllmConfig

    from kvcellar.core.offloader import Offloader
    from kvcellar.integrations.vllm.jobs import Jobs

logger = logging.getLogger("vllm.kvcellar.status")


class EngineStatus:
    """Answers questions about one engine, in the status server's thread.

    Args:
        offloader: the engine's planner, which the engine's thread changes.
        jobs: its jobs in flight.
        num_changes: goes up around every change; odd while one is under way.
        facts: what does not change and is answered as it is.
    """

    def __init__(
        self,
        offloader: "Offloader",
        jobs: "Jobs",
        num_changes: "Callable[[], int]",
        facts: dict[str, Any],
    ) -> None:
        self._offloader = offloader
        self._jobs = jobs
        self._num_changes = num_changes
        self._facts = facts | fixed_facts(offloader)
        self._started = time.monotonic()
        self._rates = RateWindow()

    def answer(self, question: Question) -> Answer:
        """``{"ask": "status"}``, or ``{"ask": "why", "request_id": ...}``.

        A status is asked with ``"history": true`` for how the totals grew lately.
        """
        asked = question.get("ask")
        if asked == "status":
            return self._status(with_history=question.get("history") is True)
        if asked == "why":
            return self._why(str(question.get("request_id", "")))
        return {"error": f"unknown question {asked!r}; ask for status or why"}

    def tick(self) -> None:
        """Note what the totals are now; about once a second."""
        now, totals = time.monotonic(), read_steadily(self._num_changes, self._totals)
        if totals is not None:
            self._rates.note(now, totals)

    def _status(self, *, with_history: bool) -> Answer:
        seen = read_steadily(self._num_changes, self._read)
        if seen is None:
            return {"error": "the engine is too busy to be looked at; ask again"}
        now = time.monotonic()
        rates = self._rates.per_second(now, seen["totals"])
        history = {"history": self._rates.history(self._started)}
        return {
            **self._facts,
            "uptime_seconds": now - self._started,
            **seen,
            "rates": {"window_seconds": WINDOW_SECONDS, "per_second": rates},
            **(history if with_history else {}),
        }

    def _why(self, request_id: str) -> Answer:
        found = find_accounts(self._offloader.ledger, request_id)
        now = time.monotonic()  # the planner's clock
        return {"accounts": [account_as_json(account, now) for account in found]}

    def _read(self) -> dict[str, Any]:
        counters = read_all(self._offloader, self._jobs)
        state = planner_state(self._offloader)
        state["tiers"]["device"] = device_state(self._jobs)
        return {
            **state,
            "copies": copies_state(self._jobs),
            "counters": counters,
            "totals": read_totals(counters, self._offloader, self._jobs),
        }

    def _totals(self) -> dict[str, float]:
        counters = read_all(self._offloader, self._jobs)
        return read_totals(counters, self._offloader, self._jobs)


def engine_facts(vllm_config: "VllmConfig", num_ranks: int) -> dict[str, Any]:
    """Which engine this is."""
    return {
        "kvcellar_version": kvcellar.__version__,
        "model": vllm_config.model_config.model,
        "served_model": str(vllm_config.model_config.served_model_name or ""),
        "engine": engine_number(vllm_config),
        "num_ranks": num_ranks,
        "process_id": os.getpid(),
    }


def start_status(status: EngineStatus) -> StatusServer | None:
    """Listen on a socket of this user's; without one, a warning says why."""
    try:
        return StatusServer(own_run_folder(), status.answer, status.tick)
    except OSError as cause:
        logger.warning(
            "kvcellar: kvcellar why and top cannot look into this engine: %s", cause
        )
        return None
