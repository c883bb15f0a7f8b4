"""One request: what the engine is told, what its cache must hold, what it became."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.v1.request import Request

from kvcellar.testing.oracle.content import NUM_TOKEN_IDS, Marks, TokenStream
from kvcellar.testing.oracle.events import Arrive, Extend, Picture, Segment

PLACEHOLDER = 0
"""The token id that stands for every place of every picture."""

STOP_TOKEN = NUM_TOKEN_IDS - 1
"""The token id that ends the answers of requests that can stop."""

Hasher = Callable[[Request], list[Any]]


@dataclass(slots=True)
class OracleRequest:
    """One request.

    Attributes:
        tokens: the prompt as the cache must know it; what the engine delivers is
            appended.
        max_new_tokens: the longest answer.
        identity: what besides tokens its whole prefix depends on.
        arrival: how it came; None where a test made the engine's request itself.
        segments: where the tokens before the present answer come from.
        answers: name of the stream that the model answers from, by position.
        updates: input that waits for the end of the present answer; None ends it all.
        is_idle: whether it is a session that waits for input.
    """

    request_id: str
    tokens: list[int]
    max_new_tokens: int
    identity: int = 0
    arrival: Arrive | None = None
    segments: tuple[Segment, ...] = ()
    answers: str = ""
    updates: deque[Extend | None] = field(default_factory=deque)
    is_idle: bool = False

    def __post_init__(self) -> None:
        """The first answer comes from the request's own stream."""
        self.answers = self.answers or self.request_id

    @property
    def is_session(self) -> bool:
        """Whether more input may follow the answer."""
        return self.arrival is not None and self.arrival.is_session

    @property
    def is_open(self) -> bool:
        """Whether a session has not been told that no more input will come."""
        return None not in self.updates

    @property
    def most_tokens(self) -> int:
        """Tokens that it can have at the end of all input that is known."""
        waiting = [update for update in self.updates if update is not None]
        more = sum(update.num_tokens + update.new_tokens for update in waiting)
        return len(self.tokens) + self.max_new_tokens + more

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """Pictures in the prompt."""
        return self.arrival.pictures if self.arrival else ()

    @property
    def marks(self) -> Marks:
        """What its prefix depends on besides tokens, and from which one on."""
        pictures = ((first, picture_number(p)) for first, *p in self.pictures)
        return ((0, self.identity), *pictures)

    def all_segments(self) -> tuple[Segment, ...]:
        """Where all its tokens come from, the answer's included."""
        first = sum(count for _, _, count in self.segments)
        answer = (self.answers, first, len(self.tokens) - first)
        return (*self.segments, answer) if answer[2] > 0 else self.segments

    def extend(self, seed: int, update: Extend, kept: int) -> None:
        """Go on as a session: new input follows the first ``kept`` tokens.

        Source: Scheduler._update_request_as_session, vLLM 0.32.
        """
        self.segments = (
            *cut(self.all_segments(), kept),
            (update.stream, 0, update.num_tokens),
        )
        del self.tokens[kept:]
        self.tokens += TokenStream(seed, update.stream).span(0, update.num_tokens)
        self.answers = update.stream
        self.max_new_tokens = update.new_tokens


def cut(segments: tuple[Segment, ...], num_tokens: int) -> tuple[Segment, ...]:
    """Segments of the first ``num_tokens`` tokens."""
    kept: list[Segment] = []
    for name, first, count in segments:
        if num_tokens > 0:
            kept.append((name, first, min(count, num_tokens)))
        num_tokens -= count
    return tuple(kept)


def arrived(seed: int, event: Arrive) -> OracleRequest:
    """The request of an event."""
    tokens = [
        token
        for name, first, count in event.segments
        for token in TokenStream(seed, name).span(first, first + count)
    ]
    for first, count, _ in event.pictures:
        tokens[first : first + count] = [PLACEHOLDER] * count
    # One number for all that vLLM's hashes of the first block tell apart.
    identity = event.salt | event.adapter << 8 | event.is_embedded << 16
    return OracleRequest(
        event.request_id,
        tokens,
        event.new_tokens,
        identity,
        event,
        event.segments,
    )


def engine_request(wanted: OracleRequest, hasher: Hasher) -> Request:
    """What the engine is told of a request that has just arrived."""
    event = wanted.arrival
    assert event is not None
    tokens = list(wanted.tokens)
    embeds = torch.tensor(tokens, dtype=torch.float32)[:, None]
    return Request(
        request_id=wanted.request_id,
        prompt_token_ids=None if event.is_embedded else tokens,
        prompt_embeds=embeds if event.is_embedded else None,
        sampling_params=_sampling(event, event.new_tokens),
        pooling_params=None,
        mm_features=[_feature(picture) for picture in event.pictures],
        lora_request=_adapter(event.adapter),
        cache_salt=str(event.salt) if event.salt else None,
        block_hasher=hasher,
        resumable=event.is_session,
    )


def engine_update(wanted: OracleRequest, update: Extend | None, seed: int) -> Request:
    """More input for a session, or the word that none will come."""
    event = wanted.arrival
    assert event is not None
    count = update.num_tokens if update else 0
    stream = TokenStream(seed, update.stream if update else "")
    return Request(
        request_id=wanted.request_id,
        prompt_token_ids=stream.span(0, count),
        sampling_params=_sampling(event, update.new_tokens if update else 1),
        pooling_params=None,
        resumable=update is not None,
    )


def picture_number(picture: list[int] | tuple[int, ...]) -> int:
    """What tells pictures apart: tokens and number."""
    count, number = picture
    return 1 + count + (number << 20)


def _feature(picture: Picture) -> MultiModalFeatureSpec:
    first, count, number = picture
    name = f"picture-{count}-{number}"
    return MultiModalFeatureSpec(
        data=None,
        modality="image",
        identifier=name,
        mm_position=PlaceholderRange(offset=first, length=count),
        mm_hash=name,
    )


def _adapter(number: int) -> LoRARequest | None:
    """Adapters 1 and 2 have one name and different places."""
    if not number:
        return None
    return LoRARequest(
        lora_name=f"adapter-{(number + 1) // 2}",
        lora_int_id=number,
        lora_path=f"/{number}",
    )


def _sampling(event: Arrive, new_tokens: int) -> SamplingParams:
    controls = dict(event.controls)
    return SamplingParams(
        extra_args={"kv_transfer_params": controls} if controls else None,
        max_tokens=new_tokens,
        ignore_eos=True,
        stop_token_ids=[STOP_TOKEN] if event.can_stop else None,
        skip_reading_prefix_cache=event.skips_reading,
    )
