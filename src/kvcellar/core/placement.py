"""Which boundaries get a checkpoint.

* *End of prompt*: the last boundary inside the prompt, for the next turn. When the
  prompt ends exactly there, also the one before, since repeating a prompt must
  recompute its last token. With a drafter also the one before, for its margin, and
  wherever most of its blocks are shared with the last one's: whoever edits the end
  of a prompt then loses a chunk, not everything.
* *Junction*: where a prompt leaves a known path; whoever shares that far again
  profits.
* *Handed over*: what the engine itself keeps. Recurrent state can be copied then and at
  no other time.
* *End of turn*: boundaries that decoding crosses, at a fixed spacing. They cannot wait
  for the last token: by then the window may have moved on. Each supersedes the last.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvcellar.attention.hybrid import HybridRules
from kvcellar.core.record import RequestRecord

MOST_EXTRA = 0.25  # of a checkpoint's bytes, for a second one a chunk earlier
DEFAULT_DECODE_TOKENS = 256  # a turn's end loses at most this much, cheap to recompute


@dataclass(frozen=True, slots=True)
class Placement:
    """The rule for one layout.

    Attributes:
        chunk_tokens: boundaries are multiples of this.
        decode_tokens: spacing of the boundaries kept while decoding, a multiple of
            ``chunk_tokens``.
        step_back_tokens: how far before the last boundary of a prompt another one is
            kept; 0 for none.
    """

    chunk_tokens: int
    decode_tokens: int
    step_back_tokens: int = 0

    @classmethod
    def for_rules(cls, rules: HybridRules, decode_tokens: int | None) -> "Placement":
        """Round the spacing up to whole chunks; step back for a drafter or if cheap."""
        chunk = rules.chunk_tokens
        spacing = -(-(decode_tokens or DEFAULT_DECODE_TOKENS) // chunk) * chunk
        steps_back = bool(rules.margin_chunks) or _is_cheap_to_step_back(rules)
        return cls(chunk, spacing, chunk if steps_back else 0)

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
        before = last - self.step_back_tokens
        candidates = (record.junction, before, repeat, last, *offered)
        wanted = {b for b in candidates if after < b <= through}
        first_decoded = max(after, last) // self.decode_tokens + 1
        last_decoded = through // self.decode_tokens
        for step in range(first_decoded, last_decoded + 1):
            wanted.add(step * self.decode_tokens)
        wanted.discard(0)
        return sorted(wanted)


def _is_cheap_to_step_back(rules: HybridRules) -> bool:
    """Whether the checkpoint one chunk earlier adds few bytes to the largest one."""
    layout, chunk = rules.layout, rules.chunk_tokens
    longest = max((g.span_tokens or 0 for g in layout.groups), default=0)
    first = (longest // chunk + 2) * chunk  # beyond all windows
    boundaries = range(first, first + longest + chunk, chunk)
    total, last = max((_num_bytes(rules, b, {}), b) for b in boundaries)
    held = {p: set(blocks) for p, blocks in rules.checkpoint_blocks(last)}
    return total > 0 and _num_bytes(rules, last - chunk, held) <= total * MOST_EXTRA


def _num_bytes(rules: HybridRules, boundary: int, held: Mapping[int, set[int]]) -> int:
    """Bytes of the checkpoint at ``boundary`` without the blocks that are held."""
    return sum(
        len(set(blocks) - held.get(position, set())) * rules.layout.cell_bytes(position)
        for position, blocks in rules.checkpoint_blocks(boundary)
    )
