"""The folder of sockets: private, found by both processes, free of leftovers."""

import os
import socket

import pytest

from kvcellar.status.run_folder import (
    make_private,
    new_socket_path,
    remove_leftovers,
    run_folder,
    sockets_near,
)


def test_the_folder_follows_the_environment(short_folder):
    """Ours wins, then the user's runtime folder if it is there and short enough."""
    runtime = {"XDG_RUNTIME_DIR": str(short_folder)}
    given = {"KVCELLAR_RUN_DIR": "/run/elsewhere"}
    assert "/run/elsewhere" == str(run_folder(runtime | given, 7))
    assert short_folder / "kvcellar" == run_folder(runtime, 7)
    for missing in ({}, {"XDG_RUNTIME_DIR": str(short_folder / "none")}):
        assert "/tmp/kvcellar-7" == str(run_folder(missing, 7))
    long = short_folder / ("long" * 20)
    long.mkdir()
    assert "/tmp/kvcellar-7" == str(run_folder({"XDG_RUNTIME_DIR": str(long)}, 7))


def test_the_folder_is_its_owners_alone(short_folder):
    """It is made with mode 0700, and refused if others may enter or it is a link."""
    folder = short_folder / "a" / "run"
    make_private(folder)
    make_private(folder)
    assert 0o700 == folder.stat().st_mode & 0o777
    folder.chmod(0o750)
    with pytest.raises(PermissionError, match="KVCELLAR_RUN_DIR"):
        make_private(folder)
    folder.chmod(0o700)
    link = short_folder / "link"
    link.symlink_to(folder)
    with pytest.raises(PermissionError):
        make_private(link)


def test_engines_of_one_server_are_found(short_folder):
    """An API server's engine is its child or itself; else its parent's other child."""
    names = ("50-40-0.sock", "60-50-0.sock", "70-9-0.sock", "80-9-1.sock")
    for name in (*names, "notes.txt", "1-2.sock", "90-9-0.sock.tmp"):
        (short_folder / name).touch()

    def found(process_id, parent_id):
        near = sockets_near(short_folder, process_id, parent_id)
        return sorted(path.name for path in near)

    assert ["50-40-0.sock", "60-50-0.sock"] == found(50, 1)
    assert ["70-9-0.sock", "80-9-1.sock"] == found(9, 1)
    assert ["70-9-0.sock", "80-9-1.sock"] == found(77, 9)
    assert [] == found(123, 456)
    short_folder.chmod(0o755)
    assert [] == found(50, 1)  # somebody else may have put it there
    short_folder.chmod(0o700)
    assert [] == sockets_near(short_folder / "none", 1, 2)


def test_only_leftovers_are_removed(short_folder):
    """A socket that somebody listens on stays; one of a dead server goes."""
    alive, dead = new_socket_path(short_folder), new_socket_path(short_folder)
    assert alive != dead
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as ended,
    ):
        listener.bind(os.fspath(alive))
        listener.listen()
        ended.bind(os.fspath(dead))
        ended.listen()
        ended.close()
        assert [dead] == remove_leftovers(short_folder)
        assert [alive] == list(short_folder.iterdir())
