"""Which ranks will keep one copy of what they all hold, by the connector's rules."""

from kvcellar.config import Settings
from kvcellar.errors import ConfigError
from kvcellar.layout.models import ModelLayout


def num_sharing_ranks(
    model: ModelLayout, settings: Settings, ranks_per_node: int
) -> int:
    """Consecutive ranks that share an arena; 1 if each has its own.

    Whether the system lets processes share memory shows only at a start.

    Raises:
        ConfigError: sharing is asked for and cannot be had.
    """
    if settings.share_replicated == "off":
        return 1
    found = model.num_identical_ranks
    if found == 1 and settings.share_replicated == "on":
        found = model.num_repeating_ranks
    fits = ranks_per_node % found == 0
    if settings.share_replicated == "on" and (found == 1 or not fits):
        reason = f"no two ranks of {model.name} hold the same bytes"
        if found > 1:
            reason = f"the {found} ranks that hold the same bytes are on several nodes"
        raise ConfigError(
            f'share_replicated="on" cannot be done: {reason}; set it to "auto"'
        )
    return found if fits else 1
