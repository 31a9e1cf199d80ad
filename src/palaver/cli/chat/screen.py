"""The conversation on a terminal: events are shown above the line that is being typed."""

import asyncio
from collections.abc import Iterable

from palaver.cli.chat.editor import Key
from palaver.cli.chat.page import Page, marks_line, stick_line, wrap
from palaver.cli.chat.talk import Answer, Bus, Talk, refusal_line, until_first, who_lines
from palaver.cli.chat.terminal import Terminal
from palaver.cli.chat.words import HELP, LATELY, Command, Said, no_command, parse_line
from palaver.doors.argv.style import Paint, safe
from palaver.errors import Disconnected, PalaverError


class Screen:
    """One user's view of a room, until they leave it."""

    def __init__(self, bus: Bus, room: str, page: Page, paint: Paint) -> None:
        self._terminal = Terminal(f"{room}> ", paint.dim)
        self._talk = Talk(bus, room, changed=self._terminal.redraw)
        self._page = page
        self._paint = paint
        self._terminal.above = self._above
        # While a message is sent nothing else is shown: the marks of the previous one are printed first.
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        """Show the room and read lines. Return when the user ends it; raise if the bus has ended."""
        with self._terminal.in_hand():
            history = await self._talk.open()
            for event in history:
                self._show(event)
            if not history:
                self._say(["no messages yet; /help shows the commands"])
            work = (self._read_keys(), self._follow(), self._talk.mark())
            await until_first(*(asyncio.ensure_future(one) for one in work))

    def _above(self) -> list[str]:
        last = self._talk.last
        marks = marks_line(last.place, last.marks) if last is not None else ""
        return [marks, stick_line(self._talk.state)]

    async def _follow(self) -> None:
        async for event in self._talk.follow():
            async with self._turn:
                self._show(event)

    async def _read_keys(self) -> None:
        while True:
            pressed = await self._terminal.pressed()
            if pressed.key is Key.QUIT or (pressed.key is Key.CANCEL and not pressed.text):
                return
            if pressed.key is Key.REDRAW:
                self._terminal.redraw()
            elif pressed.key is Key.SUBMIT and not await self._submitted(pressed.text):
                return

    async def _submitted(self, line: str) -> bool:
        """Carry out a line; False if it ends the chat."""
        match parse_line(line):
            case Said() as said:
                await self._send(line, said)
            case Command(word="/quit"):
                return False
            case Command(word="/who"):
                await self._talk.look()
                self._say(who_lines(self._talk.state))
            case Command(word="/events"):
                for event in list(self._talk.recent)[-LATELY:]:
                    self._show(event)
            case Command(word="/help"):
                self._say(HELP)
            case Command(word=word):
                self._say([no_command(word)])
        return True

    async def _send(self, line: str, said: Said) -> None:
        async with self._turn:
            last = self._talk.last
            try:
                await self._talk.say(said)
            except Disconnected:
                raise
            except PalaverError as error:
                self._say([refusal_line(error, self._talk.state)])
                self._terminal.give_back(line)
                return
            if last is not None and (marks := marks_line(last.place, last.marks)):
                self._terminal.show(
                    [self._paint.dim(one) for one in wrap(f"  {marks}", self._terminal.width, 4)]
                )

    def _show(self, event: Answer) -> None:
        self._terminal.show(self._page.lines(event, self._terminal.width))

    def _say(self, texts: Iterable[str]) -> None:
        lines = [line for text in texts for line in wrap(f"· {safe(text)}", self._terminal.width, 2)]
        self._terminal.show([self._paint.dim(line) for line in lines])
