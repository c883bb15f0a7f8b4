"""Which ranks will keep one copy of what they all hold, by the connector's rules."""

import math

from kvcellar.config import Settings
from kvcellar.errors import ConfigError
from kvcellar.layout.models import ModelLayout


def num_sharing_ranks(
    model: ModelLayout, settings: Settings, ranks_per_node: int
) -> int:
    """Consecutive ranks of one node that share an arena; 1 if each has its own.

    Whether the system lets processes share memory shows only at a start.

    Raises:
        ConfigError: sharing is asked for and cannot be had.
    """
    if settings.share_replicated == "off":
        return 1
    found = model.num_identical_ranks
    if found == 1 and settings.share_replicated == "on":
        found = model.num_repeating_ranks
    found = math.gcd(found, ranks_per_node)
    if found == 1 and settings.share_replicated == "on":
        raise ConfigError(
            f'share_replicated="on" has nothing to share: no two ranks of {model.name} '
            'on one node hold the same bytes; set it to "auto"'
        )
    return found
