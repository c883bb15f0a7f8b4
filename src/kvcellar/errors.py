"""Every error kvcellar raises.

    CellarError
    ├─ ConfigError (also ValueError)   the user's mistake, raised at start
    ├─ IncompatibleError               engine, model or layout cannot be served
    ├─ TierError                       a tier failed; is_retryable says whether to retry
    ├─ ClosedError                     used after close()
    └─ InvariantError                  our bug: an illegal transition

A miss, and "no room to store", are return values, never errors. Messages say
what, with which value, and what to do; lower case, no trailing dot.
"""


class CellarError(Exception):
    """Base of all errors raised by kvcellar."""


class ConfigError(CellarError, ValueError):
    """A setting is unknown, of the wrong type, or impossible on this machine."""


class IncompatibleError(CellarError):
    """The engine, the model or its cache layout is one kvcellar cannot serve."""


class TierError(CellarError):
    """A tier could not do what it was asked.

    Attributes:
        tier: name of the tier, such as ``"host"``.
        operation: what was tried, such as ``"allocate"``.
        is_retryable: whether the same call may succeed later.
    """

    def __init__(
        self, tier: str, operation: str, reason: str, *, is_retryable: bool = False
    ) -> None:
        super().__init__(f"{tier} tier: {operation} failed: {reason}")
        self.tier = tier
        self.operation = operation
        self.is_retryable = is_retryable


class ClosedError(CellarError):
    """The object was used after it had been closed."""


class InvariantError(CellarError):
    """A state was reached that the transition tables forbid: a bug of ours."""
