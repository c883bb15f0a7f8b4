"""Asking the script's questions of one server and noting what it did."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kvcellar.demo.client import Client, Completion
from kvcellar.demo.metrics import TRANSFER_BYTES, TokenSources
from kvcellar.demo.script import (
    ANSWER_TOKENS,
    Conversation,
    Kind,
    Question,
    questions,
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A question and what came back."""

    question: Question
    completion: Completion


@dataclass(slots=True)
class Played:
    """All that one server did.

    Attributes:
        answers: in the order of asking, without the warm-up.
        sources: prompt tokens by source, per kind of request.
        stored_bytes: device to host, or None if the server does not count it.
        loaded_bytes: host to device, or None if the server does not count it.
    """

    answers: list[Answer] = field(default_factory=list)
    sources: dict[Kind, TokenSources] = field(default_factory=dict)
    stored_bytes: int | None = None
    loaded_bytes: int | None = None

    def of_kind(self, kind: Kind) -> list[Answer]:
        """The answers to one kind of question, in the order of asking."""
        return [answer for answer in self.answers if answer.question.kind is kind]


def play(
    client: Client,
    conversations: Sequence[Conversation],
    on_question: Callable[[Question], None],
) -> Played:
    """Ask every question of the script, one after the other."""
    played = Played()
    answers: dict[tuple[int, int], tuple[int, ...]] = {}
    before = client.metrics().token_sources()
    for question in questions(len(conversations) - 1):
        on_question(question)
        prompt = _prompt(conversations[question.conversation], question.turn, answers)
        completion = client.complete(prompt, ANSWER_TOKENS, question.salt)
        _keep_answer(answers, question, completion.tokens)
        after = client.metrics().token_sources()
        spent, before = after - before, after
        if question.kind is not Kind.WARM_UP:
            so_far = played.sources.get(question.kind, TokenSources(0, 0, 0))
            played.sources[question.kind] = so_far + spent
            played.answers.append(Answer(question, completion))
    samples = client.metrics()
    played.stored_bytes = samples.total(TRANSFER_BYTES, direction="store")
    played.loaded_bytes = samples.total(TRANSFER_BYTES, direction="load")
    return played


def _keep_answer(
    answers: dict[tuple[int, int], tuple[int, ...]],
    question: Question,
    tokens: tuple[int, ...],
) -> None:
    """Note with which answer the conversation goes on.

    After the first turn it is the first one given, so that the prompts of both salts
    are equal. After a later turn it is the last one: the same prompt from a longer
    cached prefix may be answered differently by rounding, and the device holds what
    was answered last.
    """
    key = (question.conversation, question.turn)
    if question.turn == 0:
        answers.setdefault(key, tokens)
    else:
        answers[key] = tokens


def _prompt(
    conversation: Conversation,
    turn: int,
    answers: Mapping[tuple[int, int], tuple[int, ...]],
) -> tuple[int, ...]:
    """All turns up to this one, each but the last followed by its answer."""
    prompt = conversation.turns[0]
    for number in range(turn):
        prompt += answers[conversation.number, number] + conversation.turns[number + 1]
    return prompt
