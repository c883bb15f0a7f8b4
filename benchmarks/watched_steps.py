"""Steps as vLLM calls them, carried out by several scheduler sides, each timed alone.

All sides plan the same steps of one engine's cache manager, one after the other, and a
side's jobs end before it is the next one's turn. So whatever the engine hands over is
the same object for all of them, and their times differ by what they do with it. Before
each turn the processor's caches are filled with other things, as the rest of an
engine's step does it; or only the first side would pay for reading a request.
"""

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import vllm_rig
from connectors import CellarSide
from models import Model
from observers import Observers, Watch, openings
from stopwatch import Turns

T = TypeVar("T")
CACHE_BYTES = 1 << 20  # as much as a core's own second-level cache


class Panel:
    """Scheduler sides that are watched in different ways.

    The engine's own KV events are timed beside them: a second cache manager does the
    same as the first, and sends them.

    Args:
        watches: how each of the sides is watched.
        seed: of the order in which they take their turns.

    Attributes:
        sides: time of each side's steps.
        engines: time of each cache manager's; the second one's with events.
    """

    def __init__(
        self,
        watches: Sequence[Watch],
        model: Model,
        num_blocks: int,
        host_bytes: int,
        seed: int = 0,
    ) -> None:
        config = vllm_rig.kv_cache_config(model, num_blocks)
        self._managers = [
            vllm_rig.cache_manager(model, config, has_events=has_events)
            for has_events in (False, True)
        ]
        self._watches = watches
        self._cellars = [
            CellarSide(model, num_blocks, host_bytes, manager=self._managers[0])
            for _ in watches
        ]
        for cellar, watch in zip(self._cellars, watches, strict=True):
            Observers(cellar.side, config).set(watch)
        self.sides = [Turns() for _ in watches]
        self.engines = [Turns() for _ in self._managers]
        self._random = random.Random(seed)
        self._ballast = bytearray(CACHE_BYTES), bytearray(CACHE_BYTES)

    def start_timing(self) -> None:
        """Forget what was timed so far."""
        for turns in (*self.sides, *self.engines):
            turns.restart()

    def admit(self, request: Any, num_tokens: int) -> None:
        """Look up, allocate; as if nothing was to be loaded."""

        def look_up(cellar: CellarSide) -> None:
            cellar.side.arrived(request)
            cellar.side.look_up(request, 0)

        self._each(look_up)
        assert None not in self.allocate([request], num_tokens)
        self._each(lambda cellar: cellar.side.allocated(request, 0))

    def allocate(self, requests: Sequence[Any], num_tokens: int) -> list[Any]:
        """Device blocks for the next tokens of each of these requests."""
        blocks, _ = self._each_engine(
            lambda manager: [manager.allocate_slots(r, num_tokens) for r in requests]
        )
        return blocks

    def start(self, requests: Sequence[Any]) -> None:
        """A step that computes all tokens of these new requests."""
        self.step(vllm_rig.first_steps(self._managers[0], requests))

    def start_part(self, request: Any, num_tokens: int) -> None:
        """A step that computes so many tokens of a new request."""
        self.step(vllm_rig.first_step(self._managers[0], request, num_tokens))

    def go_on(self, requests: Sequence[Any], num_tokens: int) -> None:
        """A step that computes the next tokens of each of these requests."""
        blocks = self.allocate(requests, num_tokens)
        self.step(vllm_rig.later_step(requests, blocks, num_tokens))

    def step(self, output: Any) -> None:
        """Plan, end all jobs, and ask for what the engine asks after every step."""

        def whole_step(cellar: CellarSide) -> None:
            side = cellar.side
            cellar.complete(side.build_metadata(output))
            side.step_ended()
            side.take_kv_events()
            side.take_stats()

        self._each(whole_step)
        self._each_engine(lambda manager: manager.take_events())
        for turns in (*self.sides, *self.engines):
            turns.end()

    def finish(self, request: Any) -> None:
        """End a request in the ordinary way; its time counts to the next step."""
        vllm_rig.end(request)
        self._each(lambda cellar: cellar.side.finished(request))
        self._each_engine(lambda manager: manager.free(request))

    def _each(self, call: Callable[[CellarSide], object]) -> None:
        for number in self._in_any_order(self._cellars):
            with openings(self._watches[number]):
                self._fill_caches()
                self.sides[number].time(partial(call, self._cellars[number]))

    def _each_engine(self, call: Callable[[Any], T]) -> list[T]:
        found: dict[int, T] = {}
        for number in self._in_any_order(self._managers):
            self._fill_caches()
            found[number] = self.engines[number].time(
                partial(call, self._managers[number])
            )
        return [found[number] for number in range(len(self._managers))]

    def _fill_caches(self) -> None:
        """Copy, without memory that is new to the process."""
        target, source = self._ballast
        target[:] = source

    def _in_any_order(self, ones: Sequence[object]) -> list[int]:
        """Their places; another order each time, so that nobody always follows one."""
        places = list(range(len(ones)))
        self._random.shuffle(places)
        return places
