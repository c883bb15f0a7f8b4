"""The planner: events in, actions out.

It decides; workers copy. It does no I/O, reads no clock and starts no thread, so
serving, replay and tests run this same code, and a recorded list of events replays.

    Arrived         ->              remember what the request brings along
    LookUp          -> Promise      what can be loaded; pinned from here on
    Allocated       -> Load         or LoadRefused, or nothing for zero tokens
    TokensComputed  -> Move, Store  in the step that computes a boundary, since the
                                    blocks behind it may have left their window by
                                    the next one
    JobDone         ->              publish, or drop what failed
    RequestFinished ->              unpin
    Reset           -> ResetAnswer  forget; jobs in flight publish nothing

Store and look-up are one rule: both ask ``HybridRules`` what a boundary needs.

``Loads`` and the mode's stores decide. Here lie the records of requests and of jobs in
flight, and every event goes from here to who knows about it.
"""

import itertools
from typing import TYPE_CHECKING

from kvcellar.config import Settings
from kvcellar.core import actions, events
from kvcellar.core.accounting import Accounting
from kvcellar.core.admission import Admission
from kvcellar.core.cost import LoadCost
from kvcellar.core.counters import CoreCounters
from kvcellar.core.keeping import Keep
from kvcellar.core.lazy import LazyStores
from kvcellar.core.ledger import Ledger
from kvcellar.core.loads import Loads
from kvcellar.core.origin import Origin
from kvcellar.core.record import (
    JobRecord,
    LoadRecord,
    MoveRecord,
    RequestRecord,
    StoreRecord,
)
from kvcellar.core.store_end import drop_store, publish_store
from kvcellar.core.store_plan import StorePlan
from kvcellar.core.stores import EagerStores, num_wanted_tokens
from kvcellar.index.announcements import Announcements
from kvcellar.index.build import build_index
from kvcellar.index.policies.policy import Prompt
from kvcellar.index.slabs import CellMove
from kvcellar.layout.groups import CacheLayout
from kvcellar.layout.host import HostGeometry

if TYPE_CHECKING:
    from collections.abc import Callable


