"""One question that the doctor asks."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kvcellar.doctor.facts import Facts
from kvcellar.doctor.finding import Finding


@dataclass(frozen=True, slots=True)
class Check:
    """A question, and the function that answers it.

    Attributes:
        name: how people and JSON name it; words joined by dashes.
        question: what is asked, as a question.
        find: from facts to findings; none where the question does not arise.
        refuses: whether ``kvcellar serve`` does not start while it finds an error.
    """

    name: str
    question: str
    find: Callable[[Facts], Iterable[Finding]]
    refuses: bool = False
