"""What each attention kind must hold so that a prompt can be resumed: pure integers."""

from kvcellar.attention.for_group import rule_for
from kvcellar.attention.rule import RetentionRule

__all__ = ["RetentionRule", "rule_for"]
