"""``check_ledger`` verifies that every account and the totals add up; for tests."""

from kvcellar.core.account import Account
from kvcellar.core.ledger import Ledger
from kvcellar.errors import InvariantError


def check_ledger(ledger: Ledger) -> None:
    """Verify each account that is still remembered, and the totals while all are.

    Raises:
        InvariantError: something does not add up.
    """
    for account in ledger.recent:
        _check_account(account)
    if len(ledger.recent) == ledger.recent.maxlen:
        return
    for name, total in (
        ("device_tokens", ledger.device_tokens),
        ("host_tokens", ledger.host_tokens),
        ("computed_tokens", ledger.computed_tokens),
    ):
        added = sum(getattr(account, name) for account in ledger.recent)
        if added != total:
            raise InvariantError(f"{name}: accounts add up to {added}, not {total}")
    if len(ledger.recent) != sum(ledger.num_requests.values()):
        raise InvariantError("there are not as many accounts as requests counted")


def _check_account(account: Account) -> None:
    """Served tokens first, then stretches that adjoin, up to the prompt's end."""
    position = account.device_tokens + account.host_tokens
    if min(account.device_tokens, account.host_tokens) < 0:
        raise InvariantError(f"{account}: serves fewer than no tokens")
    for stretch in account.misses:
        if stretch.first_token != position or stretch.num_tokens <= 0:
            raise InvariantError(f"{account}: {stretch} does not begin at {position}")
        position = stretch.end_token
    if position != account.prompt_tokens:
        raise InvariantError(f"{account}: ends at {position}")
