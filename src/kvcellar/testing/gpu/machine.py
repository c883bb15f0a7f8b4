"""The model's side of an accelerator: a cache, and work that writes and reads it late.

Everything here is queued on the compute stream and runs when the accelerator comes to
it, as a forward pass does. Content is a rule, so that it need not be kept: a span of
words holds ``first, first + 1, first + 2, ...``.
"""

from typing import NamedTuple, Protocol

import numpy as np

from kvcellar.device.driver import Driver
from kvcellar.testing.fake_driver import FakeDriver

WORD_BYTES = 8


class Span(NamedTuple):
    """Neighbouring words of the cache."""

    first_word: int
    num_words: int


class Machine(Protocol):
    """An accelerator with one cache.

    Attributes:
        driver: copies, streams and events.
        cache_address: where the cache lies.
        num_words: words of the cache.
    """

    driver: Driver
    cache_address: int
    num_words: int

    def write(self, span: Span, first: int) -> None:
        """Queue work that fills a span with ``first`` and the numbers after it."""
        ...

    def compare(self, span: Span, first: int) -> None:
        """Queue work that counts the span as wrong if it holds anything else."""
        ...

    def delay(self) -> None:
        """Queue work that takes long and touches nothing."""
        ...

    def num_wrong(self) -> int:
        """Wait for the queued work; spans that were wrong since the last call."""
        ...

    def settle(self) -> None:
        """Wait for everything, copies included."""
        ...


class FakeMachine:
    """Ordinary memory behind a ``FakeDriver``."""

    def __init__(self, num_words: int, driver: FakeDriver) -> None:
        self.fake = driver
        self.driver: Driver = driver
        self.num_words = num_words
        self._cache = np.zeros(num_words, dtype=np.int64)
        self.cache_address = int(self._cache.ctypes.data)
        driver.add_device_memory(self.cache_address, self._cache.nbytes)
        self._num_wrong = 0

    def write(self, span: Span, first: int) -> None:
        """Queue a write."""

        def run() -> None:
            self._view(span)[:] = _content(span, first)

        self.fake.launch(run)

    def compare(self, span: Span, first: int) -> None:
        """Queue a comparison."""

        def run() -> None:
            is_equal = np.array_equal(self._view(span), _content(span, first))
            self._num_wrong += not is_equal

        self.fake.launch(run)

    def delay(self) -> None:
        """Time does not pass here; the driver's haste decides what is late."""

    def num_wrong(self) -> int:
        """Run the queued model work."""
        self.fake.finish_compute()
        found, self._num_wrong = self._num_wrong, 0
        return found

    def settle(self) -> None:
        """Run everything."""
        self.fake.finish_all()

    def _view(self, span: Span) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return self._cache[span.first_word : span.first_word + span.num_words]


def _content(span: Span, first: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.arange(first, first + span.num_words, dtype=np.int64)
