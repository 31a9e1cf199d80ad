"""A pseudo-terminal, and how what ran in it ended."""

import os
import select
import signal
import subprocess
import sys
import termios
import tty

import pytest
from tests.limits import LIMIT_S

from palaver.agents.terminal.pty import Exit, Pty, signal_name


@pytest.mark.parametrize(
    ("found", "code", "words"),
    [
        (Exit(0), 0, "exited with 0"),
        (Exit(3), 3, "exited with 3"),
        (Exit(None, signal.SIGKILL), 137, "killed by SIGKILL"),
        (Exit(None, 99), 227, "killed by signal 99"),
    ],
)
def test_an_end_has_a_code_and_words(found: Exit, code: int, words: str) -> None:
    assert found.code == code
    assert str(found) == words


def test_signals_have_the_names_that_people_know() -> None:
    assert signal_name(signal.SIGHUP) == "SIGHUP"


def test_the_window_has_the_size_it_was_given() -> None:
    pty, slave = Pty.open(100, 30)
    try:
        assert os.get_terminal_size(slave) == (100, 30)

        pty.resize(120, 40)

        assert os.get_terminal_size(slave) == (120, 40)
        assert (pty.cols, pty.rows) == (120, 40)
    finally:
        pty.close()
        os.close(slave)


def test_the_settings_of_the_terminal_are_those_of_the_system() -> None:
    master, plain = os.openpty()
    pty, slave = Pty.open(80, 24)
    try:
        assert termios.tcgetattr(slave) == termios.tcgetattr(plain)
    finally:
        pty.close()
        for descriptor in (slave, master, plain):
            os.close(descriptor)


def test_the_foreground_is_known_while_somebody_is_there() -> None:
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


def test_what_was_typed_and_not_read_is_counted() -> None:
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


def test_of_a_terminal_that_takes_lines_only_whole_ones_count() -> None:
    pty, slave = Pty.open(80, 24)
    try:
        os.write(pty.master, b"half")
        select.select([pty.master], [], [], LIMIT_S)  # it is shown once the terminal has it
        half = pty.unread()
        os.write(pty.master, b" whole\r")
        while not pty.unread():
            os.sched_yield()

        assert (half, pty.unread()) == (0, len("half whole\n"))
    finally:
        os.close(slave)
        pty.close()


def test_looking_for_what_is_unread_does_not_hide_the_end() -> None:
    pty, slave = Pty.open(80, 24)
    os.close(slave)

    pty.unread()

    with pytest.raises(OSError, match="error"):
        os.read(pty.master, 1)
    pty.close()


def test_a_line_that_is_not_shown_is_a_secret() -> None:
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


def test_a_terminal_knows_its_name() -> None:
    pty, slave = Pty.open(80, 24)
    try:
        assert pty.path == os.ttyname(slave)
    finally:
        os.close(slave)
        pty.close()
    assert (pty.path, pty.unread(), pty.is_secret) == ("", None, False)
