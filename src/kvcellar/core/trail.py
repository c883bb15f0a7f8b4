"""What accounting remembers of one request."""

from collections.abc import Sequence
from dataclasses import dataclass

from kvcellar.core.account import Draft
from kvcellar.reasons import MissReason


@dataclass(slots=True)
class Trail:
    """One request's way through the planner.

    Attributes:
        hashes: its prefix hashes; grows as it decodes.
        limit: chunks that its last look-up could have found.
        is_asked: whether it has been looked up since it was last admitted.
        refusal: why the last look-up promised less than there is; None if it did not.
        draft: its account until it runs.
        is_accounted: whether it has run, so that its account is closed.
        num_held: chunks from its start that are held, or wait to be.
        computed_tokens: tokens computed as far as the planner was told.
        num_prompt_tokens: tokens of the prompt.
        unstored: why chunks that it computed are not stored; None if they are.
        next_key: key of its first chunk that is not held, if others may find it by it.
    """

    hashes: Sequence[bytes] = ()
    limit: int = 0
    is_asked: bool = False
    refusal: MissReason | None = None
    draft: Draft | None = None
    is_accounted: bool = False
    num_held: int = 0
    computed_tokens: int = 0
    num_prompt_tokens: int = 0
    unstored: MissReason | None = None
    next_key: bytes | None = None
