"""The planner alone: prompts are computed in steps, and every store succeeds."""

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from models import Model
from stopwatch import Stopwatch

from kvcellar.config import Settings
from kvcellar.core import actions, events
from kvcellar.core.offloader import Offloader
from kvcellar.layout.host import plan_geometry


class CountingTables:
    """Block tables in which block i of every group is device block i + 1."""

    def block_ids(self, group_id: int, indices: range) -> list[int]:
        """Never 0: no window has moved on during a step."""
        return list(range(indices.start + 1, indices.stop + 1))


TABLES = CountingTables()


def make_hashes(num_tokens: int, hash_block_tokens: int, seed: int) -> list[bytes]:
    """32 bytes per hash block, different for every seed."""
    prefix = seed.to_bytes(8, "big")
    return [
        hashlib.sha256(prefix + i.to_bytes(8, "big")).digest()
        for i in range(num_tokens // hash_block_tokens)
    ]


@dataclass(slots=True)
class PlannerRig:
    """An ``Offloader`` with an arena of ``host_bytes`` that only exists as numbers."""

    model: Model
    host_bytes: int
    settings: Settings = field(default_factory=Settings)
    offloader: Offloader = field(init=False)
    now: float = 0.0

    def __post_init__(self) -> None:
        """Build the planner."""
        layout = self.model.layout
        geometry = plan_geometry(layout, self.host_bytes)
        self.offloader = Offloader(layout, geometry, self.settings)

    def handle(self, event: events.Event) -> list[actions.Action]:
        """One event, one second after the last."""
        self.now += 1.0
        return self.offloader.handle(event, self.now)

    def hashes(self, num_tokens: int, seed: int) -> list[bytes]:
        """Prefix hashes of a prompt of this layout."""
        return make_hashes(num_tokens, self.model.layout.hash_block_tokens, seed)

    def store(
        self,
        request_id: str,
        hashes: Sequence[bytes],
        num_prompt_tokens: int,
        step_tokens: int,
    ) -> tuple[Stopwatch, Stopwatch]:
        """Compute all of ``hashes``' tokens in steps; complete every job at once.

        Returns:
            The time of each step's planning, and of taking in each job's end.
        """
        planning, ending = Stopwatch(), Stopwatch()
        num_tokens = len(hashes) * self.model.layout.hash_block_tokens
        for first in range(0, num_tokens, step_tokens):
            event = events.TokensComputed(
                request_id,
                hashes,
                num_prompt_tokens,
                first,
                min(first + step_tokens, num_tokens),
                TABLES,
            )
            planned = planning.time(functools.partial(self.handle, event))
            for action in planned:
                assert isinstance(action, (actions.Store, actions.Move))
                done = events.JobDone(action.job_id)
                ending.time(functools.partial(self.handle, done))
        self.handle(events.RequestFinished(request_id))
        return planning, ending

    def look_up(self, request_id: str, hashes: Sequence[bytes], num_tokens: int) -> int:
        """Tokens promised to a prompt of which the device holds nothing."""
        (promise,) = self.handle(events.LookUp(request_id, hashes, num_tokens, 0))
        assert isinstance(promise, actions.Promise)
        return promise.external_tokens
