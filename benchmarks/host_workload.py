"""Conversations that come back, driven through the planner until memory has churned."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from models import Model
from planner_rig import TABLES, PlannerRig

from kvcellar.core import actions, events

STEP_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class Workload:
    """A closed world of conversations.

    Attributes:
        num_turns: prompts in all; who is next is skewed towards few conversations.
        most_tokens: a conversation of this length starts again.
        turn_tokens: least and most tokens that a turn adds.
        answer_share: share of them that is decoded rather than prompt.
    """

    num_conversations: int
    num_turns: int
    most_tokens: int
    turn_tokens: tuple[int, int]
    answer_share: float = 0.2


class Conversations:
    """Runs a workload; the same seed gives the same run."""

    def __init__(self, model: Model, host_bytes: int, workload: Workload) -> None:
        self.rig = PlannerRig(model, host_bytes)
        self._workload = workload
        self._random = random.Random(0)
        self._lengths = [0] * workload.num_conversations
        self._ages = [0] * workload.num_conversations
        self._hashes: dict[tuple[int, int], list[bytes]] = {}

    def turns(self) -> Iterator[int]:
        """Run turn after turn; yields their numbers."""
        for turn in range(self._workload.num_turns):
            # Squaring a uniform number favours the first conversations.
            skewed = self._random.random() ** 2
            self._run_turn(turn, int(skewed * self._workload.num_conversations))
            yield turn

    def _run_turn(self, turn: int, who: int) -> None:
        added = self._random.randint(*self._workload.turn_tokens)
        if self._lengths[who] + added > self._workload.most_tokens:
            self._hashes.pop((who, self._ages[who]), None)
            self._lengths[who] = 0
            self._ages[who] += 1
        self._lengths[who] += added
        num_tokens = self._lengths[who]
        num_prompt_tokens = num_tokens - int(added * self._workload.answer_share)
        hashes = self._prefix(who, num_tokens)
        request_id = f"turn-{turn}"
        first = self._load(request_id, hashes, num_prompt_tokens)
        self._compute(request_id, hashes, num_prompt_tokens, first, num_tokens)

    def _prefix(self, who: int, num_tokens: int) -> list[bytes]:
        key = (who, self._ages[who])
        if key not in self._hashes:
            most = self._workload.most_tokens
            self._hashes[key] = self.rig.hashes(most, seed=who * 10**6 + key[1])
        hash_tokens = self.rig.model.layout.hash_block_tokens
        return self._hashes[key][: num_tokens // hash_tokens]

    def _load(self, request_id: str, hashes: list[bytes], num_tokens: int) -> int:
        """Load what is promised; the tokens that need not be computed."""
        promised = self.rig.look_up(request_id, hashes, num_tokens)
        self._end(self.rig.handle(events.Allocated(request_id, promised, TABLES)))
        return promised

    def _compute(
        self,
        request_id: str,
        hashes: list[bytes],
        num_prompt_tokens: int,
        first: int,
        num_tokens: int,
    ) -> None:
        while first < num_tokens:
            last = min(first + STEP_TOKENS, num_tokens)
            self._end(
                self.rig.handle(
                    events.TokensComputed(
                        request_id, hashes, num_prompt_tokens, first, last, TABLES
                    )
                )
            )
            first = last
        self.rig.handle(events.RequestFinished(request_id))

    def _end(self, planned: list[actions.Action]) -> None:
        for action in planned:
            assert isinstance(action, (actions.Store, actions.Load, actions.Move))
            self.rig.handle(events.JobDone(action.job_id))
