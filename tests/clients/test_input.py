"""Reading for the daemon: only on request, with the caller's rights."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.limits import LIMIT_S

if TYPE_CHECKING:
    from tests.clients.conftest import Daemon, Pal

Z = (b"Z", b"")


def unreadable(number: int) -> tuple[bytes, bytes]:
    return b"X", f"{number} {os.strerror(number)}".encode()


def test_unrequested_standard_input_keeps_its_bytes(pal: Pal, daemon: Daemon) -> None:
    ours, theirs = os.pipe()
    os.write(theirs, b"still here")
    process = pal.start("list", stdin=ours)

    daemon.accept().quit()

    assert process.wait(LIMIT_S) == 0
    assert os.read(ours, 100) == b"still here"
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize("content", [b"", b"text\n", bytes(range(256)) * 2000])
def test_requested_standard_input_is_sent_to_its_end(
    pal: Pal, daemon: Daemon, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "in").write_bytes(content)
    with open(tmp_path / "in", "rb") as source:
        process = pal.start("send", "--stdin", stdin=source)
    peer = daemon.accept()

    peer.ask_stdin()

    assert peer.next_content() == (content, Z)
    peer.quit()
    assert process.wait(LIMIT_S) == 0


@pytest.mark.parametrize(("size", "limit"), [(9, 10), (10, 10), (11, 10), (500_000, 10), (200_000, 131_072)])
def test_at_most_one_byte_beyond_the_limit_is_sent(
    pal: Pal, daemon: Daemon, tmp_path: Path, size: int, limit: int
) -> None:
    (tmp_path / "in").write_bytes(b"x" * size)
    with open(tmp_path / "in", "rb") as source:
        pal.start("send", "--stdin", stdin=source)
    peer = daemon.accept()

    peer.ask_stdin(limit)
    by_stdin = peer.next_content()
    peer.ask_file(os.fsencode(tmp_path / "in"), limit)
    by_file = peer.next_content()

    assert by_stdin == by_file == (b"x" * min(size, limit + 1), Z)


def test_other_frames_are_served_while_input_is_awaited(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("send", "--stdin", stdin=subprocess.PIPE)
    peer = daemon.accept()
    assert process.stdin is not None

    peer.ask_stdin()
    peer.write(1, b"waiting\n")
    acknowledged = peer.next_frame()
    process.stdin.write(b"late")
    process.stdin.close()
    content = peer.next_content()
    peer.quit()

    assert acknowledged == (b"A", b"\0\0\0\1")
    assert content == (b"late", Z)
    assert process.wait(LIMIT_S) == 0


def test_client_can_be_ended_while_input_is_awaited(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("send", "--stdin", stdin=subprocess.PIPE)
    peer = daemon.accept()

    peer.ask_stdin()
    peer.quit(3)

    assert process.wait(LIMIT_S) == 3


def test_closed_standard_input_is_reported(pal: Pal, daemon: Daemon) -> None:
    pal.start("send", "--stdin", before=("sh", "-c", 'exec "$@" <&-', "sh"))
    peer = daemon.accept()

    peer.ask_stdin()

    assert peer.next_frame() == unreadable(errno.EBADF)


def test_non_blocking_standard_input_is_waited_for(pal: Pal, daemon: Daemon) -> None:
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    pal.start("send", "--stdin", stdin=ours)
    os.close(ours)
    peer = daemon.accept()

    peer.ask_stdin()
    os.write(theirs, b"one")
    first = peer.next_frame()
    os.write(theirs, b"two")
    os.close(theirs)

    assert first == (b"D", b"one")
    assert peer.next_content() == (b"two", Z)


def test_file_is_read_from_the_working_directory(pal: Pal, daemon: Daemon, tmp_path: Path) -> None:
    content = os.urandom(200_000)
    (tmp_path / "note").write_bytes(content)
    pal.start("send", "--file", "note", cwd=tmp_path)
    peer = daemon.accept()

    peer.ask_file(b"note")

    assert peer.next_content() == (content, Z)


def test_file_name_may_be_any_bytes(pal: Pal, daemon: Daemon, tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff"
    with open(path, "wb") as file:
        file.write(b"odd")
    pal.start("send")
    peer = daemon.accept()

    peer.ask_file(path)

    assert peer.next_content() == (b"odd", Z)


@pytest.mark.parametrize(
    ("path", "number"),
    [(b"missing", errno.ENOENT), (b"", errno.ENOENT), (b".", errno.EISDIR), (b"a\0b", errno.EINVAL)],
)
def test_unreadable_file_is_reported_and_more_may_be_requested(
    pal: Pal, daemon: Daemon, tmp_path: Path, path: bytes, number: int
) -> None:
    (tmp_path / "a").write_bytes(b"next")
    pal.start("send", cwd=tmp_path)
    peer = daemon.accept()

    peer.ask_file(path)
    answer = peer.next_frame()
    peer.ask_file(b"a")

    assert answer == unreadable(number)
    assert peer.next_content() == (b"next", Z)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a client as another user")
def test_file_is_read_with_the_rights_of_the_caller(pal: Pal, daemon: Daemon, home: Path) -> None:
    (home / "daemon.sock").chmod(0o666)
    home.chmod(0o755)
    (home / "closed").touch(mode=0o600)
    pal.start_as_nobody("send")
    peer = daemon.accept()

    peer.ask_file(os.fsencode(home / "closed"))

    assert peer.next_frame() == unreadable(errno.EACCES)


def test_second_concurrent_read_request_is_refused(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("send", stdin=subprocess.PIPE)
    peer = daemon.accept()

    peer.ask_stdin()
    peer.ask_file(b"note")

    assert process.wait(LIMIT_S) == 1


def test_daemon_that_does_not_read_cannot_keep_the_client_alive(pal: Pal, daemon: Daemon) -> None:
    with open("/dev/zero", "rb") as zeros:
        process = pal.start("send", "--stdin", stdin=zeros)
    wire = daemon.accept_raw()

    wire.sendall(b"I\0\0\0\4\0\0\0\0")
    while not wire.recv(65536).endswith(bytes(32768)):
        pass
    process.terminate()

    assert process.wait(LIMIT_S) == -signal.SIGTERM
    wire.close()


def test_named_pipe_is_not_opened(pal: Pal, daemon: Daemon, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    process = pal.start("send", "--file", "pipe")
    peer = daemon.accept()

    peer.ask_file(os.fsencode(tmp_path / "pipe"))

    assert peer.next_frame() == (b"X", b"22 it is a named pipe; pipe its content in with --stdin")
    peer.quit()
    assert process.wait(LIMIT_S) == 0
