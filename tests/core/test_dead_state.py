"""The planner under the dead-state rule: unwritten states are never stored or shared.

The engine knows nothing of the rule. It allocates every block of the declared windows
for a load, and later treats all of them as cached, the ones that were left unwritten
included. So nothing but the planner keeps those bytes out of host memory.
"""

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from layouts import FULL, WINDOW, group, layout_of

from kvcellar.attention.hybrid import HybridRules
from kvcellar.config import Settings
from kvcellar.core import actions, events
from kvcellar.core.offloader import Offloader
from kvcellar.index.checks import check_index
from kvcellar.layout.dead_state import with_dead_state_rule
from kvcellar.layout.groups import CacheLayout
from kvcellar.layout.host import plan_geometry
from kvcellar.testing.fake_engine import (
    GARBAGE,
    FakeEngine,
    FakeRequest,
    prefix_hashes,
)

RATIOS = {2: 4, 3: 16}
DECLARED = layout_of(
    group(0, WINDOW, 8, 16, 90),
    group(1, FULL, 32, None, 120),
    group(2, WINDOW, 4, 8, 96),
    group(3, WINDOW, 8, 16, 70),
    hash_tokens=4,
    alignment=32,
)
RULED = with_dead_state_rule(DECLARED, RATIOS)
HOST_CELLS = {"ample": 400, "tight": 8}


class UnawareEngine(FakeEngine):
    """Allocates and keeps the windows that the model declares.

    Attributes:
        num_unwritten: device blocks that loads were given and did not fill.
        num_garbage_stored: unwritten blocks that a store has copied.
    """

    num_unwritten = 0
    num_garbage_stored = 0
    declared = HybridRules(DECLARED)

    def _allocate_for_load(self, request: FakeRequest, boundary: int) -> None:
        cut, self.rules = self.rules, self.declared
        super()._allocate_for_load(request, boundary)
        self.rules = cut
        for position, rule in enumerate(self.declared.rules):
            spared = set(rule.needed(boundary)) - set(
                cut.rules[position].needed(boundary)
            )
            self.num_unwritten += len(spared)

    def _leave_windows(self, request: FakeRequest) -> None:
        cut, self.rules = self.rules, self.declared
        super()._leave_windows(request)
        self.rules = cut

    def _copy(self, action: actions.Store | actions.Load, *, has_failed: bool) -> None:
        if isinstance(action, actions.Store):
            self.num_garbage_stored += sum(
                self.device.get(block, GARBAGE) == GARBAGE
                for copy in action.copies
                for block in copy.device_blocks
            )
        super()._copy(action, has_failed=has_failed)


def make_engine(memory: str = "ample", **options: int) -> UnawareEngine:
    geometry = plan_geometry(RULED, HOST_CELLS[memory] * 120 * 4)
    return UnawareEngine(RULED, geometry, Settings(**options))


def serve(engine: UnawareEngine, name: str, tokens: list[int]) -> int:
    """One request to its end; tokens that it loaded."""
    before = engine.loaded_tokens
    request = engine.start(name, list(tokens))
    engine.run_jobs()
    engine.compute(request, len(tokens))
    engine.run_jobs()
    engine.finish(request)
    return engine.loaded_tokens - before


def test_a_load_leaves_states_unwritten_and_no_store_copies_them() -> None:
    """A prompt returns, grows and returns again; each time at the longest boundary."""
    engine = make_engine()
    tokens = [random.Random(0).randrange(9) for _ in range(200)]
    assert serve(engine, "first", tokens[:70]) == 0
    assert serve(engine, "again", tokens[:70]) == 64
    # [56, 60) of ratio 4, and both blocks of 8 of ratio 16.
    assert engine.num_unwritten == 1 + 2
    assert serve(engine, "longer", tokens[:140]) == 64
    assert serve(engine, "longest", tokens) == 128
    assert serve(engine, "back", tokens[:100]) == 64
    assert engine.num_garbage_stored == 0


