"""`pal chat`: the conversation on a terminal, or in plain lines without one."""

import asyncio
import secrets
import sys
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Final

import msgspec

from palaver.cli.chat.lines import talk_in_lines
from palaver.cli.chat.page import Page
from palaver.cli.chat.screen import Screen
from palaver.cli.chat.talk import ANSWERED, Answer
from palaver.client.answer import events_from_json, last_from_json
from palaver.client.follower import Follower
from palaver.client.plain import Plain
from palaver.doors.argv.style import Paint, paint_for
from palaver.errors import PalaverError
from palaver.model.lines.program_ops import EventsOp, ToolOp, WhoamiOp
from palaver.rooms.events import room_event

_decode: Final = msgspec.json.decode


class RoomBus:
    """The bus for a conversation: one connection for calls, one that waits, one for deliveries."""

    def __init__(self, home: str, calls: Plain, waits: Plain) -> None:
        self._home = home
        self._calls = calls
        self._waits = waits

    async def tool(self, name: str, **arguments: object) -> Answer:
        """Call a room tool as the user at the terminal."""
        line = self._waits if name == "wait_for_events" else self._calls
        request = ToolOp(tool=name, arguments=arguments, key=secrets.token_hex(16))
        answer: Answer = _decode(await line.ask(request))
        return answer

    async def newest(self, room: str, count: int) -> list[Answer]:
        """Return the newest events of a room, as the room tools show them."""
        found, _ = events_from_json(await self._calls.ask(EventsOp(rooms=(room,), last=count)))
        return [room_event(event) for event in found]

    async def deliveries(self) -> AsyncGenerator[Answer, None]:
        """Yield the delivery of messages from now on: delivery reports, and a reply as one more."""
        after = last_from_json(await self._calls.ask(EventsOp(last=1)))
        request = EventsOp(types=("delivery", "message"), after=after, follow=True)
        async with aclosing(Follower(self._home, request).events()) as events:
            async for event in events:
                if event.type == "delivery":
                    yield event.payload
                elif str(place := event.payload.get("reply_to")).isdecimal():
                    yield {"messages": [int(str(place))], "agent": event.sender, "state": ANSWERED}


def chat(home: str, room: str, environment: Mapping[str, str]) -> int:
    """Chat in a room until the user leaves. Return the exit status."""
    paint = paint_for(environment, is_terminal=sys.stdout.isatty())
    try:
        return asyncio.run(_chat(home, room, paint))
    except PalaverError as error:
        sys.stderr.write(f"pal: {error}\n")
        return 1
    except (BrokenPipeError, KeyboardInterrupt):
        return 0


async def _chat(home: str, room: str, paint: Paint) -> int:
    async with Plain(home) as calls, Plain(home) as waits:
        me = _decode(await calls.ask(WhoamiOp()))["name"]
        page = Page(me, paint, lambda ms: time.strftime("%H:%M", time.localtime(ms / 1000)))
        bus = RoomBus(home, calls, waits)
        if sys.stdin.isatty() and sys.stdout.isatty():
            await Screen(bus, room, page, paint).run()
            return 0
        return await talk_in_lines(bus, room, page, sys.stdin, sys.stdout, sys.stderr)
