import dataclasses
import json
from collections.abc import Sequence

import pytest
from fake_demo_engine import FakeEngine

from kvcellar.demo import script
from kvcellar.demo.client import Completion
from kvcellar.demo.play import Played, play
from kvcellar.demo.report import Report, Setting, make_report, percentile
from kvcellar.demo.script import Kind, make_conversations, questions
from kvcellar.demo.table import table_of

NUM_CONVERSATIONS = 6
SETTING = Setting("fake", NUM_CONVERSATIONS, 32, 100, 2**30, "lazy", 0)


def played(engine: FakeEngine) -> Played:
    conversations = make_conversations(NUM_CONVERSATIONS, 0, engine.tokenize)
    return play(engine, conversations, lambda _: None)


def report(bare: FakeEngine, cellar: FakeEngine) -> Report:
    return make_report(SETTING, played(bare), played(cellar), 12.0)


@pytest.fixture(scope="module")
def good() -> Report:
    return report(FakeEngine(), FakeEngine(has_host=True))


def test_a_good_run_has_no_problems(good: Report):
    """Evicted, loaded and equal: nothing to complain about."""
    assert good.problems == ()
    assert good.exactness.compared_requests == 2 * NUM_CONVERSATIONS
    assert good.exactness.uncompared_requests == 0
    assert good.eviction.found_tokens == 0


def test_token_accounting_adds_up(good: Report):
    """Computed, device and host tokens of a kind are the lengths of its prompts."""
    run = good.with_kvcellar
    for kind, sources in run.prompt_tokens.items():
        total = sources.computed_tokens + sources.device_tokens + sources.host_tokens
        assert total > run.ttft[kind].num_requests * 2000
    returned = [run.prompt_tokens[k.value] for k in Kind if k.is_return]
    assert all(sources.host_tokens > 0 for sources in returned)
    assert (
        sum(
            sources.computed_tokens + sources.device_tokens + sources.host_tokens
            for sources in returned
        )
        == good.eviction.prompt_tokens
    )


def test_speed_compares_returns_with_both_ends(good: Report):
    """The fake's loads are nearly free, so a return costs what a device hit does."""
    for speed in good.speed.values():
        assert speed.times_faster_than_recomputing > 3
        assert speed.times_of_device_hit == pytest.approx(1, abs=0.25)


def test_one_wrong_token_is_a_problem():
    """A single differing token in returning answers is counted and fails the demo."""
    wrong = FakeEngine(has_host=True)
    wrong.is_wrong_after_load = True
    found = report(FakeEngine(), wrong)
    assert found.exactness.differing_tokens == 2 * NUM_CONVERSATIONS
    assert found.exactness.differing_logprobs == 2 * NUM_CONVERSATIONS
    assert any("differ from a device hit" in problem for problem in found.problems)


def test_without_eviction_there_is_no_proof():
    """A device that holds everything is a problem, and says what to do."""
    found = report(FakeEngine(100), FakeEngine(100, has_host=True))
    assert any("more --conversations" in problem for problem in found.problems)
    assert any("from host memory" in problem for problem in found.problems)


def test_kvcellar_that_does_nothing_is_a_problem():
    """A server whose connector never loads, or never counts, fails the demo."""
    problems = report(FakeEngine(), FakeEngine()).problems
    assert any("no token of the returning" in problem for problem in problems)
    assert any("stored bytes" in problem for problem in problems)
    assert any("loaded bytes" in problem for problem in problems)


def test_controls_from_the_host_are_a_problem():
    """A control that was loaded itself proves nothing."""
    found = report(FakeEngine(), FakeEngine(0, has_host=True))
    assert any("no device hits" in problem for problem in found.problems)


def test_json_holds_every_figure(good: Report):
    """The JSON is one object with the same figures as the report."""
    read = json.loads(good.to_json())
    assert read["problems"] == []
    assert read["exactness"]["differing_tokens"] == 0
    assert read["setting"]["num_conversations"] == NUM_CONVERSATIONS
    assert read["setting"]["mode"] == "lazy"
    returned = read["with_kvcellar"]["ttft"]["next_turn_after_eviction"]
    assert returned["num_requests"] == NUM_CONVERSATIONS


def test_table_names_every_claim(good: Report):
    """The table shows the ratios, the copies, the evictions and the comparison."""
    table = table_of(good)
    for claim in (
        "host memory 1.0 GiB, lazy;",
        "x faster than recomputing",
        "x of a device hit",
        "stored to host memory",
        f"12 of {2 * NUM_CONVERSATIONS} returning requests found nothing",
        f"exact: 0 of {2 * NUM_CONVERSATIONS * 8} tokens",
    ):
        assert claim in table
    assert max(map(len, table.splitlines())) <= 140


def test_uncounted_bytes_are_said_to_be(good: Report):
    """A missing counter is not shown as zero."""
    found = report(FakeEngine(), FakeEngine())
    assert "not counted stored" in table_of(found)
    assert json.loads(found.to_json())["stored_bytes"] is None


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 1), (50, 2), (51, 3), (90, 4), (100, 4)]
)
def test_percentiles_are_nearest_rank(percent: int, expected: int):
    """A percentile is always one of the values."""
    assert percentile([4, 2, 3, 1], percent) == expected


class NeverTheSame(FakeEngine):
    """Answers every question differently, as rounding may; remembers all prompts."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[int, ...]] = []

    def complete(
        self, prompt: Sequence[int], num_tokens: int, cache_salt: str
    ) -> Completion:
        """As the fake, with answers that are numbered."""
        self.asked.append(tuple(prompt))
        given = super().complete(prompt, num_tokens, cache_salt)
        tokens = (1000 + len(self.asked),) * num_tokens
        return dataclasses.replace(given, tokens=tokens)


def test_conversations_go_on_from_equal_first_and_own_last_answers():
    """Prompts of both salts are equal; a third turn follows what was just answered."""
    engine = NeverTheSame()
    played(engine)
    all_questions = list(questions(NUM_CONVERSATIONS))
    asked = list(zip(all_questions, engine.asked, strict=True))
    second_turns: dict[int, set[tuple[int, ...]]] = {}
    for number, (question, prompt) in enumerate(asked):
        if question.turn == 1:
            second_turns.setdefault(question.conversation, set()).add(prompt)
        if question.turn == 2:
            before, answered = asked[number - 1][1], 1000 + number
            assert prompt[: len(before)] == before
            following = prompt[len(before) : len(before) + script.ANSWER_TOKENS]
            assert following == (answered,) * script.ANSWER_TOKENS
    assert {len(prompts) for prompts in second_turns.values()} == {1}


def test_every_returning_question_has_a_control():
    """Each returning question repeats the prompt of a control asked before it."""
    asked = list(questions(NUM_CONVERSATIONS))
    controls = [q for q in asked if q.salt == "control"]
    for question in asked:
        if question.kind.is_return:
            assert any(
                (q.conversation, q.turn) == (question.conversation, question.turn)
                for q in controls
            )


def test_others_take_their_turn_before_a_conversation_returns():
    """Between leaving and returning, all other conversations are asked."""
    asked = [q for q in questions(NUM_CONVERSATIONS) if q.salt == "return"]
    for position, question in enumerate(asked):
        if not question.kind.is_return:
            continue
        before = [q.conversation for q in asked[:position]]
        last = len(before) - 1 - before[::-1].index(question.conversation)
        others = set(before[last + 1 :])
        assert len(others) == NUM_CONVERSATIONS - 1
