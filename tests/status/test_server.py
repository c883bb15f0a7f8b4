"""The status thread answers, survives every client, and leaves nothing behind."""

import json
import os
import socket
import threading

import pytest

from kvcellar.status import server as server_module
from kvcellar.status.server import StatusServer, ask


@pytest.fixture
def folder(short_folder):
    return short_folder / "run"


def connect(server):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(10)
    connection.connect(os.fspath(server.path))
    return connection


def test_a_question_is_answered_on_a_private_socket(folder):
    """One line of JSON in, one object out; the socket is its owner's alone."""
    server = StatusServer(folder, lambda question: {"asked": question}, lambda: None)
    try:
        assert {"asked": {"ask": "x"}} == ask(server.path, {"ask": "x"})
        assert 0o600 == server.path.stat().st_mode & 0o777
        assert [server.path] == list(folder.iterdir())
    finally:
        server.close()
    server.close()
    assert [] == list(folder.iterdir())
    with pytest.raises(FileNotFoundError):
        ask(server.path, {})


def test_bad_clients_and_failing_answers_end_nothing(folder, caplog):
    """Silence, rubbish, endless lines and errors of ours: the next one is answered."""

    def answer(question):
        if question.get("ask") == "fail":
            raise ZeroDivisionError("planted")
        return {"is": "well"}

    def tick():
        raise ZeroDivisionError("planted too")

    server = StatusServer(folder, answer, tick)
    try:
        for text in (b"", b"rubbish\n", b"[1]\n", b"x" * 10_000, b'{"ask": "fail"}\n'):
            with connect(server) as connection:
                try:
                    connection.sendall(text)
                    connection.shutdown(socket.SHUT_WR)
                    assert b"" == connection.recv(10)
                except (ConnectionResetError, BrokenPipeError):
                    pass  # it was dropped before it had said all
        assert {"is": "well"} == ask(server.path, {})
    finally:
        server.close()
    assert "planted" in caplog.text
    assert "planted too" in caplog.text


def test_a_client_that_says_nothing_is_dropped(folder, monkeypatch):
    """It holds the others up no longer than the time that a client has."""
    monkeypatch.setattr(server_module, "_CLIENT_SECONDS", 0.05)
    server = StatusServer(folder, lambda _: {"is": "well"}, lambda: None)
    try:
        with connect(server) as silent:
            assert {"is": "well"} == ask(server.path, {}, timeout_seconds=10)
            assert b"" == silent.recv(10)
    finally:
        server.close()


def test_ticks_come_without_clients(folder, monkeypatch):
    """The thread ticks by itself."""
    monkeypatch.setattr(server_module, "TICK_SECONDS", 0.01)
    ticked = threading.Semaphore(0)
    server = StatusServer(folder, lambda _: {}, ticked.release)
    try:
        for _ in range(3):
            assert ticked.acquire(timeout=10)
    finally:
        server.close()


def test_two_engines_of_one_process_have_a_socket_each(folder):
    """Neither takes the other's place, and each removes its own."""
    first = StatusServer(folder, lambda _: {"engine": 1}, lambda: None)
    second = StatusServer(folder, lambda _: {"engine": 2}, lambda: None)
    try:
        answers = [ask(server.path, {})["engine"] for server in (first, second)]
        assert [1, 2] == answers
        first.close()
        assert {"engine": 2} == ask(second.path, {})
    finally:
        first.close()
        second.close()


def test_a_long_answer_arrives_whole(folder):
    """More than a socket's buffer holds."""
    text = "x" * 2_000_000
    server = StatusServer(folder, lambda _: {"text": text}, lambda: None)
    try:
        assert len(json.dumps({"text": text})) == len(
            json.dumps(ask(server.path, {}, timeout_seconds=20))
        )
    finally:
        server.close()


def test_a_folder_that_cannot_be_had_is_an_os_error(short_folder):
    """The caller goes on without a status socket."""
    (short_folder / "file").touch()
    with pytest.raises(FileExistsError):
        StatusServer(short_folder / "file", lambda _: {}, lambda: None)