class Offloader:
    """One engine's planner. Not thread-safe: the engine's scheduler thread owns it.

    Args:
        layout: the model's cache groups.
        geometry: how the arena is cut; the same for every rank.
        settings: the user's choices.
    """

    def __init__(
        self, layout: CacheLayout, geometry: HostGeometry, settings: Settings
    ) -> None:
        self.layout = layout
        self.settings = settings
        self.index = build_index(layout, geometry, settings)
        self.slabs = self.index.cells.slabs
        most_chunks = geometry.arena_bytes // max(self.index.rules.chunk_bytes, 1)
        self._admission = Admission(settings, most_chunks)
        self.counters = counters = CoreCounters()
        self.cost = LoadCost(settings.min_load_tokens, is_measured=settings.cost_rule)
        self.records: dict[str, RequestRecord] = {}
        self.jobs: dict[int, JobRecord] = {}
        stores = LazyStores if settings.mode == "lazy" else EagerStores
        self._stores = stores(self.index, settings, counters)
        self._loads = Loads(self.index, settings, self.cost, counters, self._stores)
        self._accounting = Accounting(self.index, self._stores)
        self._job_ids = itertools.count(1)
        self._handlers: dict[type, Callable[..., list[actions.Action]]] = {
            events.Arrived: self._arrived,
            events.LookUp: self._look_up,
            events.Allocated: self._allocated,
            events.TokensComputed: self._tokens_computed,
            events.RequestFinished: self._request_finished,
            events.JobDone: self._job_done,
            events.StepEnded: self._step_ended,
            events.Reset: self._reset,
            events.BlocksThreatened: self._blocks_threatened,
        }

    def handle(self, event: events.Event, now: float) -> list[actions.Action]:
        """Take in one event.

        Args:
            event: what happened.
            now: seconds on any steady clock.

        Returns:
            Actions to carry out in this order.
        """
        if self.index.leases.next_end <= now:
            self.index.end_leases(now)
        return self._handlers[type(event)](event, now)

    def announce(self) -> Announcements:
        """Note from now on what becomes loadable and what leaves, for followers."""
        self.index.cells.announcements = announcements = Announcements()
        return announcements

    @property
    def ledger(self) -> Ledger:
        """Where prompt tokens came from, and why the others were computed."""
        return self._accounting.ledger

    # -- look-up and load ----------------------------------------------------------

    def _arrived(self, event: events.Arrived, now: float) -> list[actions.Action]:
        record = self._record(event.request_id)
        record.controls = event.controls
        record.keep_until = now + event.controls.keep_after_arrival_seconds
        if event.controls.priority:
            self.index.order.use_priorities()
        tenant = self.index.tenants.named(event.tenant)
        record.origin = Origin(event.content, event.controls.priority, tenant)
        return []

    def _look_up(self, event: events.LookUp, now: float) -> list[actions.Action]:
        record = self._record(event.request_id)
        record.is_stale = False
        limit = self._loads.num_findable(event)
        self._accounting.looked_up(record, event.hashes, limit)
        tokens = self._loads.look_up(record, event, limit, now)
        return [actions.Promise(event.request_id, tokens)]

    def _allocated(self, event: events.Allocated, now: float) -> list[actions.Action]:
        record = self._record(event.request_id)
        self._accounting.admitted(record, event, now)
        if not event.external_tokens:
            self._loads.declined(record)
            return []
        load = self._loads.begin(record, event, now)
        if load is None:
            return [actions.LoadRefused(event.request_id)]
        job, copies = load
        return [actions.Load(self._start(job), event.request_id, copies)]

    # -- store ---------------------------------------------------------------------

    def _tokens_computed(
        self, event: events.TokensComputed, now: float
    ) -> list[actions.Action]:
        record = self._record(event.request_id)
        self._accounting.step_planned(record, event, now)
        if record.is_stale:
            return []
        if not record.is_observed:
            self._observe(record, event, now)
        plan = self._stores.tokens_computed(record, event, now)
        self._accounting.stored(record)
        return self._carry_out(plan)

    def _observe(
        self, record: RequestRecord, event: events.TokensComputed, now: float
    ) -> None:
        """A prompt is new: is it let in, and which order would have kept it?

        Asked here and not at the look-up, so that no request waits for it.
        """
        record.is_observed = True
        stride, chunk = self.index.hashes_per_chunk, self.layout.chunk_tokens
        limit = (event.num_prompt_tokens - 1) // chunk
        keys = event.hashes[stride - 1 : max(limit, 0) * stride : stride]
        record.num_admitted = self._admission.admit(keys)
        if record.num_admitted is not None:
            self.counters.unadmitted_requests += record.num_admitted < len(keys)
        num_local = record.local_tokens // chunk
        num_loaded = event.first_token // chunk - num_local
        due = self._stores.take_due()
        prompt = Prompt(keys, num_local, num_loaded, due)
        self.index.order.live.observe(prompt, now)
        if record.num_admitted is None:
            self._stores.admit(record, keys, event.hashes, now)

    def _blocks_threatened(
        self, event: events.BlocksThreatened, now: float
    ) -> list[actions.Action]:
        self.index.departures.begin(now, "")
        plans = self._stores.blocks_threatened(event, now)
        return [a for plan in plans for a in self._carry_out(plan)]

    def num_wanted_tokens(
        self, request_id: str, num_prompt_tokens: int, num_tokens: int
    ) -> int:
        """How many of a request's first ``num_tokens`` are wanted in host memory."""
        controls = self._record(request_id).controls
        return num_wanted_tokens(self.settings, controls, num_prompt_tokens, num_tokens)

    def _carry_out(self, plan: StorePlan) -> list[actions.Action]:
        """Moves first: they make the room that the store then fills."""
        planned: list[actions.Action] = [
            self._move(moves) for moves in self.index.cells.take_moves()
        ]
        if not plan.is_empty:
            copies = plan.copies()
            job_id = self._start(plan.record)
            planned.append(actions.Store(job_id, copies))
        return planned

    def _move(self, moves: list[CellMove]) -> actions.Move:
        job_id = self._start(MoveRecord([move.cell for move in moves]))
        return actions.Move(job_id, moves)

    # -- ends ----------------------------------------------------------------------

    def _request_finished(
        self, event: events.RequestFinished, now: float
    ) -> list[actions.Action]:
        record = self.records.pop(event.request_id, None)
        if record is not None:
            self._loads.drop_promise(record)
            self._accounting.finished(record, now)
            self._stores.count_use(record, now)
            tip = record.tip
            if self.index.nodes.get(tip.key) is tip:
                self.index.raise_priority(tip, record.controls.priority)
            until = max(now + record.controls.keep_seconds, record.keep_until)
            if until > now:
                self._stores.keep(record, Keep(until, record.num_prompt_tokens))
            self.index.unpin(tip)
        return []

    def _job_done(self, event: events.JobDone, now: float) -> list[actions.Action]:
        job = self.jobs.pop(event.job_id)
        self.index.departures.begin(now, "")
        self.counters.failed_jobs += event.has_failed
        if isinstance(job, StoreRecord):
            end = drop_store if event.has_failed else publish_store
            end(self.index, job)
        elif isinstance(job, LoadRecord):
            record = self.records.get(job.request_id)
            self._loads.ended(job, record, event, now)
        elif event.has_failed:
            self.index.lose(job.cells)
        return []

    def _step_ended(self, event: events.StepEnded, now: float) -> list[actions.Action]:
        self.cost.step_ended(
            event.num_tokens, event.num_prefill_tokens, event.seconds, now
        )
        return []

    def _reset(self, event: events.Reset, now: float) -> list[actions.Action]:
        self.index.departures.begin(now, "")
        for record in self.records.values():
            self._loads.drop_promise(record)
            self._accounting.reset(record)
            self.index.unpin(record.tip)
            record.tip = record.known = self.index.root
            self.index.pin(record.tip)
            record.junction = 0
            record.is_stale = True
            record.num_waiting = 0
        self._stores.reset()
        return [actions.ResetAnswer(self.index.reset())]

    # -- small things --------------------------------------------------------------

    def _record(self, request_id: str) -> RequestRecord:
        record = self.records.get(request_id)
        if record is None:
            root = self.index.root
            self.index.pin(root)
            record = RequestRecord(request_id, tip=root, known=root)
            self.records[request_id] = record
        return record

    def _start(self, job: JobRecord) -> int:
        job_id = next(self._job_ids)
        self.jobs[job_id] = job
        return job_id
