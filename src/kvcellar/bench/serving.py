"""A running server: how fast it computes prompts and answers.

    time to first token  =  fixed part  +  tokens / prefill speed

Prompts of several lengths that no cache can know give the line. One request runs at a
time, so the server must be idle otherwise. The fixed part holds the step's overhead
and the handling of the request.
"""

import random
import secrets
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kvcellar.bench.line import line_through
from kvcellar.demo.client import Completion
from kvcellar.errors import CellarError, ConfigError

NUM_ROUNDS = 3
NUM_LENGTHS = 5
LONGEST_PROMPT_TOKENS = 8192
DECODE_PROMPT_TOKENS = 64
DECODE_TOKENS = 64
_SAMPLE = (
    "The quick brown fox jumps over the lazy dog; 1234567890 times, or so it says!"
)


class Engine(Protocol):
    """What is asked of a server; ``demo.client.Client`` is one."""

    def tokenize(self, text: str) -> list[int]:
        """The model's token ids of a text."""
        ...

    def complete(
        self, prompt: Sequence[int], num_tokens: int, cache_salt: str
    ) -> Completion:
        """Generate exactly ``num_tokens``."""
        ...


@dataclass(frozen=True, slots=True)
class PrefillPoint:
    """The median over some prompts of one length."""

    num_tokens: int
    ttft_seconds: float


@dataclass(frozen=True, slots=True)
class ServingSpeed:
    """What one server does.

    Attributes:
        points: what the line was drawn through.
        prefill_tokens_per_second: its slope.
        step_seconds: its fixed part.
        worst_miss: how far it is off at its worst point, as a share of that point.
        decode_seconds_per_token: between two tokens of one answer, nothing else going
            on.
    """

    points: tuple[PrefillPoint, ...]
    prefill_tokens_per_second: float
    step_seconds: float
    worst_miss: float
    decode_seconds_per_token: float


def prompt_lengths(given: Sequence[int] | None, max_model_tokens: int) -> list[int]:
    """Lengths to measure: those given, or halvings of the longest possible prompt.

    Raises:
        ConfigError: fewer than two lengths, or one that the model cannot take.
    """
    most = max_model_tokens - 1  # one token is answered
    if given is None:
        longest = min(most, LONGEST_PROMPT_TOKENS)
        given = [longest >> shift for shift in range(NUM_LENGTHS)]
    lengths = sorted(set(given))
    if len(lengths) < 2 or not 0 < lengths[0] <= lengths[-1] <= most:
        raise ConfigError(
            f"prompt_tokens={','.join(map(str, given))} cannot be measured; give two "
            f"or more lengths from 1 to {most}, which is what the model takes"
        )
    return lengths


def measure_serving(
    engine: Engine,
    lengths: Sequence[int],
    max_model_tokens: int,
    on_length: Callable[[int], None],
) -> ServingSpeed:
    """Ask a server for first tokens, and for answers.

    Args:
        lengths: of prompts, ascending; two or more.
        max_model_tokens: what prompt and answer may have together.
        on_length: told of each length before it is measured.

    Raises:
        CellarError: the server fails, knew a prompt, or gives times that make no sense.
    """
    asker = _Asker(engine)
    asker.ask(lengths[0], 1)  # warms up
    points = []
    for num_tokens in lengths:
        on_length(num_tokens)
        answers = [asker.ask(num_tokens, 1) for _ in range(NUM_ROUNDS)]
        seconds = statistics.median(answer.ttft_seconds for answer in answers)
        points.append(PrefillPoint(num_tokens, seconds))
    pairs = [(float(point.num_tokens), point.ttft_seconds) for point in points]
    line = line_through(pairs)
    if line.per_unit <= 0:
        raise CellarError(
            "the time to the first token does not grow with the prompt, so nothing can "
            "be said about its speed; try longer prompts, or an idle server"
        )
    num_answered = min(DECODE_TOKENS, max_model_tokens // 2)
    num_asked = min(DECODE_PROMPT_TOKENS, max_model_tokens - num_answered)
    answers = [asker.ask(num_asked, num_answered) for _ in range(NUM_ROUNDS)]
    return ServingSpeed(
        tuple(points),
        1.0 / line.per_unit,
        line.fixed,
        line.worst_miss(pairs),
        statistics.median(map(_seconds_per_token, answers)),
    )


def _seconds_per_token(answer: Completion) -> float:
    num_gaps = len(answer.tokens) - 1
    return (answer.last_token_seconds - answer.ttft_seconds) / num_gaps


class _Asker:
    """Sends prompts of valid tokens in an order that nobody has sent before."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tokens = sorted(set(engine.tokenize(_SAMPLE)))
        self._random = random.Random(0)

    def ask(self, num_prompt_tokens: int, num_tokens: int) -> Completion:
        """One request of which no cache holds anything."""
        prompt = self._random.choices(self._tokens, k=num_prompt_tokens)
        salt = f"kvcellar-bench-{secrets.token_hex(8)}"
        answer = self._engine.complete(prompt, num_tokens, salt)
        if answer.num_cached_tokens:
            raise CellarError(
                f"the server found {answer.num_cached_tokens} tokens of a prompt that "
                "it had never seen; it does not keep cache salts apart"
            )
        return answer
