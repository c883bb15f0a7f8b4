"""The retention rule that a group's layout asks for."""

from kvcellar.attention.chunked import ChunkedRule
from kvcellar.attention.full import FullRule
from kvcellar.attention.rule import RetentionRule
from kvcellar.attention.state import StateRule
from kvcellar.attention.window import WindowRule
from kvcellar.errors import IncompatibleError
from kvcellar.layout.groups import AttentionKind, GroupLayout


def rule_for(group: GroupLayout) -> RetentionRule:
    """Build the rule that says which blocks of ``group`` a resume point needs.

    Raises:
        IncompatibleError: the block covers no token, or the kind needs a span that
            the group lacks, or the group has a span that its kind cannot use.
    """
    if group.tokens_per_block < 1:
        raise IncompatibleError(
            f"group {group.group_id} has blocks of {group.tokens_per_block} tokens; "
            "a block must cover at least one token"
        )
    if group.kind in (AttentionKind.FULL, AttentionKind.STATE):
        _refuse_span(group)
        is_full = group.kind is AttentionKind.FULL
        return (FullRule if is_full else StateRule)(group.tokens_per_block)
    if group.kind is AttentionKind.WINDOW:
        return WindowRule(group.tokens_per_block, _span(group))
    return ChunkedRule(group.tokens_per_block, _span(group))


def _span(group: GroupLayout) -> int:
    if group.span_tokens is None or group.span_tokens < 1:
        raise IncompatibleError(
            f"{group.kind} group {group.group_id} has span_tokens={group.span_tokens}; "
            "its window or local chunk must be a positive number of tokens"
        )
    return group.span_tokens


def _refuse_span(group: GroupLayout) -> None:
    if group.span_tokens is not None:
        raise IncompatibleError(
            f"{group.kind} group {group.group_id} has span_tokens={group.span_tokens}; "
            "only window and chunked groups have a span, so set it to None"
        )
