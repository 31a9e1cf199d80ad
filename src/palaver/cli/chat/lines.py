"""The conversation without a terminal: each input line is sent, each event is printed as a line."""

import asyncio
import threading
from collections.abc import Iterable
from typing import Final, TextIO

from palaver.cli.chat.page import Page
from palaver.cli.chat.talk import Answer, Bus, Talk, refusal_line, until_first, who_lines
from palaver.cli.chat.words import HELP, LATELY, Command, Said, no_command, parse_line
from palaver.doors.argv.style import safe_for_agent
from palaver.errors import Disconnected, PalaverError

_WIDTH: Final = 10_000


async def talk_in_lines(bus: Bus, room: str, page: Page, read: TextIO, out: TextIO, err: TextIO) -> int:
    """Chat until the input ends; return 1 if a line was refused. The other lines are sent anyway."""
    talk = Talk(bus, room, changed=lambda: None)
    printed = _Printer(talk, page, out, err)
    for event in await talk.open():
        printed.event(event)

    async def follow() -> None:
        async for event in talk.follow():
            printed.event(event)

    async def say() -> None:
        lines = _lines(read)
        while line := await lines.get():
            if not await printed.do(line):
                return

    await until_first(asyncio.ensure_future(say()), asyncio.ensure_future(follow()))
    return 1 if printed.has_refused else 0


def _lines(read: TextIO) -> "asyncio.Queue[str]":
    """Return the lines of a stream, and an empty one at its end.

    A separate daemon thread reads them: it may block indefinitely, and must not delay the end of the process.
    """
    loop, lines = asyncio.get_running_loop(), asyncio.Queue[str]()

    def pump() -> None:
        line = "\n"
        while line:
            try:
                line = read.readline()
            except (OSError, ValueError):  # The stream was closed, or is not text.
                line = ""
            try:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            except RuntimeError:  # The loop has ended.
                return

    threading.Thread(target=pump, daemon=True).start()
    return lines


class _Printer:
    """Carries out lines, and prints the results."""

    def __init__(self, talk: Talk, page: Page, out: TextIO, err: TextIO) -> None:
        self._talk = talk
        self._page = page
        self._out = out
        self._err = err
        self.has_refused = False

    def event(self, event: Answer) -> None:
        """Print an event of the room."""
        self._print(self._page.lines(event, _WIDTH))

    async def do(self, line: str) -> bool:
        """Carry out a line; False if it ends the chat."""
        match parse_line(line):
            case Said() as said:
                await self._say(said)
            case Command(word="/quit"):
                return False
            case Command(word="/who"):
                await self._talk.look()
                self._print(map(safe_for_agent, who_lines(self._talk.state)))
            case Command(word="/events"):
                for event in list(self._talk.recent)[-LATELY:]:
                    self.event(event)
            case Command(word="/help"):
                self._print(HELP)
            case Command(word=word):
                self._refuse(no_command(word))
        return True

    async def _say(self, said: Said) -> None:
        try:
            await self._talk.say(said)
        except Disconnected:
            raise
        except PalaverError as error:
            self._refuse(refusal_line(error, self._talk.state))

    def _refuse(self, sentence: str) -> None:
        self.has_refused = True
        self._err.write(f"pal: {safe_for_agent(sentence)}\n")
        self._err.flush()

    def _print(self, lines: Iterable[str]) -> None:
        self._out.write("".join(f"{line}\n" for line in lines))
        self._out.flush()
