"""What a user has chosen, and what the server said: all of a live view but its screen.

The app tells it of keys and of time passing, and asks it for a view.
"""

from kvcellar.errors import CellarError
from kvcellar.monitor.follow import Follower
from kvcellar.monitor.make_view import Wish, make_view
from kvcellar.monitor.poll import Poller
from kvcellar.monitor.top.picture import num_slots
from kvcellar.monitor.view import View

INTERVALS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
WINDOWS: tuple[float | None, ...] = (60.0, 600.0, None)


class Session:
    """One run of ``kvcellar top``.

    Args:
        follower: has taken in an answer already.
        poller: that asks for more.
        interval_seconds: between two answers.
    """

    def __init__(
        self, follower: Follower, poller: Poller, interval_seconds: float
    ) -> None:
        self.follower = follower
        self._poller = poller
        self.interval_seconds = interval_seconds
        self.is_paused = False
        self._window_seconds: float | None = WINDOWS[0]
        self._engine: int | None = None
        self._next_poll = 0.0

    def tick(self, now: float) -> bool:
        """Take in an answer and ask for the next, if it is time.

        Returns:
            Whether there may be something new to show.
        """
        outcome = self._poller.take()
        if isinstance(outcome, str):
            self.follower.failed(outcome)
        elif outcome is not None:
            self._take_in(outcome, now)
        if not self.is_paused and now >= self._next_poll:
            self._next_poll = now + self.interval_seconds
            self._poller.ask(with_history=self.follower.is_behind(now))
        return outcome is not None or bool(self.silence(now))

    def view(self, width: int, now: float) -> View:
        """The view for a terminal of that width."""
        wish = Wish(
            window_seconds=self._window_seconds,
            num_slots=num_slots(width),
            interval_seconds=self.interval_seconds,
            engine=self._engine,
        )
        return make_view(self.follower, wish, now, is_paused=self.is_paused)

    def silence(self, now: float) -> str:
        """As the follower says; nobody expects an answer while paused."""
        if self.is_paused:
            return ""
        return self.follower.silence(now, self.interval_seconds)

    @property
    def state(self) -> str:
        """In a word or two."""
        return "paused" if self.is_paused else f"every {self.interval_seconds:g} s"

    # -- keys ----------------------------------------------------------------------

    def pause(self) -> None:
        """Stop asking, or go on."""
        self.is_paused = not self.is_paused
        self._next_poll = 0.0

    def reset(self) -> None:
        """Let the window begin now; engines that have left are forgotten."""
        self.follower.reset()
        if self._engine not in self.follower.engines:
            self._engine = None

    def next_window(self) -> None:
        """A minute, ten minutes, since start."""
        at = WINDOWS.index(self._window_seconds)
        self._window_seconds = WINDOWS[(at + 1) % len(WINDOWS)]

    def next_engine(self) -> None:
        """All engines together, then each alone."""
        choices: list[int | None] = [None]
        if len(self.follower.engines) > 1:
            choices += sorted(self.follower.engines)
        at = choices.index(self._engine) if self._engine in choices else 0
        self._engine = choices[(at + 1) % len(choices)]

    def slower(self) -> None:
        """Ask less often."""
        longer = [i for i in INTERVALS if i > self.interval_seconds]
        self.interval_seconds = longer[0] if longer else self.interval_seconds

    def faster(self) -> None:
        """Ask more often, from now on."""
        shorter = [i for i in INTERVALS if i < self.interval_seconds]
        self.interval_seconds = shorter[-1] if shorter else self.interval_seconds
        self._next_poll = 0.0

    def _take_in(self, outcome: object, now: float) -> None:
        assert isinstance(outcome, dict)
        try:
            self.follower.answered(outcome, now)
        except CellarError as error:
            self.follower.failed(str(error))
