"""How far a shadow's word holds, told by what came true while its order was followed.

A shadow knows nothing of answers, of checkpoints inside prompts, of what is pinned.
What it claims too much or too little shows when its order is followed. Where shadows
claim too little, that of an order that was not followed is expected to do so as well;
where they claim too much it is believed, so that it is tried rather than never known.
"""

TRUSTED_PROMPTS = 500  # after so many, what came true counts 1/e
FORGOTTEN_PROMPTS = 20_000  # after so many of another order
DOUBT_PROMPTS = 400  # claims of so many are taken to come true before any was seen
DOUBT = 0.01  # and at least this share of all that is asked for


class Trust:
    """Of one order, or of all; 1 until there is something to compare."""

    def __init__(self) -> None:
        self._claimed = self._came_true = self._asked = self._num_prompts = 0.0

    def compare(self, num_asked: int, claimed: int, real: int) -> None:
        """A prompt has come while the order was followed; counts are of chunks.

        Args:
            num_asked: of the whole prompt.
            claimed: that the shadow would have loaded.
            real: that were loaded.
        """
        fade = 1.0 - 1.0 / TRUSTED_PROMPTS
        self._claimed = self._claimed * fade + claimed
        self._came_true = self._came_true * fade + real
        self._asked = self._asked * fade + num_asked
        self._num_prompts = self._num_prompts * fade + 1.0

    def forget(self) -> None:
        """A prompt has come while another was followed; in the end it may try again."""
        fade = 1.0 - 1.0 / FORGOTTEN_PROMPTS
        self._claimed *= fade
        self._came_true *= fade
        self._num_prompts *= fade

    def ratio(self, expected: float = 1.0) -> float:
        """Hits to be had for each that the shadow claims.

        Args:
            expected: what it is taken to be until something is known.
        """
        if not self._asked:
            return expected
        doubt = max(
            DOUBT * self._asked, DOUBT_PROMPTS * self._claimed / self._num_prompts
        )
        return (self._came_true + expected * doubt) / (self._claimed + doubt)
