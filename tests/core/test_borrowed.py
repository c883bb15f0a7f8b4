"""Resume points made of blocks that neighbouring checkpoints hold."""

from layouts import FULL, LAYOUTS, WINDOW, group, layout_of

from kvcellar.config import Settings
from kvcellar.index.checks import check_index
from kvcellar.layout.host import plan_geometry
from kvcellar.testing.fake_engine import FakeEngine

TOKENS = list(range(100, 200))


def make_engine(layout):
    settings = Settings(spaced_checkpoint_share=0)
    return FakeEngine(layout, plan_geometry(layout, 200_000), settings)


def serve(engine, name, tokens):
    """One request to its end; tokens that it loaded, each byte verified."""
    before = engine.loaded_tokens
    request = engine.start(name, list(tokens))
    engine.run_jobs()
    engine.compute(request, len(tokens))
    engine.run_jobs()
    engine.finish(request)
    check_index(engine.offloader.index)
    return engine.loaded_tokens - before


def test_a_local_chunk_serves_every_boundary_inside_it():
    """Local chunks of 16 tokens: after 30 tokens, who shares 21 resumes at 20."""
    engine = make_engine(LAYOUTS["llama4"])
    serve(engine, "first", TOKENS[:30])
    stored = engine.offloader.counters.stored_checkpoints
    assert 20 == serve(engine, "second", [*TOKENS[:21], 1])
    counters = engine.offloader.index.counters
    assert 1 == counters.borrowed_checkpoints
    assert stored == engine.offloader.counters.stored_checkpoints
    # It stays a resume point, and is not borrowed again.
    assert 20 == serve(engine, "third", [*TOKENS[:22], 2])
    assert 1 == counters.borrowed_checkpoints


def test_nothing_is_borrowed_where_a_block_is_missing():
    """After 50 tokens the local chunk [32, 48) is held: a boundary at 28 is not."""
    engine = make_engine(LAYOUTS["llama4"])
    serve(engine, "first", TOKENS[:50])
    loaded = serve(engine, "second", [*TOKENS[:29], 1])
    assert 16 == loaded  # a new local chunk begins there, which needs nothing
    assert 0 == engine.offloader.index.counters.borrowed_checkpoints


def test_what_is_still_being_copied_is_not_borrowed():
    """The cells of a checkpoint under way are there, their bytes are not."""
    engine = make_engine(LAYOUTS["llama4"])
    serve(engine, "first", TOKENS[:50])
    second = engine.start("second", [*TOKENS[:29], 1])
    engine.run_jobs()
    engine.compute(second, 30)  # a checkpoint at 28 is being stored: [16, 28)
    third = engine.start("third", [*TOKENS[:21], 2])
    assert 0 == engine.offloader.index.counters.borrowed_checkpoints
    engine.run_jobs()
    assert 16 == third.num_computed
    engine.finish(third)
    assert 20 == serve(engine, "fourth", [*TOKENS[:21], 3])
    assert 1 == engine.offloader.index.counters.borrowed_checkpoints


def test_windows_that_overlap_serve_the_boundary_between_them():
    """Checkpoints at 48 and 52 in blocks of 4 hold what 48 and 52 need, no more."""
    layout = layout_of(
        group(0, FULL, 4), group(1, WINDOW, 4, 9), hash_tokens=4, alignment=4
    )
    engine = make_engine(layout)
    for end in (41, 49):  # windows [32, 40) and [40, 48)
        serve(engine, f"to {end}", TOKENS[:end])
    assert 44 == serve(engine, "between", [*TOKENS[:45], 1])  # needs [36, 44)
    assert 1 == engine.offloader.index.counters.borrowed_checkpoints
