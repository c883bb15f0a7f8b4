"""Accounts as JSON, and finding them by what a client knows of its request.

vLLM's HTTP layer puts ``cmpl-`` or ``chatcmpl-`` before a request's id (the client's
``X-Request-Id``, or a random one), and the number of the prompt and a few random
characters behind it.
Source: vLLM 0.32, entrypoints/serve/engine/serving.py and v1/engine/input_processor.py.
"""

from typing import Any

from kvcellar.core.account import Account, Stretch
from kvcellar.core.ledger import Ledger

MOST_FOUND = 32


def find_accounts(ledger: Ledger, request_id: str) -> list[Account]:
    """Accounts of a request, the latest first."""
    found = []
    for account in reversed(_recent(ledger)):
        if is_same_request(account.request_id, request_id):
            found.append(account)
            if len(found) == MOST_FOUND:
                break
    return found


def is_same_request(engine_id: str, asked_id: str) -> bool:
    """Whether the engine's id of a request belongs to the id that a client knows."""
    _, _, without_prefix = engine_id.partition("-")
    return any(
        known == asked_id or known.startswith(f"{asked_id}-")
        for known in (engine_id, without_prefix)
    )


def account_as_json(account: Account, now: float) -> dict[str, Any]:
    """An account in plain types; times as seconds ago."""
    return {
        "request_id": account.request_id,
        "seconds_ago": now - account.at,
        "prompt_tokens": account.prompt_tokens,
        "device_tokens": account.device_tokens,
        "host_tokens": account.host_tokens,
        "computed_tokens": account.computed_tokens,
        "misses": [_stretch(stretch, account.at) for stretch in account.misses],
    }


def _stretch(stretch: Stretch, at: float) -> dict[str, Any]:
    values: dict[str, Any] = {
        "first_token": stretch.first_token,
        "end_token": stretch.end_token,
        "reason": stretch.reason.value,
    }
    if stretch.departure is not None:
        values["seconds_before"] = at - stretch.departure.at
        values["for_request"] = stretch.departure.request_id
    return values


def _recent(ledger: Ledger) -> tuple[Account, ...]:
    """A copy, although the planner's thread may be adding to it."""
    while True:
        try:
            return tuple(ledger.recent)
        except RuntimeError:  # it was added to meanwhile
            continue
