import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest
from tests.limits import LIMIT_S

from palaver.app.chat.conversation import Answer, ChatRoom, ChatText, refusal_line, until_first, who_lines
from palaver.errors import Disconnected, MessageTooLarge, UnknownMember


def _event(seq: int, kind: str = "message_sent") -> Answer:
    return {"event_seq": seq, "event_type": kind, "from_agent_id": "luna", "payload": {"body": str(seq)}}


class _Bus:
    """A bus with one room whose results the test chooses."""

    def __init__(self) -> None:
        self.history: list[Answer] = []
        self.coming: asyncio.Queue[list[Answer]] = asyncio.Queue()
        self.reports: asyncio.Queue[Answer] = asyncio.Queue()
        self.asked: list[tuple[str, dict[str, object]]] = []
        self.state: Answer = {"room_id": "shop-x4kd", "owner": None}

    async def tool(self, name: str, **arguments: object) -> Answer:
        self.asked.append((name, arguments))
        if name == "get_room_state":
            return self.state
        if name == "wait_for_events":
            events = await self.coming.get()
            return {"events": events, "cursor_event_seq": events[-1]["event_seq"]}
        if arguments.get("to_agent_id") == ["nobody"]:
            raise UnknownMember("nobody", "shop-x4kd")
        return {"event_seq": 42, "delivered_to": ["luna", "nova"]}

    async def newest(self, room: str, count: int) -> Sequence[Answer]:
        return self.history[-count:]

    async def deliveries(self) -> AsyncGenerator[Answer, None]:
        while True:
            yield await self.reports.get()
            self.reports.task_done()


async def _opened(bus: _Bus) -> tuple[ChatRoom, list[int]]:
    changes: list[int] = []
    talk = ChatRoom(bus, "shop", changed=lambda: changes.append(1))
    await talk.open()
    changes.clear()
    return talk, changes


async def test_chat_opens_with_the_last_messages_and_continues_after_them() -> None:
    bus = _Bus()
    bus.history = [_event(seq, "claim" if seq % 2 else "message_sent") for seq in range(1, 60)]
    talk = ChatRoom(bus, "shop", changed=lambda: None)

    shown = await talk.open()
    bus.coming.put_nowait([_event(60)])
    event = await anext(talk.follow())

    assert [one["event_seq"] for one in shown] == list(range(20, 60, 2))
    assert event["event_seq"] == 60
    assert bus.asked[-1][1]["after_event_seq"] == 59
    assert talk.room == "shop-x4kd"


async def test_state_is_read_again_after_an_event_that_is_not_a_message() -> None:
    bus = _Bus()
    talk, changes = await _opened(bus)
    bus.state = {"owner": "nova"}
    bus.coming.put_nowait([_event(1, "claim")])
    bus.coming.put_nowait([_event(2)])
    follow = talk.follow()

    seen = [await anext(follow), await anext(follow)]

    assert [one["event_seq"] for one in seen] == [1, 2]
    assert talk.state == {"owner": "nova"}
    assert changes


async def test_marks_follow_only_the_last_message() -> None:
    bus = _Bus()
    talk, _ = await _opened(bus)
    await talk.say(ChatText("hello", ("luna", "nova"), True))
    for report in (
        {"messages": [41], "agent": "luna", "state": "seen"},
        {"messages": [42], "agent": "kira", "state": "seen"},
        {"messages": [42], "agent": "luna", "state": "answered"},
        {"messages": [42], "agent": "luna", "state": "seen"},
        {"messages": [42], "agent": "luna", "state": 3},
        {"messages": "42", "agent": "nova", "state": "seen"},
    ):
        bus.reports.put_nowait(report)
    marked = asyncio.ensure_future(talk.mark())

    await asyncio.wait_for(bus.reports.join(), LIMIT_S)
    marked.cancel()

    assert talk.last is not None
    assert talk.last.marks == {"luna": "answered", "nova": "queued"}
    assert bus.asked[-1] == (
        "send_message",
        {
            "room_id": "shop-x4kd",
            "body": "hello",
            "to_agent_id": ["luna", "nova"],
            "delivery_hint": "interrupt",
        },
    )


async def test_receipt_before_the_send_result_is_marked() -> None:
    bus = _Bus()
    talk, _ = await _opened(bus)
    marked = asyncio.ensure_future(talk.mark())
    asked = bus.tool

    async def slow(name: str, **arguments: object) -> Answer:
        bus.reports.put_nowait({"messages": [42], "agent": "luna", "state": "seen"})
        await asyncio.wait_for(bus.reports.join(), LIMIT_S)
        return await asked(name, **arguments)

    bus.tool = slow  # type: ignore[method-assign]  # the bus replies late
    await talk.say(ChatText("hello"))
    marked.cancel()

    assert talk.last is not None
    assert talk.last.marks == {"luna": "seen", "nova": "queued"}


def test_refused_name_suggests_a_close_one_or_lists_the_members() -> None:
    state: Answer = {"members": [{"agent_id": "luna"}, {"agent_id": "nova"}]}

    assert refusal_line(UnknownMember("lune", "shop"), state) == (
        "not sent: no such member: lune (did you mean luna?)"
    )
    assert refusal_line(UnknownMember("zed", "shop"), state) == (
        "not sent: no such member: zed; the members are luna, nova"
    )
    assert refusal_line(UnknownMember("zed", "shop"), {}) == (
        "not sent: no such member: zed; nobody is in the room"
    )
    assert "4096" in refusal_line(MessageTooLarge("the message", 5000, 4096), state).replace(",", "")


async def test_unknown_name_prevents_the_send_and_keeps_the_marks() -> None:
    bus = _Bus()
    talk, changes = await _opened(bus)

    with pytest.raises(UnknownMember):
        await talk.say(ChatText("hello", ("nobody",)))

    assert talk.last is None
    assert not changes


async def test_first_task_to_end_cancels_the_others_and_raises_its_error() -> None:
    async def fails() -> None:
        raise Disconnected("the daemon has gone")

    waits = asyncio.ensure_future(asyncio.Event().wait())

    with pytest.raises(Disconnected):
        await until_first(asyncio.ensure_future(fails()), waits)  # type: ignore[arg-type]  # it never ends

    assert waits.cancelled()


def test_members_are_listed_one_per_line() -> None:
    members = [
        {"agent_id": "luna", "harness": "claude", "present": True, "is_owner": True},
        {"agent_id": "nova", "present": False},
    ]

    assert who_lines({"members": members}) == [
        "luna  claude, here, has the stick",
        "nova  away",
    ]
    assert who_lines({}) == ["nobody is in the room"]
