"""Single decisions of the planner, each on a prompt of known length."""

import pytest
from layouts import FULL, LAYOUTS, WINDOW, group, layout_of

from kvcellar.config import Settings
from kvcellar.core import actions, events
from kvcellar.layout.groups import make_layout
from kvcellar.layout.host import plan_geometry
from kvcellar.testing.fake_engine import FakeEngine


def engine_on(layout, **settings):
    return FakeEngine(layout, plan_geometry(layout, 1 << 20), Settings(**settings))


def run(engine, name, tokens):
    """Serve a prompt to its end; the tokens that came from host memory."""
    request = engine.start(name, list(tokens))
    hit = request.num_computed
    engine.run_jobs()
    engine.compute(request, len(tokens))
    engine.finish(request)
    engine.run_jobs()
    return hit


@pytest.mark.parametrize("is_marked", [True, False])
def test_a_drafter_keeps_a_margin_of_one_chunk(is_marked):
    """A prompt resumes one chunk before the last one it shares with what is stored."""
    groups = (group(0, WINDOW, 4, 8), group(1, FULL, 4))
    layout = make_layout(
        groups,
        hash_block_tokens=4,
        alignment_tokens=4,
        scheduler_block_tokens=4,
        has_drafter=is_marked,
    )
    engine = engine_on(layout)
    run(engine, "first", [1] * 42)
    margin = 4 if is_marked else 0
    assert 40 - margin == run(engine, "again", [1] * 42)
    assert 40 - margin == run(engine, "longer", [1] * 42 + [2] * 9)
    shared = 41 // 4 * 4 - margin
    assert shared == run(engine, "sibling", [1] * 41 + [3] * 9)


def test_a_drafter_lets_an_exact_prompt_keep_its_last_boundary():
    """40 tokens, all shared: the margin alone leaves a token to compute."""
    layout = make_layout(
        (group(0, FULL, 4),),
        hash_block_tokens=4,
        alignment_tokens=4,
        scheduler_block_tokens=4,
        has_drafter=True,
    )
    engine = engine_on(layout)
    run(engine, "first", [1] * 40)
    assert 36 == run(engine, "again", [1] * 40)


def test_a_promise_is_pinned_until_it_is_loaded_or_dropped():
    """Between look-up and load nothing it needs may be evicted."""
    engine = engine_on(LAYOUTS["gemma"])
    run(engine, "first", [1] * 42)
    index = engine.offloader.index
    look_up = events.LookUp("again", _hashes(engine, [1] * 42), 42, 0)
    (promise,) = engine.offloader.handle(look_up, 0.0)
    assert 40 == promise.external_tokens
    assert [40] == [index.boundary(n) for n in index.nodes.values() if n.pins]
    engine.offloader.handle(events.RequestFinished("again"), 0.0)
    assert [] == [n for n in index.nodes.values() if n.pins]


def test_fewer_tokens_than_promised_are_loaded_or_refused():
    """A boundary with a checkpoint is loaded, one without is refused at once."""
    engine = engine_on(LAYOUTS["full"])
    run(engine, "first", [1] * 42)
    for tokens, kind in ((20, actions.Load), (22, actions.LoadRefused)):
        name = f"r{tokens}"
        hashes = _hashes(engine, [1] * 42)
        engine.offloader.handle(events.LookUp(name, hashes, 42, 0), 0.0)
        tables = _Tables()
        answer = engine.offloader.handle(events.Allocated(name, tokens, tables), 0.0)
        assert [kind] == [type(action) for action in answer]


def test_tokens_that_were_never_promised_are_refused():
    """As another connector's load would be; the request recomputes."""
    engine = engine_on(LAYOUTS["full"])
    answer = engine.offloader.handle(events.Allocated("new", 16, _Tables()), 0.0)
    assert [actions.LoadRefused("new")] == answer


def test_loads_keep_to_their_limits():
    """Too few tokens are not loaded, and never more than the most allowed."""
    engine = engine_on(LAYOUTS["full"], min_load_tokens=24, max_load_tokens=28)
    run(engine, "first", [1] * 42)
    assert 28 == run(engine, "again", [1] * 42)
    engine = engine_on(LAYOUTS["full"], min_load_tokens=24)
    run(engine, "first", [1] * 22)
    assert 0 == run(engine, "again", [1] * 22)


def test_stores_keep_to_their_limits():
    """Tokens beyond the limit, and answers if so wanted, are not stored."""
    engine = engine_on(LAYOUTS["full"], max_store_tokens=10)
    run(engine, "first", [1] * 42)
    assert 8 == run(engine, "again", [1] * 42)
    for store_decoded, expected in ((True, 16), (False, 8)):
        engine = engine_on(LAYOUTS["full"], store_decoded=store_decoded)
        request = engine.start("first", [1] * 10)
        engine.compute(request, 10)
        for _ in range(8):
            engine.decode(request, 2)
        engine.finish(request)
        engine.run_jobs()
        assert expected == run(engine, "again", [1] * 10 + [2] * 9)


def test_a_failed_load_is_not_tried_again():
    """The same request is told 0 from then on; another one is served."""
    engine = engine_on(LAYOUTS["full"])
    run(engine, "first", [1] * 42)
    request = engine.start("again", [1] * 42)
    load = engine.queue.popleft()
    engine.offloader.handle(events.JobDone(load.job_id, has_failed=True), 0.0)
    request.is_loading = False
    assert 0 == engine.look_up(request)
    assert 40 == run(engine, "other", [1] * 42)


def test_what_ran_before_a_reset_is_not_stored_after_it():
    """Its blocks hold what the old weights computed, until it starts afresh."""
    engine = engine_on(LAYOUTS["full"])
    request = engine.start("first", [1] * 42)
    engine.compute(request, 20)
    engine.run_jobs()
    assert engine.reset()
    engine.compute(request, 42)
    engine.run_jobs()
    assert {} == engine.offloader.index.nodes
    engine.finish(request)


def _hashes(engine, tokens):
    from kvcellar.testing.fake_engine import prefix_hashes

    return prefix_hashes(tokens, engine.layout.hash_block_tokens)


class _Tables:
    def block_ids(self, group_id, indices):
        return [index + 1 for index in indices]

    def is_kept(self, group_id, index):
        return False


def test_layouts_of_this_file_are_what_they_seem():
    """The shared layouts have one-block chunks, so boundaries are easy to count."""
    assert 4 == LAYOUTS["full"].chunk_tokens == LAYOUTS["gemma"].chunk_tokens
    assert 8 == layout_of(group(0, FULL, 8), hash_tokens=4, alignment=8).chunk_tokens
