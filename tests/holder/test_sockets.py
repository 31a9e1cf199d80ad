"""An agent's socket: its path, its permissions, and when it is replaced."""

import os
import socket
import stat
from pathlib import Path

import pytest

from palaver.errors import NameTaken
from palaver.holder.agent_socket import listen, socket_path
from palaver.home import connect_socket


@pytest.fixture(params=["short", "long"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a socket path in a home whose path is short, or too long for a socket address."""
    home = tmp_path if request.param == "short" else tmp_path / ("x" * 120) / ("y" * 120)
    home.mkdir(parents=True, exist_ok=True)
    return socket_path(str(home), "api-luna")


def test_caller_reaches_the_listener(path: Path) -> None:
    with listen(path) as listener, connect_socket(path) as caller:
        listener.setblocking(True)
        taken, _ = listener.accept()
        with taken:
            caller.sendall(b"hello")

            assert taken.recv(5) == b"hello"


def test_socket_is_accessible_to_its_owner_only(path: Path) -> None:
    with listen(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_listening_leaves_the_umask_unchanged(path: Path) -> None:
    before = os.umask(0o027)
    try:
        with listen(path):
            assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)


def test_socket_of_a_dead_holder_is_replaced(path: Path) -> None:
    listen(path).close()
    assert path.exists()

    with listen(path), connect_socket(path):
        pass


def test_live_socket_is_not_replaced(path: Path) -> None:
    with listen(path):
        with pytest.raises(NameTaken, match="api-luna"):
            listen(path)
        with connect_socket(path):
            pass


def test_live_socket_with_a_full_backlog_is_not_replaced(path: Path) -> None:
    waiting: list[socket.socket] = []
    try:
        with listen(path):
            for _ in range(200):
                caller = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                caller.setblocking(False)
                waiting.append(caller)
                folder = os.open(path.parent, os.O_PATH)
                try:
                    caller.connect(f"/proc/self/fd/{folder}/{path.name}")
                except BlockingIOError:
                    break
                finally:
                    os.close(folder)

            with pytest.raises(NameTaken):
                listen(path)
    finally:
        for caller in waiting:
            caller.close()


def test_missing_socket_raises_file_not_found(path: Path) -> None:
    path.parent.mkdir()

    with pytest.raises(FileNotFoundError):
        connect_socket(path)
