"""`pal chat`: the conversation on a person's terminal, or in plain lines where there is none."""

import asyncio
import secrets
import sys
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Final

import msgspec

from palaver.cli.chat.editor import Key
from palaver.cli.chat.page import Page, marks_line, stick_line, wrap
from palaver.cli.chat.talk import Answer, Talk, refusal_line, until_first, who_lines
from palaver.cli.chat.terminal import Terminal
from palaver.cli.chat.words import HELP, Command, Said, parse_line
from palaver.client.answer import events_from_json, last_from_json
from palaver.client.follower import Follower
from palaver.client.plain import Plain
from palaver.client.request import CallTool, Events, Whoami
from palaver.doors.argv.style import Paint, safe, wants_colour
from palaver.errors import Disconnected, PalaverError
from palaver.rooms.events import room_event

_LATELY: Final = 20
_PLAIN_WIDTH: Final = 10_000

_decode: Final = msgspec.json.decode


class RoomBus:
    """The bus as a conversation asks it: one connection for calls, one that waits, one for deliveries."""

    def __init__(self, home: str, calls: Plain, waits: Plain) -> None:
        self._home = home
        self._calls = calls
        self._waits = waits

    async def tool(self, name: str, **arguments: object) -> Answer:
        """Call a room tool as the person at the terminal."""
        line = self._waits if name == "wait_for_events" else self._calls
        request = CallTool(tool=name, arguments=arguments, key=secrets.token_hex(16))
        answer: Answer = _decode(await line.ask(request))
        return answer

    async def newest(self, room: str, count: int) -> list[Answer]:
        """Give the newest events of a room, as the room tools show them."""
        found = events_from_json(await self._calls.ask(Events(rooms=(room,), last=count)))
        return [room_event(event) for event in found]

    async def deliveries(self) -> AsyncGenerator[Answer, None]:
        """Give the payloads of delivery events from now on."""
        after = last_from_json(await self._calls.ask(Events(last=1)))
        request = Events(types=("delivery",), after=after, follow=True)
        async with aclosing(Follower(self._home, request).events()) as events:
            async for event in events:
                yield event.payload


def chat(home: str, room: str, environment: Mapping[str, str]) -> int:
    """Talk in a room until the person leaves. Gives the exit status."""
    paint = Paint(sys.stdout.isatty() and wants_colour(environment))
    try:
        asyncio.run(_chat(home, room, paint))
    except PalaverError as error:
        sys.stderr.write(f"pal: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


async def _chat(home: str, room: str, paint: Paint) -> None:
    async with Plain(home) as calls, Plain(home) as waits:
        me = _decode(await calls.ask(Whoami()))["name"]
        page = Page(me, paint, lambda ms: time.strftime("%H:%M", time.localtime(ms / 1000)))
        bus = RoomBus(home, calls, waits)
        if sys.stdin.isatty() and sys.stdout.isatty():
            await _Screen(bus, room, page, paint).run()
        else:
            await _in_lines(bus, room, page)


class _Screen:
    """The conversation on a terminal."""

    def __init__(self, bus: RoomBus, room: str, page: Page, paint: Paint) -> None:
        self._terminal = Terminal(f"{room}> ")
        self._talk = Talk(bus, room, changed=self._terminal.redraw)
        self._page = page
        self._paint = paint
        self._terminal.above = self._above

    async def run(self) -> None:
        history = await self._talk.open()
        with self._terminal.in_hand():
            self._terminal.show([])
            for event in history:
                self._show(event)
            if not history:
                self._say("nothing was said here yet; /help tells what can be typed")
            work = (self._read_keys(), self._follow(), self._talk.mark())
            await until_first(*(asyncio.ensure_future(one) for one in work))

    def _above(self) -> list[str]:
        last = self._talk.last
        marks = marks_line(last.place, last.marks) if last is not None else ""
        return [self._paint.dim(line) for line in (marks, stick_line(self._talk.state)) if line]

    async def _follow(self) -> None:
        async for event in self._talk.follow():
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
        """Do what a line says; False when it says to end."""
        match parse_line(line):
            case Said() as said:
                await self._send(line, said)
            case Command(word="/quit"):
                return False
            case Command(word="/who"):
                for text in who_lines(self._talk.state):
                    self._say(text)
            case Command(word="/events"):
                for event in list(self._talk.recent)[-_LATELY:]:
                    self._show(event)
            case Command(word="/help"):
                for text in HELP:
                    self._say(text)
            case Command(word=word):
                self._say(f"{word} is no command; /help tells what there is, and // says a slash")
        return True

    async def _send(self, line: str, said: Said) -> None:
        self._keep_marks()
        try:
            await self._talk.say(said)
        except Disconnected:
            raise
        except PalaverError as error:
            self._say(refusal_line(error))
            self._terminal.give_back(line)

    def _keep_marks(self) -> None:
        """What became of the message before this one goes up into the conversation."""
        if (last := self._talk.last) is not None:
            self._talk.last = None
            if line := marks_line(last.place, last.marks):
                self._terminal.show([self._paint.dim(f"  {line}")])

    def _show(self, event: Answer) -> None:
        self._terminal.show(self._page.lines(event, self._terminal.width))

    def _say(self, text: str) -> None:
        lines = wrap(f"· {safe(text)}", self._terminal.width, 2)
        self._terminal.show([self._paint.dim(line) for line in lines])


async def _in_lines(bus: RoomBus, room: str, page: Page) -> None:
    """Without a terminal: each line of standard input is said, each event is a line of standard output."""
    talk = Talk(bus, room, changed=lambda: None)
    for event in await talk.open():
        _print(page, event)

    async def follow() -> None:
        async for event in talk.follow():
            _print(page, event)

    async def read() -> None:
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            match parse_line(line):
                case Said() as said:
                    await talk.say(said)
                case Command(word="/quit"):
                    return

    await until_first(asyncio.ensure_future(read()), asyncio.ensure_future(follow()))


def _print(page: Page, event: Answer) -> None:
    for line in page.lines(event, _PLAIN_WIDTH):
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
