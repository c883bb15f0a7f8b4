"""Accounts are found by what a client knows, and told in plain types."""

import json

import pytest

from kvcellar.core.account import Account, Stretch
from kvcellar.core.ledger import Ledger
from kvcellar.index.departures import Departure
from kvcellar.reasons import MissReason
from kvcellar.status.accounts import (
    MOST_FOUND,
    account_as_json,
    find_accounts,
    is_same_request,
)


@pytest.mark.parametrize(
    ("engine_id", "asked", "is_same"),
    [
        ("chatcmpl-abc-1f2e3d4c", "chatcmpl-abc", True),
        ("chatcmpl-abc-1f2e3d4c", "abc", True),
        ("cmpl-a-b-0-1f2e3d4c", "a-b", True),
        ("cmpl-a-b-0-1f2e3d4c", "cmpl-a-b-0", True),
        ("cmpl-a-b-0-1f2e3d4c", "cmpl-a-b-0-1f2e3d4c", True),
        ("plain", "plain", True),
        ("chatcmpl-abcd-1f2e3d4c", "abc", False),
        ("chatcmpl-abc-1f2e3d4c", "chatcmpl", True),
        ("chatcmpl-abc-1f2e3d4c", "1f2e3d4c", False),
        ("chatcmpl-abc-1f2e3d4c", "", False),
    ],
)
def test_ids_of_clients_and_of_the_engine(engine_id, asked, is_same):
    """Prefixes and suffixes that vLLM adds make no difference; other ids do."""
    assert is_same == is_same_request(engine_id, asked)


def test_the_latest_come_first_and_not_all_of_them():
    """A client that sends one id a hundred times sees its latest requests."""
    ledger = Ledger()
    for number in range(100):
        ledger.enter(Account(f"cmpl-x-{number}-ab", float(number), 0, 0, 0, ()))
    found = find_accounts(ledger, "x")
    assert MOST_FOUND == len(found)
    assert [99.0, 98.0] == [account.at for account in found[:2]]
    assert [] == find_accounts(ledger, "y")


def test_an_account_survives_json():
    """Times are spans, and a departure says when and for whom."""
    gone = Departure(MissReason.EVICTED, 60.0, "other")
    stretches = (
        Stretch(30, 90, MissReason.EVICTED, gone),
        Stretch(90, 100, MissReason.LAST_BOUNDARY),
    )
    account = Account("r", 100.0, 100, 10, 20, stretches)
    assert json.loads(json.dumps(account_as_json(account, 130.0))) == {
        "request_id": "r",
        "seconds_ago": 30.0,
        "prompt_tokens": 100,
        "device_tokens": 10,
        "host_tokens": 20,
        "computed_tokens": 70,
        "misses": [
            {
                "first_token": 30,
                "end_token": 90,
                "reason": "evicted",
                "seconds_before": 40.0,
                "for_request": "other",
            },
            {"first_token": 90, "end_token": 100, "reason": "last_boundary"},
        ],
    }
