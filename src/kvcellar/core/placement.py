"""Which boundaries get a checkpoint.

* *End of prompt*: the last boundary inside the prompt, for the next turn. When the
  prompt ends exactly there, also the one before, since repeating a prompt must
  recompute its last token; with a drafter one before again, for its margin.
* *Junction*: where a prompt leaves a known path; whoever shares that far again
  profits.
* *Handed over*: what the engine itself keeps. Recurrent state can be copied then and at
  no other time.
* *End of turn*: boundaries that decoding crosses, at a fixed spacing. They cannot wait
  for the last token: by then the window may have moved on. Each supersedes the last.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kvcellar.core.record import RequestRecord

DEFAULT_DECODE_TOKENS = 256  # a turn's end loses at most this much, cheap to recompute


@dataclass(frozen=True, slots=True)
class Placement:
    """The rule for one layout.

    Attributes:
        chunk_tokens: boundaries are multiples of this.
        decode_tokens: spacing of the boundaries kept while decoding, a multiple of
            ``chunk_tokens``.
        margin_tokens: how much further than a resume point a prompt must be shared.
    """

    chunk_tokens: int
    decode_tokens: int
    margin_tokens: int = 0

    @classmethod
    def for_chunks(
        cls, chunk_tokens: int, decode_tokens: int | None, margin_chunks: int = 0
    ) -> "Placement":
        """Round the spacing up to whole chunks."""
        wanted = decode_tokens or DEFAULT_DECODE_TOKENS
        spacing = -(-wanted // chunk_tokens) * chunk_tokens
        return cls(chunk_tokens, spacing, margin_chunks * chunk_tokens)

    def due(
        self,
        record: RequestRecord,
        num_prompt_tokens: int,
        through: int,
        handed_over: Sequence[int] = (),
    ) -> list[int]:
        """Boundaries in ``(record.placed_through, through]`` to keep, ascending."""
        after = record.placed_through
        assert after is not None  # set when the request's first tokens are computed
        chunk = self.chunk_tokens
        last = num_prompt_tokens // chunk * chunk
        repeat = (num_prompt_tokens - 1) // chunk * chunk
        offered = (b for b in handed_over if b % chunk == 0)
        before = last - self.margin_tokens
        candidates = (record.junction, before, repeat, last, *offered)
        wanted = {b for b in candidates if after < b <= through}
        first_decoded = max(after, last) // self.decode_tokens + 1
        last_decoded = through // self.decode_tokens
        for step in range(first_decoded, last_decoded + 1):
            wanted.add(step * self.decode_tokens)
        wanted.discard(0)
        return sorted(wanted)