def test_host_memory_holds_no_state_of_ratio_16() -> None:
    """What no boundary needs takes no byte; ratio 4 takes one block per checkpoint."""
    engine = make_engine()
    serve(engine, "first", list(range(70)))
    used = {position for position, _ in engine.host.values()}
    assert used == {0, 1, 2}
    states = [content for content in engine.host.values() if content[0] == 2]
    assert len(states) == engine.offloader.counters.stored_checkpoints


def stored_blocks(layout: CacheLayout, num_tokens: int) -> set[tuple[int, int]]:
    """What is stored of a prompt's device blocks: (position, block index)."""
    tokens = list(range(num_tokens))
    tables = [list(range(1, num_tokens + 1)) for _ in layout.groups]
    hashes = prefix_hashes(tokens, layout.hash_block_tokens)
    request = FakeRequest("r", tokens, num_tokens, hashes, tables)
    planner = Offloader(layout, plan_geometry(layout, 200_000), Settings())
    event = events.TokensComputed("r", hashes, num_tokens, 0, num_tokens, request)
    return {
        (copy.position, device_block - 1)
        for action in planner.handle(event, 0.0)
        if isinstance(action, actions.Store)
        for copy in action.copies
        for device_block in copy.device_blocks
    }


def test_unwritten_states_are_stored_without_the_rule_and_not_with_it() -> None:
    """At 64, 1 block of ratio 4 and 2 of ratio 16 may be garbage: the rule skips them.

    Whatever path leads there, a device hit on blocks that a load left unwritten
    included, the store reads what ``needed`` says.
    """
    declared, ruled = HybridRules(DECLARED), HybridRules(RULED)
    unwritten = {
        (position, block)
        for position in RATIOS
        for block in declared.rules[position].needed(64)
        if block not in ruled.rules[position].needed(64)
    }
    assert unwritten == {(2, 14), (3, 6), (3, 7)}
    assert unwritten <= stored_blocks(DECLARED, 70)
    assert unwritten.isdisjoint(stored_blocks(RULED, 70))
    assert (2, 15) in stored_blocks(RULED, 70)


def test_a_prompt_of_a_whole_number_of_chunks_resumes_one_chunk_earlier() -> None:
    """Its last token is never loaded, so nothing below the boundary is recomputed."""
    engine = make_engine()
    tokens = list(range(96))
    serve(engine, "first", [*tokens, 1])
    assert serve(engine, "whole", tokens) <= 64


def held_contents(engine: UnawareEngine) -> list[object]:
    """What the cells that are in use contain.

    A cell that is free may hold anything: room made for a later cell of the same store
    moves an earlier one, whose bytes are written at its last place only.
    """
    index, geometry = engine.offloader.index, engine.geometry
    contents = []
    for node in index.nodes.values():
        checkpoint = node.checkpoint.cells if node.checkpoint else ()
        for cell in (*node.cells, *checkpoint):
            num_blocks = geometry.blocks_per_cell[cell.position]
            for block in range(
                cell.number * num_blocks, (cell.number + 1) * num_blocks
            ):
                place = engine._bytes_at(engine._place(cell.position, block))
                contents.append(engine.host[place])
    return contents


@pytest.mark.parametrize("memory", HOST_CELLS)
@settings(max_examples=40)
@example(seed=37939)
@given(seed=st.integers(0, 2**32))
def test_random_prompts_store_no_unwritten_state(memory: str, seed: int) -> None:
    """Prompts that share prefixes, interleaved; the engine verifies every load."""
    rng = random.Random(seed)
    engine = make_engine(memory)
    history: list[list[int]] = [[]]
    running: list[FakeRequest] = []
    for number in range(40):
        if running and rng.random() < 0.5:
            request = running.pop(rng.randrange(len(running)))
            engine.run_jobs()
            engine.compute(request, rng.choice([40, 400]))
            engine.run_jobs(rng.choice([0, 1, None]))
            engine.finish(request)
            continue
        base = rng.choice(history)
        tokens = base[: rng.randint(0, len(base))]
        tokens = tokens + [rng.randrange(3) for _ in range(rng.randint(1, 120))]
        history.append(tokens)
        running.append(engine.start(f"r{number}", list(tokens)))
    engine.run_jobs()
    check_index(engine.offloader.index)
    assert engine.num_garbage_stored == 0
    assert GARBAGE not in held_contents(engine)
