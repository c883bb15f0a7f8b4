"""Every error kvcellar raises.

    CellarError
    ├─ ConfigError (also ValueError)   the user's mistake, raised at start
    ├─ IncompatibleError               engine, model or layout cannot be served
    ├─ TierError                       a tier failed; is_retryable says whether to retry
    ├─ TraceError (also ValueError)    a trace file, or a record of it, is unreadable
    ├─ NoAnswerError                   a server that a tool asked gave no answer
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


class TraceError(CellarError, ValueError):
    """A trace file, or one record of it, cannot be read.

    Attributes:
        path: the file.
        line: line number from 1, or number of the record in a binary file; 0 where
            the whole file is meant.
        field: name of the field at fault; empty where no single one is.
        is_fatal: whether the rest of the file means nothing either, so that the record
            cannot be left out.
    """

    def __init__(
        self,
        path: str,
        line: int,
        problem: str,
        *,
        field: str = "",
        is_fatal: bool = False,
    ) -> None:
        where = f"{path}, line {line}" if line else path
        super().__init__(f"{where}: {problem}")
        self.path = path
        self.line = line
        self.field = field
        self.is_fatal = is_fatal


class NoAnswerError(CellarError):
    """A server gave no answer.

    Attributes:
        what: which server, and why.
        reason: why, in a few words.
        remedy: what to do.
    """

    def __init__(self, url: str, reason: str, remedy: str) -> None:
        self.what = f"no server answers at {url}: {reason}"
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"{self.what}; {remedy}")


class ClosedError(CellarError):
    """The object was used after it had been closed."""


class InvariantError(CellarError):
    """A state was reached that the transition tables forbid: a bug of ours."""
