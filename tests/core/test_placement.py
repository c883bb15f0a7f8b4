"""Which boundaries get a checkpoint."""

from types import SimpleNamespace

from layouts import FULL, LAYOUTS, STATE, WINDOW, group, layout_of

from kvcellar.attention.hybrid import HybridRules
from kvcellar.core.placement import Placement


def due(prompt, through, *, after=-1, junction=0, chunk=32, decode=64):
    record = SimpleNamespace(junction=junction, placed_through=after)
    return Placement(chunk, decode).due(record, prompt, through)


def test_the_end_of_the_prompt_is_kept():
    """The last boundary inside the prompt, and no other of a long prefill."""
    assert [992] == due(1000, 992)
    assert [] == due(1000, 640)


def test_a_prompt_that_ends_on_a_boundary_keeps_two():
    """One for longer prompts, one for a repeat, which recomputes the last token."""
    assert [992, 1024] == due(1024, 1024)


def test_the_junction_is_kept_when_it_is_computed():
    """Not before, and not again once it has had its chance."""
    assert [320] == due(1000, 640, junction=320)
    assert [] == due(1000, 288, junction=320)
    assert [992] == due(1000, 992, junction=320, after=640)


def test_decoding_keeps_boundaries_at_its_spacing():
    """Absolute multiples of the spacing, beyond the prompt only."""
    assert [] == due(1000, 1023, after=992)
    assert [1024] == due(1000, 1024, after=1000)
    assert [1088, 1152] == due(1000, 1152, after=1024)


def test_the_spacing_is_whole_chunks():
    """A spacing that is not a multiple of the chunk is rounded up; default 256."""
    rules = HybridRules(LAYOUTS["deepseek-v4-like"])
    assert 96 == Placement.for_rules(rules, 65).decode_tokens
    assert 256 == Placement.for_rules(rules, None).decode_tokens


def test_one_boundary_earlier_is_kept_where_it_is_cheap():
    """A long window of small blocks shares most of it; one state shares nothing."""
    long_window = layout_of(
        group(0, FULL, 32), group(1, WINDOW, 16, 1024), hash_tokens=16, alignment=32
    )
    state = layout_of(
        group(0, FULL, 32), group(1, STATE, 32), hash_tokens=32, alignment=32
    )
    for layout, expected in ((long_window, 32), (state, 0), (LAYOUTS["full"], 0)):
        placement = Placement.for_rules(HybridRules(layout), None)
        assert expected == placement.step_back_tokens
    assert [2048, 2080] == Placement(32, 256, 32).due(
        SimpleNamespace(junction=0, placed_through=-1), 2100, 2080
    )


def test_short_prompts_keep_nothing():
    """Below one chunk there is no boundary."""
    assert [] == due(20, 20)
