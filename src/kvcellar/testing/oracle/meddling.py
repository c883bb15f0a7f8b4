"""Answers between connector and scheduler that other parties change.

A second connector beside ours may not be ready to answer, and then ours is asked again;
the engine may round what we promise down. Both are legal at any time.
"""

import random
from typing import Any

DELAY_RATE = 0.04
SHORTEN_RATE = 0.06


class Meddler:
    """Stands before a connector's look-up.

    Args:
        connector: the scheduler's.
        rng: the dice.
        alignment_tokens: what is promised is a multiple of this.

    Attributes:
        num_delayed: look-ups answered with "ask again".
        num_shortened: promises of which the engine took less, or nothing.
    """

    def __init__(
        self, connector: Any, rng: random.Random, alignment_tokens: int
    ) -> None:
        self._look_up = connector.get_num_new_matched_tokens
        connector.get_num_new_matched_tokens = self._meddle
        self._rng = rng
        self._alignment_tokens = alignment_tokens
        self.num_delayed = 0
        self.num_shortened = 0

    def _meddle(self, request: Any, local_tokens: int) -> tuple[int | None, bool]:
        num_tokens, is_async = self._look_up(request, local_tokens)
        if self._rng.random() < DELAY_RATE:
            self.num_delayed += 1
            return None, False
        if num_tokens and self._rng.random() < SHORTEN_RATE:
            self.num_shortened += 1
            units = self._rng.randrange(-(-num_tokens // self._alignment_tokens))
            num_tokens = units * self._alignment_tokens
        return num_tokens, is_async and bool(num_tokens)
