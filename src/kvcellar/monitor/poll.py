"""Asking a server in the background, so that a slow one holds up nobody.

One question at a time, each in a thread that ends with the process: who leaves does not
wait for an answer.
"""

import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

from kvcellar.errors import CellarError, NoAnswerError

Fetch = Callable[[bool], Mapping[str, Any]]
"""Fetches a status; its argument says whether with history."""


class Poller:
    """Fetches when it is told to.

    Args:
        fetch: may take long and may raise ``CellarError``.
    """

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._outcomes: queue.SimpleQueue[Mapping[str, Any] | str] = queue.SimpleQueue()
        self.is_busy = False

    def ask(self, *, with_history: bool) -> None:
        """Begin to fetch; nothing if the last answer is still awaited."""
        if self.is_busy:
            return
        self.is_busy = True
        threading.Thread(
            target=self._run, args=(with_history,), name="kvcellar-top", daemon=True
        ).start()

    def take(self) -> Mapping[str, Any] | str | None:
        """An answer, or why there is none; None while it is awaited."""
        try:
            outcome = self._outcomes.get_nowait()
        except queue.Empty:
            return None
        self.is_busy = False
        return outcome

    def _run(self, with_history: bool) -> None:  # noqa: FBT001 -- a thread's argument
        try:
            self._outcomes.put(self._fetch(with_history))
        except NoAnswerError as error:
            self._outcomes.put(error.reason)  # whose server it is, everybody knows
        except CellarError as error:
            self._outcomes.put(str(error))
        except Exception as error:  # noqa: BLE001 -- else it would be awaited for ever
            self._outcomes.put(repr(error))
