"""Real IRC clients: a person asks an agent in a terminal in `#general`, and reads the reply there.

WeeChat runs without a screen, gets its commands through a pipe, and writes its output to a file. irssi
runs in a terminal, and the test types its keys and reads its screen.
"""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

import pytest
from tests.app.person import holders_of
from tests.daemon.stage import PAL, Home, wait_until
from tests.daemon.tmux import HAS_TMUX, Pane, pane
from tests.irc.stage import Client, code_of, port_of, register
from tests.processes import end_process

PYTHON = str(Path(PAL).with_name("python"))
PROGRAM = Path(__file__).with_name("answering.py")


def program(name: str) -> str:
    """Return the path of a client, or skip the test."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name.upper()} WAS NOT TESTED: it is not installed (Debian: {name})")
    return found


class ChatClient(Protocol):
    """A client that has joined `#general`."""

    def say(self, line: str) -> None:
        """Write a line in `#general`, or give a command."""

    def shows(self, *texts: str) -> list[str]:
        """Wait until one line shows all texts. Return the lines."""


class WeeChat:
    """`weechat-headless`. Everything that it shows in a channel is in a file of its logger."""

    def __init__(self, home: Home, nick: str, password: str) -> None:
        folder = home.spare_path()
        self._log = folder / "palaver.#general.log"
        self._fifo = folder / "fifo"
        settings = [
            f"/set fifo.file.path {self._fifo}",
            "/fifo enable",
            f"/server add palaver 127.0.0.1/{port_of(home)}",
            f"/set irc.server.palaver.nicks {nick}",
            "/set irc.server.palaver.sasl_mechanism plain",
            f"/set irc.server.palaver.sasl_username {nick}",
            f"/set irc.server.palaver.sasl_password {password}",
            "/set irc.server.palaver.autojoin #general",
            f"/set logger.file.path {folder}",
            "/set logger.mask.irc $name.log",
            "/set logger.file.flush_delay 0",
            "/connect palaver",
        ]
        commands = [part for line in settings for part in ("--run-command", line)]
        self.process = subprocess.Popen(
            [program("weechat-headless"), "--dir", str(folder), *commands],
            env={**home.environment, "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=home.path.parent,
        )
        wait_until(self._fifo.is_fifo)

    def say(self, line: str) -> None:
        fifo = os.open(self._fifo, os.O_WRONLY | os.O_NONBLOCK)  # without a reader it is an error
        os.write(fifo, f"irc.palaver.#general *{line}\n".encode())
        os.close(fifo)

    def shows(self, *texts: str) -> list[str]:
        wait_until(lambda: any(all(text in line for text in texts) for line in self._lines()))
        return self._lines()

    def _lines(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class Irssi:
    """irssi in a pane of tmux."""

    def __init__(self, screen: Pane) -> None:
        self.screen = screen

    def say(self, line: str) -> None:
        self.screen.say(line)

    def shows(self, *texts: str) -> list[str]:
        return self.screen.becomes(
            lambda lines: any(all(text in line for text in texts) for line in lines), *texts
        )


@contextmanager
def weechat(home: Home, nick: str, password: str) -> Iterator[ChatClient]:
    client = WeeChat(home, nick, password)
    try:
        yield client
    finally:
        client.close()


@contextmanager
def irssi(home: Home, nick: str, password: str) -> Iterator[ChatClient]:
    if not HAS_TMUX:
        pytest.skip("IRSSI WAS NOT TESTED: tmux is not installed")
    folder = home.spare_path()
    folder.mkdir()
    (folder / "startup").write_text(
        f"/set nick {nick}\n"
        f"/network add -sasl_username {nick} -sasl_password {password} -sasl_mechanism PLAIN palaver\n"
        "/channel add -auto #general palaver\n"
        f"/server add -network palaver 127.0.0.1 {port_of(home)}\n"
        "/connect palaver\n"
    )
    script = shlex.join([program("irssi"), f"--home={folder}"])
    with pane(home, script, columns=150, rows=40) as screen:
        screen.shows("[Act: 2]")
        screen.say("/window goto #general")
        screen.shows("[#general]")
        yield Irssi(screen)


OpenClient = Callable[[Home, str, str], AbstractContextManager[ChatClient]]
each_client = pytest.mark.parametrize("open_client", [weechat, irssi], ids=["weechat", "irssi"])


@pytest.fixture
def luna(bus: Home) -> Iterator[str]:
    """An agent in a terminal that replies to each message with its text in capitals."""
    bus.ok("run", "--detach", "--name", "luna", "--", PYTHON, "-I", str(PROGRAM))
    yield "luna"
    for pid in holders_of(bus.path):
        end_process(pid, 9)


@each_client
def test_person_asks_an_agent_in_general_and_reads_the_reply_there(
    bus: Home, luna: str, open_client: OpenClient
) -> None:
    token = register(bus, "nova")
    with (
        Client(bus).register("nova", password=token) as observer,
        open_client(bus, "human", code_of(bus)) as me,
    ):
        observer.join("#general")
        me.shows("luna")
        me.say("luna: which tests are red?")

        me.shows("luna", "WHICH TESTS ARE RED?")

        envelope = observer.until(lambda line: line.command == "PRIVMSG" and "WHICH TESTS" in line.params[-1])
        value = json.loads(envelope.params[-1])
        assert (value["v"], value["from"], value["payload"]["text"]) == (
            1,
            "luna",
            "LUNA: WHICH TESTS ARE RED?",
        )


@each_client
def test_registered_person_reconnects_with_the_same_token(bus: Home, open_client: OpenClient) -> None:
    token = register(bus, "bob", "--person")
    for number in (1, 2):
        with open_client(bus, "bob", token) as me:
            me.shows("bob")
            me.say(f"line {number} for the channel")
            wait_until(lambda: len(bus.texts()) == number)  # noqa: B023  # it ends before the next number

    assert bus.texts() == ["line 1 for the channel", "line 2 for the channel"]
    assert {event["from"] for event in bus.events("--type", "message")} == {"bob"}
