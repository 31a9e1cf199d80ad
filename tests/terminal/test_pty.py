"""A pseudo-terminal, and the exit of its program."""

import os
import select
import signal
import subprocess
import sys
import termios
import tty

import pytest
from tests.limits import LIMIT_S

from palaver.terminal.pty import Exit, Pty, signal_name


@pytest.mark.parametrize(
    ("found", "code", "words"),
    [
        (Exit(0), 0, "exited with 0"),
        (Exit(3), 3, "exited with 3"),
        (Exit(None, signal.SIGKILL), 137, "killed by SIGKILL"),
        (Exit(None, 99), 227, "killed by signal 99"),
    ],
)
def test_exit_has_a_code_and_a_description(found: Exit, code: int, words: str) -> None:
    assert found.code == code
    assert str(found) == words


def test_signals_have_their_common_names() -> None:
    assert signal_name(signal.SIGHUP) == "SIGHUP"


def test_terminal_has_the_given_size() -> None:
    pty, slave = Pty.open(100, 30)
    try:
        assert os.get_terminal_size(slave) == (100, 30)

        pty.resize(120, 40)

        assert os.get_terminal_size(slave) == (120, 40)
        assert (pty.cols, pty.rows) == (120, 40)
    finally:
        pty.close()
        os.close(slave)


def test_terminal_has_the_default_settings_of_the_system() -> None:
    master, plain = os.openpty()
    pty, slave = Pty.open(80, 24)
    try:
        assert termios.tcgetattr(slave) == termios.tcgetattr(plain)
    finally:
        pty.close()
        for descriptor in (slave, master, plain):
            os.close(descriptor)


def test_foreground_process_group_is_known() -> None:
    pty, slave = Pty.open(80, 24)
    assert pty.foreground() in (0, -1)

    program = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); sys.stdin.read()",
        ],
        stdin=slave,
        start_new_session=True,
    )
    os.close(slave)
    try:
        while pty.foreground() != program.pid:
            os.sched_yield()
    finally:
        pty.close()
        program.wait(LIMIT_S)


def test_unread_input_is_counted() -> None:
    pty, slave = Pty.open(80, 24)
    tty.setraw(slave)
    try:
        os.write(pty.master, b"hello")
        while not pty.unread():
            os.sched_yield()
        before = pty.unread()
        os.read(slave, 3)

        assert (before, pty.unread()) == (5, 2)
    finally:
        os.close(slave)
        pty.close()


def test_line_mode_counts_only_complete_lines() -> None:
    pty, slave = Pty.open(80, 24)
    try:
        os.write(pty.master, b"half")
        select.select([pty.master], [], [], LIMIT_S)  # the echo proves that the terminal has received it
        half = pty.unread()
        os.write(pty.master, b" whole\r")
        while not pty.unread():
            os.sched_yield()

        assert (half, pty.unread()) == (0, len("half whole\n"))
    finally:
        os.close(slave)
        pty.close()


def test_checking_for_unread_input_does_not_hide_the_hangup() -> None:
    pty, slave = Pty.open(80, 24)
    os.close(slave)

    pty.unread()

    with pytest.raises(OSError, match="error"):
        os.read(pty.master, 1)
    pty.close()


def test_line_without_echo_is_a_secret() -> None:
    pty, slave = Pty.open(80, 24)
    try:
        plain = pty.is_secret, pty.is_raw
        settings = termios.tcgetattr(slave)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(slave, termios.TCSANOW, settings)
        hidden = pty.is_secret, pty.is_raw
        tty.setraw(slave)

        assert (plain, hidden, (pty.is_secret, pty.is_raw)) == ((False, False), (True, False), (False, True))
    finally:
        os.close(slave)
        pty.close()


def test_terminal_knows_its_path() -> None:
    pty, slave = Pty.open(80, 24)
    try:
        assert pty.path == os.ttyname(slave)
    finally:
        os.close(slave)
        pty.close()
    assert (pty.path, pty.unread(), pty.is_secret) == ("", None, False)
