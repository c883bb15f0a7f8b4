"""What the formats that hold text share: from prompt and answer to a request."""

from kvcellar.replay.readers.reader import ReadSettings
from kvcellar.replay.readers.tokens import (
    BYTES_PER_NUMBER,
    DEFAULT_BLOCK_TOKENS,
    PrefixTable,
    make_encoder,
    pack_numbers,
)
from kvcellar.replay.trace import TraceRequest


class TextRequests:
    """Makes requests from text, with ids that are comparable across a trace.

    Attributes:
        block_tokens: tokens per prefix id.
    """

    def __init__(self, settings: ReadSettings) -> None:
        self.block_tokens = settings.block_tokens or DEFAULT_BLOCK_TOKENS
        self._encoder = make_encoder(settings.tokenizer)
        self._table = PrefixTable(self.block_tokens)

    def request(
        self,
        seconds: float,
        prompt: str | list[int],
        answer: str | None,
        session: str = "",
    ) -> TraceRequest:
        """Make the request that sends ``prompt`` and is given ``answer``.

        Args:
            seconds: its arrival.
            prompt: all that the model reads: a text, or its token numbers.
            answer: the text that it writes; None where unknown. Left out behind token
                numbers if no tokenizer can turn it into such numbers.
            session: conversation that the request belongs to.
        """
        tokens, width = self._encode(prompt)
        num_prompt_tokens = len(tokens) // width
        if answer is not None and width == self._encoder.bytes_per_token:
            tokens += self._encoder.encode(answer)
        ids = self._table.ids(tokens, width)
        num_full = num_prompt_tokens // self.block_tokens
        return TraceRequest(
            seconds,
            num_prompt_tokens,
            len(tokens) // width - num_prompt_tokens,
            ids[:num_full],
            ids[num_full:],
            session,
        )

    def _encode(self, prompt: str | list[int]) -> tuple[bytes, int]:
        if isinstance(prompt, str):
            return self._encoder.encode(prompt), self._encoder.bytes_per_token
        return pack_numbers(prompt), BYTES_PER_NUMBER
