"""What the demo asks: the conversations, and the order in which they take turns.

Each conversation is asked twice under two cache salts, which keep their cached tokens
apart as if they were two users with the same text:

    control   first turn, next turn at once, the same again at once: device hits
    return    first turn of every conversation; then, when all were evicted by those
              that followed, the next turn of every one; then the same prompt again

A returning request under "return" and its control have the same prompt, and where both
start from the same number of cached tokens, they must give the same answer. Each
returning request is followed at once by one that hits the device, so that both kinds
meet the same noise of the machine.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kvcellar.demo.text import document

ANSWER_TOKENS = 8
TURN_TOKENS = 320
_SHORTEST_FIRST_TURN_TOKENS = 2304
_LONGEST_FIRST_TURN_TOKENS = 2816
NUM_TURNS = 3
LONGEST_PROMPT_TOKENS = _LONGEST_FIRST_TURN_TOKENS + (NUM_TURNS - 1) * (
    ANSWER_TOKENS + TURN_TOKENS
)
MAX_MODEL_TOKENS = 3584  # the longest prompt and its answer, rounded up to 256
CONTROL_SALT, RETURN_SALT = "control", "return"
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
        turns: the first prompt, and what the user adds after each answer.
    """

    number: int
    turns: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Question:
    """One request of the script, in the order of asking.

    Attributes:
        turn: from 0; the prompt holds all turns up to this one and their answers.
    """

    kind: Kind
    conversation: int
    salt: str
    turn: int


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
        num_tokens = num_first + (NUM_TURNS - 1) * TURN_TOKENS
        text = document(number, seed, num_tokens * _CHARACTERS_PER_TOKEN)
        tokens = tuple(tokenize(text))[:num_tokens]
        later = range(num_first, num_tokens, TURN_TOKENS)
        turns = (tokens[start : start + TURN_TOKENS] for start in later)
        conversations.append(Conversation(number, (tokens[:num_first], *turns)))
    return conversations


def questions(num_conversations: int) -> Iterator[Question]:
    """All requests in order; the warm-up uses the conversation after the last."""
    everyone = range(num_conversations)
    for turn in (0, 1, 1):
        yield Question(Kind.WARM_UP, num_conversations, "warm-up", turn)
    for number in everyone:
        yield Question(Kind.FIRST, number, CONTROL_SALT, 0)
        yield Question(Kind.DEVICE_NEXT, number, CONTROL_SALT, 1)
        yield Question(Kind.DEVICE_SAME, number, CONTROL_SALT, 1)
    for number in everyone:
        yield Question(Kind.FIRST, number, RETURN_SALT, 0)
    for number in everyone:
        yield Question(Kind.RETURN_NEXT, number, RETURN_SALT, 1)
        yield Question(Kind.DEVICE_SAME, number, RETURN_SALT, 1)
    for number in everyone:
        yield Question(Kind.RETURN_SAME, number, RETURN_SALT, 1)
        yield Question(Kind.DEVICE_NEXT, number, RETURN_SALT, 2)
