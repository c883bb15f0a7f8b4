"""The demo from end to end: make the model, play both servers, report."""

import contextlib
import logging
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from kvcellar.demo.budget import NUM_HELD_CONVERSATIONS
from kvcellar.demo.engine import running_engine
from kvcellar.demo.play import Played, play
from kvcellar.demo.progress import Progress
from kvcellar.demo.report import Report, Setting, make_report
from kvcellar.demo.script import (
    CONTROL_SALT,
    Conversation,
    Kind,
    Question,
    make_conversations,
    questions,
)
from kvcellar.demo.target import Target, local_target, tiny_target
from kvcellar.errors import ConfigError
from kvcellar.serve.address import free_port
from kvcellar.serve.command import ServeSettings

logger = logging.getLogger(__name__)

# Twice what the device holds, so that each is evicted by those that follow it.
MIN_CONVERSATIONS = 2 * NUM_HELD_CONVERSATIONS


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """What ``kvcellar demo`` was asked for; exactly one of the first two is given.

    Attributes:
        num_ranks: processes that share the model by tensor parallelism.
        share_replicated: the connector's setting of that name.
    """

    tiny_name: str | None
    model_path: str | None
    host_memory_bytes: int
    mode: str
    num_conversations: int
    seed: int
    keep_logs: bool
    num_ranks: int = 1
    share_replicated: str | None = None


def run_demo(settings: DemoSettings) -> Report:
    """Play the script without kvcellar and with it, and compare.

    Raises:
        ConfigError: a setting cannot work.
        CellarError: a server did not start or failed.
    """
    if settings.num_conversations < MIN_CONVERSATIONS:
        raise ConfigError(
            f"conversations={settings.num_conversations} fit on the device and would "
            f"never be evicted; give at least {MIN_CONVERSATIONS}"
        )
    if settings.num_ranks < 1:
        raise ConfigError(
            f"tensor_parallel={settings.num_ranks} is no number of ranks; give at "
            "least 1"
        )
    started = time.monotonic()
    with (
        _interrupted_by_sigterm(),
        Progress(sys.stderr) as progress,
        _log_folder(keep=settings.keep_logs) as folder,
    ):
        stage = _Stage(settings, folder, progress)
        bare = stage.play("without kvcellar", host_memory_bytes=None)
        cellar = stage.play("with kvcellar", settings.host_memory_bytes)
    return make_report(stage.setting(), bare, cellar, time.monotonic() - started)


@dataclass(slots=True)
class _Stage:
    """What both servers share: the model, the conversations, the log folder."""

    settings: DemoSettings
    folder: Path
    progress: Progress
    target: Target = field(init=False)
    conversations: list[Conversation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.progress.stage("preparing the model")
        self.target = (
            tiny_target(self.settings.tiny_name)
            if self.settings.tiny_name is not None
            else local_target(str(self.settings.model_path))
        )

    def play(self, label: str, host_memory_bytes: int | None) -> Played:
        self.progress.stage(f"{label}: starting the server")
        serve_settings = ServeSettings(
            model=str(self.target.path),
            host_memory_bytes=host_memory_bytes,
            mode=self.settings.mode,
            share_replicated=self.settings.share_replicated,
            vllm_arguments=self.target.vllm_arguments(
                free_port(), self.settings.num_ranks
            ),
        )
        log = self.folder / f"{label.replace(' ', '-')}.log"
        with running_engine(serve_settings, log, self._show_wait) as client:
            if not self.conversations:
                self.conversations = make_conversations(
                    self.settings.num_conversations, self.settings.seed, client.tokenize
                )
            played = play(client, self.conversations, self._counter(label))
            self.progress.stage(f"{label}: stopping the server")
        return played

    def setting(self) -> Setting:
        return Setting(
            model=self.target.description,
            num_conversations=self.settings.num_conversations,
            block_tokens=self.target.block_tokens,
            num_device_blocks=self.target.num_device_blocks,
            host_memory_bytes=self.settings.host_memory_bytes,
            mode=self.settings.mode,
            seed=self.settings.seed,
            num_ranks=self.settings.num_ranks,
        )

    def _show_wait(self, waited_seconds: float) -> None:
        self.progress.detail(f"({waited_seconds:.0f} s)")

    def _counter(self, label: str) -> Callable[[Question], None]:
        total = sum(1 for _ in questions(self.settings.num_conversations))
        asked = 0

        def count(question: Question) -> None:
            nonlocal asked
            asked += 1
            self.progress.stage(f"{label}: {_stage_of(question)}")
            self.progress.detail(f"(request {asked} of {total})")

        return count


def _stage_of(question: Question) -> str:
    if question.kind is Kind.WARM_UP:
        return "warm-up"
    if question.salt == CONTROL_SALT:
        return "first turns, and next turns while on the device"
    if question.kind is Kind.FIRST:
        return "first turns, each evicting an earlier one"
    return "returning after eviction"


@contextlib.contextmanager
def _log_folder(*, keep: bool) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="kvcellar-demo-"))
    try:
        yield folder
    finally:
        if keep:
            logger.info("the servers' logs are in %s", folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the demo as Ctrl-C does, so that servers are ended."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    previous = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, previous, strict=True):
            signal.signal(number, handler)
