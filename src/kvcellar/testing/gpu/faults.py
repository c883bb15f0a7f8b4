"""Drivers that forget one thing: what the ordering checks must notice."""

from kvcellar.device.driver import DeviceError, Driver, Event, Runs, Stream


class ForwardingDriver:
    """Hands everything to another driver."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._fences: list[Event] = []

    def attach_thread(self) -> None:
        """As the other driver."""
        self._driver.attach_thread()

    def compute_stream(self) -> Stream:
        """As the other driver."""
        return self._driver.compute_stream()

    def new_stream(self, name: str) -> Stream:
        """As the other driver."""
        return self._driver.new_stream(name)

    def record(self, stream: Stream) -> Event:
        """As the other driver; marks of the compute stream are remembered."""
        event = self._driver.record(stream)
        if stream == self._driver.compute_stream():
            self._fences.append(event)
        return event

    def arm(self) -> None:
        """Begin to fail, if this or the other driver is one that can be told to."""
        if isinstance(self._driver, ForwardingDriver):
            self._driver.arm()

    def is_fence(self, event: Event) -> bool:
        """Whether the mark was put behind model work."""
        return any(event is fence for fence in self._fences)

    def wait(self, stream: Stream, event: Event) -> None:
        """As the other driver."""
        self._driver.wait(stream, event)

    def is_done(self, event: Event) -> bool:
        """As the other driver."""
        return self._driver.is_done(event)

    def seconds_between(self, begin: Event, end: Event) -> float:
        """As the other driver."""
        return self._driver.seconds_between(begin, end)

    def copy(self, stream: Stream, runs: Runs, *, is_pinned: bool) -> None:
        """As the other driver."""
        self._driver.copy(stream, runs, is_pinned=is_pinned)

    def register(self, address: int, num_bytes: int) -> None:
        """As the other driver."""
        self._driver.register(address, num_bytes)

    def unregister(self, address: int) -> None:
        """As the other driver."""
        self._driver.unregister(address)


class Unfenced(ForwardingDriver):
    """Copies do not wait for the model's work."""

    def wait(self, stream: Stream, event: Event) -> None:
        """Wait for other copies only."""
        if not self.is_fence(event):
            super().wait(stream, event)


class Unordered(ForwardingDriver):
    """Stores and loads do not wait for each other."""

    def wait(self, stream: Stream, event: Event) -> None:
        """Wait for the model's work only."""
        if self.is_fence(event):
            super().wait(stream, event)


class Hasty(ForwardingDriver):
    """Every mark counts as passed at once."""

    def is_done(self, event: Event) -> bool:
        """Yes."""
        del event
        return True


class HalfFailing(ForwardingDriver):
    """Once armed, queues the first half of each job's copies and then fails.

    Attributes:
        is_armed: whether it does.
    """

    is_armed = False

    def arm(self) -> None:
        """Begin to fail."""
        self.is_armed = True

    def copy(self, stream: Stream, runs: Runs, *, is_pinned: bool) -> None:
        """Queue half, or all.

        Raises:
            DeviceError: after half.
        """
        if not self.is_armed:
            super().copy(stream, runs, is_pinned=is_pinned)
            return
        half = slice(0, (len(runs) + 1) // 2)
        part = Runs(runs.destinations[half], runs.sources[half], runs.sizes[half])
        super().copy(stream, part, is_pinned=is_pinned)
        raise DeviceError("planted fault after half of the copies")
