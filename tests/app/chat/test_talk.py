import asyncio
import io
from collections.abc import AsyncGenerator, Sequence

import pytest
from tests.app.chat.events import room_event

from palaver.app.chat import (
    ChatEvents,
    ChatMember,
    ChatPage,
    ChatRoom,
    ChatSent,
    ChatState,
    ChatText,
    refusal_line,
    talk_in_lines,
    until_first,
    who_lines,
)
from palaver.errors import Disconnected, MessageTooLarge, UnknownMember
from palaver.protocol.display import Paint
from palaver.protocol.envelope import Event
from palaver.protocol.query import RoomEvent


def _event(seq: int, kind: str = "message_sent") -> RoomEvent:
    return room_event(kind, "luna", seq=seq, payload={"body": str(seq)})


class _Bus:
    """A bus with one room whose results the test chooses."""

    def __init__(self) -> None:
        self.history: list[RoomEvent] = []
        self.coming: asyncio.Queue[tuple[RoomEvent, ...]] = asyncio.Queue()
        self.waited_after: list[int] = []
        self.sent: list[tuple[str, ChatText]] = []
        self.now = ChatState(room_id="shop-x4kd")
        self.written: list[Event] = []
        """Messages of all agents, in and outside the room."""

    async def state(self, room: str) -> ChatState:
        return self.now

    async def wait(self, room: str, after: int) -> ChatEvents:
        self.waited_after.append(after)
        events = await self.coming.get()
        return ChatEvents(events=events, cursor_event_seq=events[-1].event_seq)

    async def send(self, room: str, text: ChatText) -> ChatSent:
        if text.to == ("nobody",):
            raise UnknownMember("nobody", "shop-x4kd")
        self.sent.append((room, text))
        return ChatSent(event_seq=42, delivered_to=("luna", "nova"))

    async def newest(self, room: str, count: int) -> Sequence[RoomEvent]:
        return self.history[-count:]

    async def written_by(self, names: Sequence[str], count: int) -> tuple[Sequence[Event], int]:
        return [event for event in self.written if event.sender in names][-count:], 50

    async def messages(self, after: int) -> AsyncGenerator[Event, None]:
        for event in self.written:
            if event.seq > after:
                yield event

    async def attention(self) -> AsyncGenerator[int, None]:
        yield 0


async def _opened(bus: _Bus) -> ChatRoom:
    talk = ChatRoom(bus, "shop")
    await talk.open()
    return talk


async def test_chat_opens_with_the_last_messages_and_continues_after_them() -> None:
    bus = _Bus()
    bus.history = [_event(seq, "claim" if seq % 2 else "message_sent") for seq in range(1, 60)]
    talk = ChatRoom(bus, "shop")

    shown = await talk.open()
    bus.coming.put_nowait((_event(60),))
    event = await anext(talk.follow())

    assert [one.event_seq for one in shown] == list(range(20, 60, 2))
    assert event.event_seq == 60
    assert bus.waited_after == [59]
    assert talk.room == "shop-x4kd"


async def test_state_is_read_again_after_an_event_that_is_not_a_message() -> None:
    bus = _Bus()
    talk = await _opened(bus)
    bus.now = ChatState(owner_agent_id="nova")
    bus.coming.put_nowait((_event(1, "claim"),))
    bus.coming.put_nowait((_event(2),))
    follow = talk.follow()

    seen = [await anext(follow), await anext(follow)]

    assert [one.event_seq for one in seen] == [1, 2]
    assert talk.state == ChatState(owner_agent_id="nova")


def test_refused_name_suggests_a_close_one_or_lists_the_members() -> None:
    state = ChatState(members=(ChatMember(agent_id="luna"), ChatMember(agent_id="nova")))

    assert refusal_line(UnknownMember("lune", "shop"), state) == (
        "not sent: no such member: lune (did you mean luna?)"
    )
    assert refusal_line(UnknownMember("zed", "shop"), state) == (
        "not sent: no such member: zed; the members are luna, nova"
    )
    assert refusal_line(UnknownMember("zed", "shop"), ChatState()) == (
        "not sent: no such member: zed; the room has no members"
    )
    assert "4096" in refusal_line(MessageTooLarge("the message", 5000, 4096), state).replace(",", "")


async def test_unknown_name_prevents_the_send() -> None:
    bus = _Bus()
    talk = await _opened(bus)

    with pytest.raises(UnknownMember):
        await talk.say(ChatText("hello", ("nobody",)))

    assert bus.sent == []


async def test_first_task_to_end_cancels_the_others_and_raises_its_error() -> None:
    async def fails() -> None:
        raise Disconnected("the connection to the daemon was lost")

    waits = asyncio.ensure_future(asyncio.Event().wait())

    with pytest.raises(Disconnected):
        await until_first(asyncio.ensure_future(fails()), waits)  # type: ignore[arg-type]  # it never ends

    assert waits.cancelled()


def test_members_are_listed_one_per_line() -> None:
    luna = ChatMember(agent_id="luna", harness="claude", present=True, is_owner=True)
    state = ChatState(members=(luna, ChatMember(agent_id="nova")))

    assert who_lines(state) == [
        "luna  claude, here, has the stick",
        "nova  away",
    ]
    assert who_lines(ChatState()) == ["the room has no members"]


def _written(seq: int, sender: str, room: str | None = None) -> Event:
    payload: dict[str, object] = {"text": str(seq), **({} if room is None else {"room": room})}
    return Event(seq=seq, type="message", id=f"id-{seq}", sender=sender, to=("@nova",), ts=1, payload=payload)


async def test_only_messages_of_members_outside_the_room_are_beside_it() -> None:
    bus = _Bus()
    bus.now = ChatState(room_id="shop-x4kd", members=(ChatMember(agent_id="luna"),))
    bus.written = [
        _written(1, "luna"),
        _written(2, "luna", "shop-x4kd"),
        _written(3, "kira"),
        _written(4, "luna", "other-room"),
        *(_written(seq, name) for seq, name in ((51, "kira"), (52, "luna"))),
    ]
    talk = await _opened(bus)

    earlier, last = await talk.outside()
    later = [event.seq async for event in talk.follow_outside(last)]

    assert [event.seq for event in earlier] == [1, 4, 52]
    assert (last, later) == (50, [52])


class _QuietBus(_Bus):
    """A bus on which nothing waits for the person."""

    async def attention(self) -> AsyncGenerator[int, None]:
        await asyncio.Event().wait()
        yield 0


async def test_input_that_is_not_utf8_ends_neither_the_chat_nor_its_other_lines() -> None:
    bus, out = _QuietBus(), io.StringIO()
    page = ChatPage("human", Paint(colour=False, is_for_person=True), str)
    read = io.TextIOWrapper(io.BytesIO(b"one\n\xff\nthree\n"), encoding="utf-8")

    await talk_in_lines(bus, "shop", page, read, out, out)

    assert [text.text for _, text in bus.sent] == ["one", "\udcff", "three"]
