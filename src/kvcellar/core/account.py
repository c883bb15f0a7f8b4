"""Where the tokens of one prompt came from, to the last token.

    | device | host | replayed | declined | ... | never seen | last boundary |
    0                                                                prompt's end

A draft is made when a request is admitted, from what was held then. It becomes an
account when the request's first step is planned, since only then is it certain where
computing begins.
"""

from dataclasses import dataclass
from typing import NamedTuple

from kvcellar.index.departures import Departure
from kvcellar.reasons import MissReason


class Stretch(NamedTuple):
    """Tokens ``[first_token, end_token)`` that were computed, and why.

    Attributes:
        departure: when the first of them left, and for whom; None if they did not.
    """

    first_token: int
    end_token: int
    reason: MissReason
    departure: Departure | None = None

    @property
    def num_tokens(self) -> int:
        """How many tokens these are."""
        return self.end_token - self.first_token


@dataclass(frozen=True, slots=True)
class Account:
    """One request's prompt: device, host and missed tokens add up to all of it.

    Attributes:
        at: when it began to be computed, in seconds on the planner's clock.
        device_tokens: tokens that were on the device, or that another connector
            brought there.
        host_tokens: tokens loaded from host memory.
        misses: what was computed, from the first such token to the prompt's end.
    """

    request_id: str
    at: float
    prompt_tokens: int
    device_tokens: int
    host_tokens: int
    misses: tuple[Stretch, ...]

    @property
    def computed_tokens(self) -> int:
        """Tokens that were computed."""
        return self.prompt_tokens - self.device_tokens - self.host_tokens


class Draft:
    """What is known of a prompt when its request is admitted.

    Args:
        local_tokens: prefix that the device holds.
        loaded_tokens: tokens beyond it that are being loaded.
    """

    def __init__(self, local_tokens: int, loaded_tokens: int) -> None:
        self.local_tokens = local_tokens
        self.loaded_tokens = loaded_tokens
        self._end = local_tokens + loaded_tokens
        self._stretches: list[Stretch] = []

    def add(
        self, end_token: int, reason: MissReason, departure: Departure | None = None
    ) -> None:
        """What is not explained before ``end_token`` has this reason."""
        if end_token > self._end:
            stretch = Stretch(self._end, end_token, reason, departure)
            self._stretches.append(stretch)
            self._end = end_token

    def close(
        self, request_id: str, now: float, first_token: int, prompt_tokens: int
    ) -> Account:
        """The account, now that computing begins at ``first_token``."""
        self.add(prompt_tokens, MissReason.LAST_BOUNDARY)
        served = min(first_token, prompt_tokens)
        host_tokens = min(self.loaded_tokens, max(served - self.local_tokens, 0))
        given = min(self.local_tokens + self.loaded_tokens, prompt_tokens)
        misses = [Stretch(served, given, MissReason.REPLAYED)] if served < given else []
        for stretch in self._stretches:
            first = max(stretch.first_token, served)
            end = min(stretch.end_token, prompt_tokens)
            if first < end:
                misses.append(stretch._replace(first_token=first, end_token=end))
        return Account(
            request_id,
            now,
            prompt_tokens,
            served - host_tokens,
            host_tokens,
            tuple(misses),
        )
