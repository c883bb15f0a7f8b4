"""Between vLLM's requests and the planner's accounts of them."""

from typing import TYPE_CHECKING

from vllm.logger import init_logger

if TYPE_CHECKING:
    from vllm.v1.request import Request

    from kvcellar.core.account import Account

logger = init_logger("vllm.kvcellar.accounts")


def opening_of(request: "Request", chunk_tokens: int) -> int | None:
    """A number that stands for the tokens of a request's first chunk, and only them.

    Returns:
        None if there is no whole chunk, or if the prompt is given as embeddings.
    """
    if request.num_tokens <= chunk_tokens or request.prompt_embeds is not None:
        return None
    return hash(tuple(request.all_token_ids[:chunk_tokens]))


def log_account(account: "Account") -> None:
    """One line per request, at debug level."""
    misses = ", ".join(
        f"{stretch.num_tokens} {stretch.reason}" for stretch in account.misses
    )
    logger.debug(
        "request %s: %d prompt tokens = %d device + %d host + %d computed (%s)",
        account.request_id,
        account.prompt_tokens,
        account.device_tokens,
        account.host_tokens,
        account.computed_tokens,
        misses,
    )
