"""All accounts: totals by source and reason, the latest ones, the busiest prefixes."""

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvcellar.core.account import Account
from kvcellar.reasons import MissReason

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_ACCOUNTS = 4096  # the latest, for `kvcellar why`
MOST_PREFIXES = 256
HALVED_AFTER = 1024  # counts; what was served before weighs half


@dataclass(slots=True)
class BusyPrefix:
    """A prefix that requests were resumed behind.

    Attributes:
        num_tokens: its length.
        num_requests: requests that were served exactly this much.
        host_tokens: tokens of it that were loaded for them, all together.
        weight: tokens it served, those of long ago less; what it is ranked by.
    """

    num_tokens: int
    num_requests: int = 0
    host_tokens: int = 0
    weight: float = 0.0

    @property
    def served_tokens(self) -> int:
        """Tokens that nobody had to compute."""
        return self.num_tokens * self.num_requests


class BusyPrefixes:
    """The prefixes that serve most these days, among so many that were seen lately.

    Every so many counts all weights are halved, so a prefix that was busy yesterday
    makes room for one that is busy now.
    """

    def __init__(self, most: int = MOST_PREFIXES) -> None:
        self._most = most
        self._num_counted = 0
        self.by_key: dict[bytes, BusyPrefix] = {}

    def count(self, key: bytes, num_tokens: int, host_tokens: int) -> None:
        """A request was served this prefix."""
        prefix = self.by_key.get(key)
        if prefix is None:
            prefix = self.by_key[key] = BusyPrefix(num_tokens)
        prefix.num_requests += 1
        prefix.host_tokens += host_tokens
        prefix.weight += num_tokens
        self._num_counted += 1
        if self._num_counted % HALVED_AFTER == 0:
            for counted in self.by_key.values():
                counted.weight /= 2
        if len(self.by_key) > 2 * self._most:
            self.by_key = dict(self.busiest(self._most))

    def busiest(self, most: int) -> list[tuple[bytes, BusyPrefix]]:
        """Those that returned before those that served once; the heaviest first."""
        by_weight = sorted(self.by_key.items(), key=_is_returning_then_weight)
        return by_weight[:most]


def _is_returning_then_weight(item: tuple[bytes, BusyPrefix]) -> tuple[bool, float]:
    """A key to sort by: a conversation that grows is resumed at each place once."""
    prefix = item[1]
    return prefix.num_requests == 1, -prefix.weight


class Ledger:
    """Adds accounts up.

    Attributes:
        device_tokens: prompt tokens that were on the device.
        host_tokens: prompt tokens loaded from host memory.
        missed_tokens: prompt tokens computed, by reason.
        num_requests: accounts by what served a part of them.
        recent: the latest accounts, oldest first.
        prefixes: what was served most.
        on_account: told of each account, if set.
    """

    def __init__(self) -> None:
        self.device_tokens = 0
        self.host_tokens = 0
        self.missed_tokens = dict.fromkeys(MissReason, 0)
        self.num_requests = dict.fromkeys(("host", "device", "nothing"), 0)
        self.recent: deque[Account] = deque(maxlen=MOST_ACCOUNTS)
        self.prefixes = BusyPrefixes()
        self.on_account: Callable[[Account], None] | None = None

    @property
    def computed_tokens(self) -> int:
        """Prompt tokens that were computed."""
        return sum(self.missed_tokens.values())

    def enter(self, account: Account) -> None:
        """Add one request's account."""
        self.device_tokens += account.device_tokens
        self.host_tokens += account.host_tokens
        for stretch in account.misses:
            self.missed_tokens[stretch.reason] += stretch.num_tokens
        served_by = "device" if account.device_tokens else "nothing"
        self.num_requests["host" if account.host_tokens else served_by] += 1
        self.recent.append(account)
        if self.on_account is not None:
            self.on_account(account)
