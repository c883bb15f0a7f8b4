"""Which boundaries get a checkpoint.

* *End of prompt*: the last boundary inside the prompt, for the next turn
  (``placements/prompt_end.py``). With a drafter also the one before, for its margin,
  and wherever most of its blocks are shared with the last one's: whoever edits the end
  of a prompt then loses a chunk, not everything.
* *Junction*: where a prompt leaves a known path; whoever shares that far again
  profits.
* *Spaced*: inside a long prefill, as many as a byte budget allows
  (``placements/geometric.py``, ``fixed.py``). A deeper one supersedes them at once, so
  when memory is short they are the first to go.
* *Handed over*: what the engine itself keeps. Recurrent state can be copied then and at
  no other time.
* *End of turn*: boundaries that decoding crosses, at a fixed spacing
  (``placements/turn_end.py``). Each supersedes the last, but not the end of the prompt:
  whether a later prompt repeats the answer is not known.

``placements/sets.py`` names the sets of these that a user can choose.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kvcellar.attention.hybrid import HybridRules
from kvcellar.config import Settings
from kvcellar.core.placements.prompt_end import prompt_ends
from kvcellar.core.placements.sets import RULE_SETS, RuleSet
from kvcellar.core.placements.turn_end import turn_ends
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
        spaced_per_token: boundaries kept inside a prefill, per token of it.
        rules: which of the rules apply.
    """

    chunk_tokens: int
    decode_tokens: int
    step_back_tokens: int = 0
    spaced_per_token: float = 0.0
    rules: RuleSet = RULE_SETS["geometric"]

    @classmethod
    def for_rules(cls, rules: HybridRules, settings: Settings) -> "Placement":
        """Round the spacing up to whole chunks; step back for a drafter or if cheap."""
        chunk = rules.chunk_tokens
        decode_tokens = settings.decode_checkpoint_tokens or DEFAULT_DECODE_TOKENS
        spacing = -(-decode_tokens // chunk) * chunk
        steps_back = bool(rules.margin_chunks) or _is_cheap_to_step_back(rules)
        return cls(
            chunk,
            spacing,
            chunk if steps_back else 0,
            _spaced_per_token(rules, settings.spaced_checkpoint_share),
            RULE_SETS[settings.placement],
        )

    def spaced(self, first_token: int, num_prompt_tokens: int) -> tuple[int, ...]:
        """Boundaries inside a prefill to keep besides those at its end, ascending.

        Args:
            first_token: where the prefill starts; what lies before was loaded or is
                on the device.
            num_prompt_tokens: where it ends.
        """
        chunk = self.chunk_tokens
        last = num_prompt_tokens // chunk * chunk
        most = int((last - first_token) * self.spaced_per_token)
        return self.rules.spacing(first_token, last, chunk, most)

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
        ends = prompt_ends(num_prompt_tokens, chunk, self.step_back_tokens)
        offered = (b for b in handed_over if b % chunk == 0)
        candidates = [*record.inside, *ends, *offered]
        if self.rules.has_junctions:
            candidates.append(record.junction)
        wanted = {b for b in candidates if after < b <= through}
        if self.rules.has_turn_ends:
            wanted.update(turn_ends(max(after, ends[-1]), through, self.decode_tokens))
        wanted.discard(0)
        return sorted(wanted)


def _is_cheap_to_step_back(rules: HybridRules) -> bool:
    """Whether the checkpoint one chunk earlier adds few bytes to the largest one."""
    total, last = rules.largest_checkpoint
    held = {p: set(blocks) for p, blocks in rules.checkpoint_blocks(last)}
    earlier = sum(
        len(set(blocks) - held.get(position, set())) * rules.layout.cell_bytes(position)
        for position, blocks in rules.checkpoint_blocks(last - rules.chunk_tokens)
    )
    return total > 0 and earlier <= total * MOST_EXTRA


def _spaced_per_token(rules: HybridRules, share: float) -> float:
    """How many checkpoints ``share`` of the chunks' bytes pays for, per token.

    0 where chunks alone suffice, and where the engine keeps only the states that it
    sets aside: those come by themselves.
    """
    checkpoint_bytes, _ = rules.largest_checkpoint
    if not checkpoint_bytes or rules.is_overwritten:
        return 0.0
    return share * rules.chunk_bytes / (checkpoint_bytes * rules.chunk_tokens)
