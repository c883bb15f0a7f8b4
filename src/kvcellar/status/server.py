"""A thread that answers questions on a socket, one at a time.

    client: one line of JSON      server: one JSON object, and the end of the stream

Whatever a client does costs the engine nothing but the moments in which this thread
holds the interpreter; nothing it raises leaves the thread.
"""

import contextlib
import functools
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kvcellar.status.run_folder import make_private, new_socket_path, remove_leftovers

logger = logging.getLogger(__name__)

Question = Mapping[str, Any]
Answer = Mapping[str, Any]

TICK_SECONDS = 1.0
_CLIENT_SECONDS = 2.0  # a client that is slower is dropped
_MOST_QUESTION_BYTES = 4096


class StatusServer:
    """Listens until it is closed.

    Args:
        folder: of sockets; made private if it is not there.
        answer: called in this server's thread with each question.
        tick: called in this server's thread about once a second.

    Raises:
        OSError: the folder or the socket cannot be had.
    """

    def __init__(
        self,
        folder: Path,
        answer: Callable[[Question], Answer],
        tick: Callable[[], None],
    ) -> None:
        self._answer = answer
        self._tick = tick
        make_private(folder)
        remove_leftovers(folder)
        self.path = new_socket_path(folder)
        self._is_closed = False
        self._listener = _listen(self.path)
        self._thread = threading.Thread(
            target=self._run, name="kvcellar-status", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening and remove the socket; safe to call twice."""
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join(2 * _CLIENT_SECONDS)
        self._listener.close()

    def _run(self) -> None:
        ticked = -TICK_SECONDS
        while not self._is_closed:
            now = time.monotonic()
            if now - ticked >= TICK_SECONDS:
                ticked = now
                self._try(self._tick)
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return  # closed
            with connection:
                self._try(functools.partial(self._serve, connection))

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(_CLIENT_SECONDS)
        question = _read_question(connection)
        if question is None:
            return
        answer = self._answer(question)
        connection.sendall(json.dumps(answer).encode())

    def _try(self, action: Callable[[], None]) -> None:
        """Nothing that goes wrong here may end the thread, let alone the engine."""
        try:
            action()
        except OSError:
            logger.debug("a client of the status socket has gone", exc_info=True)
        except Exception:
            logger.warning("the status socket could not answer", exc_info=True)


def ask(path: Path, question: Question, timeout_seconds: float = 5.0) -> Any:
    """Ask one server.

    Raises:
        OSError: nobody answers there, or not in time.
        ValueError: the answer is not JSON.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_seconds)
        connection.connect(os.fspath(path))
        connection.sendall(json.dumps(question).encode() + b"\n")
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    return json.loads(b"".join(parts))


def _listen(path: Path) -> socket.socket:
    """A listening socket that nobody but its owner can open.

    It gets its name only when it listens, so a name nobody listens on is a leftover.
    """
    unfinished = path.with_name(path.name + ".tmp")
    with contextlib.suppress(FileNotFoundError):
        unfinished.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(os.fspath(unfinished))
        unfinished.chmod(0o600)
        listener.listen(8)
        listener.settimeout(TICK_SECONDS)
        unfinished.rename(path)
    except BaseException:
        listener.close()
        raise
    return listener


def _read_question(connection: socket.socket) -> Question | None:
    """One line; None if it is not a JSON object."""
    text = b""
    while b"\n" not in text:
        part = connection.recv(_MOST_QUESTION_BYTES)
        text += part
        if not part or len(text) > _MOST_QUESTION_BYTES:
            return None
    try:
        question = json.loads(text)
    except ValueError:
        return None
    return question if isinstance(question, dict) else None
