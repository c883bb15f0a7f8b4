"""The life of a node and of a checkpoint: one table, and nothing else may change state.

    storing -> stored -> ready -> evicting -> gone

* *storing*: its copy is under way.
* *stored*: its bytes are in host memory, an ancestor's are not yet.
* *ready*: it and all its ancestors may be loaded.
* *evicting*: no look-up finds it any more, but a job still uses its cells.
* *gone*: its cells are given back.
"""

import enum

from kvcellar.errors import InvariantError


class State(enum.Enum):
    """Where a node or checkpoint stands; see the module's table."""

    STORING = "storing"
    STORED = "stored"
    READY = "ready"
    EVICTING = "evicting"
    GONE = "gone"

    # Members are single objects; the library's own hash is slow and asked for twice in
    # every transition.
    __hash__ = object.__hash__


# Looking a member up in its class takes as long as a call, and is done in every step.
STORING, STORED, READY, EVICTING, GONE = State

TRANSITIONS: dict[State, frozenset[State]] = {
    State.STORING: frozenset({State.STORED, State.EVICTING, State.GONE}),
    State.STORED: frozenset({State.READY, State.EVICTING, State.GONE}),
    State.READY: frozenset({State.EVICTING, State.GONE}),
    State.EVICTING: frozenset({State.GONE}),
    State.GONE: frozenset(),
}


def require(old: State, new: State) -> State:
    """Return ``new`` if the table allows the step from ``old``.

    Raises:
        InvariantError: it does not.
    """
    if new not in TRANSITIONS[old]:
        raise InvariantError(f"illegal transition {old.value} -> {new.value}")
    return new
