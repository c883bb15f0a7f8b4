"""Second-touch admission: only what an earlier prompt had too is stored."""

from layouts import LAYOUTS

from kvcellar.config import Settings
from kvcellar.core.admission import REMEMBERED_PER_CHUNK, Admission
from kvcellar.layout.host import plan_geometry
from kvcellar.testing.fake_engine import FakeEngine


def test_all_lets_everything_in():
    """None stands for no limit, so that decoded chunks are stored too."""
    assert Admission(Settings(), 10).admit([b"a"]) is None


def test_second_touch_lets_in_what_was_seen():
    """The leading chunks that an earlier prompt had."""
    admission = Admission(Settings(admission="second-touch"), 10)
    answers = [
        admission.admit(path)
        for path in ([b"a", b"b"], [b"a", b"c"], [b"a", b"b"], [b"x"], [])
    ]
    assert [0, 1, 2, 0, 0] == answers


def test_what_was_seen_long_ago_is_forgotten():
    """The first chunks of a prompt last."""
    admission = Admission(Settings(admission="second-touch"), 1)
    keys = [bytes([i]) for i in range(REMEMBERED_PER_CHUNK + 1)]
    admission.admit(keys)
    seen = admission.admit(keys)
    assert REMEMBERED_PER_CHUNK == seen


def test_a_prompt_is_stored_when_it_comes_the_second_time():
    """And served the third time."""
    layout = LAYOUTS["gemma"]
    settings = Settings(admission="second-touch")
    engine = FakeEngine(layout, plan_geometry(layout, 100_000), settings)
    loaded = []
    for number in range(3):
        request = engine.start(f"r{number}", list(range(50)))
        engine.run_jobs()
        engine.compute(request, 50)
        engine.run_jobs()
        engine.finish(request)
        loaded.append(engine.loaded_tokens)
    assert [0, 0, 48] == loaded
