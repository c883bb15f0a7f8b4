"""What the demo asks: the conversations, and the order in which they take turns.

Each conversation is asked twice under two cache salts, which keep their cached tokens
apart as if they were two users with the same text:

    control   first turn, next turn at once, the same again at once: device hits
    return    first turn of every conversation; then, when all were evicted by those
              that followed, the next turn of every one; then the same again

A returning request under "return" and its control have the same prompt, and where both
start from the same number of cached tokens, they must give the same answer.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kvcellar.demo.text import document

ANSWER_TOKENS = 8
TURN_TOKENS = 192
_SHORTEST_FIRST_TURN_TOKENS = 2304
_LONGEST_FIRST_TURN_TOKENS = 2816
LONGEST_PROMPT_TOKENS = _LONGEST_FIRST_TURN_TOKENS + ANSWER_TOKENS + TURN_TOKENS
MAX_MODEL_TOKENS = 3072
# More than any tokenizer needs for a document on average; the rest is cut off.
_CHARACTERS_PER_TOKEN = 8


class Kind(StrEnum):
    """What a request finds when it is asked."""

    WARM_UP = "warm_up"
    FIRST = "first_turn"
    DEVICE_NEXT = "next_turn_on_device"
    DEVICE_SAME = "same_prompt_on_device"
    RETURN_NEXT = "next_turn_after_eviction"
    RETURN_SAME = "same_prompt_after_eviction"

    @property
    def is_return(self) -> bool:
        """Whether the conversation was evicted before this request."""
        return self in (Kind.RETURN_NEXT, Kind.RETURN_SAME)


CONTROL_OF = {
    Kind.RETURN_NEXT: Kind.DEVICE_NEXT,
    Kind.RETURN_SAME: Kind.DEVICE_SAME,
}


@dataclass(frozen=True, slots=True)
class Conversation:
    """The user's side of one conversation, as token ids.

    Attributes:
        number: from 0.
        first_turn: the whole first prompt.
        next_turn: what the user adds after the first answer.
    """

    number: int
    first_turn: tuple[int, ...]
    next_turn: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """One request of the script, in the order of asking.

    Attributes:
        follows_answer: whether the prompt is the first turn, its answer and the next
            turn; otherwise it is the first turn alone.
    """

    kind: Kind
    conversation: int
    salt: str
    follows_answer: bool


def make_conversations(
    num_conversations: int, seed: int, tokenize: Callable[[str], Sequence[int]]
) -> list[Conversation]:
    """Conversations of seeded lengths; one more than asked for serves the warm-up."""
    lengths = random.Random(seed)
    conversations = []
    for number in range(num_conversations + 1):
        num_first = lengths.randint(
            _SHORTEST_FIRST_TURN_TOKENS, _LONGEST_FIRST_TURN_TOKENS
        )
        num_tokens = num_first + TURN_TOKENS
        text = document(number, seed, num_tokens * _CHARACTERS_PER_TOKEN)
        tokens = tuple(tokenize(text))[:num_tokens]
        conversations.append(
            Conversation(number, tokens[:num_first], tokens[num_first:])
        )
    return conversations


def questions(num_conversations: int) -> Iterator[Question]:
    """All requests in order; the warm-up uses the conversation after the last."""
    everyone = range(num_conversations)
    for follows_answer in (False, True, True):
        yield Question(Kind.WARM_UP, num_conversations, "warm-up", follows_answer)
    for number in everyone:
        yield Question(Kind.FIRST, number, "control", follows_answer=False)
        yield Question(Kind.DEVICE_NEXT, number, "control", follows_answer=True)
        yield Question(Kind.DEVICE_SAME, number, "control", follows_answer=True)
    for number in everyone:
        yield Question(Kind.FIRST, number, "return", follows_answer=False)
    for kind in (Kind.RETURN_NEXT, Kind.RETURN_SAME):
        for number in everyone:
            yield Question(kind, number, "return", follows_answer=True)
