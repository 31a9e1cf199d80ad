"""Viewers: their queues are bounded, frames are never cut, none blocks another, and one has the keyboard."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest_asyncio
from tests.limits import LIMIT_S

from palaver.errors import BadRequest
from palaver.protocol.agent_socket import (
    CONTROL,
    DATA,
    Frame,
    ViewerFrameReader,
    control_to_bytes,
    data_frames,
)
from palaver.terminal.viewers import Viewer, Viewers

SCREEN = b"the screen as it is"
PIECE = b"x" * 65536


class FakeStage:
    """A terminal host that records its calls."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.controls: list[dict[str, object]] = []
        self.has_room = True
        self.changes = 0
        self.gone = 0
        self.is_flooded = False

    def redraw(self) -> bytes:
        return SCREEN

    def on_keys(self, viewer: Viewer, keys: bytes) -> bool:
        self.keys.append(keys)
        return self.has_room

    def on_control(self, viewer: Viewer, fields: dict[str, object]) -> None:
        self.controls.append(fields)
        if fields["type"] == "bad":
            raise BadRequest("no such control")

    def on_viewers(self) -> None:
        self.changes += 1

    def on_gone(self, viewer: Viewer) -> None:
        self.gone += 1


class Room:
    """Viewers, and the person's end of each connection."""

    def __init__(self) -> None:
        self.stage = FakeStage()
        self.viewers = Viewers(self.stage)
        self.ends: list[socket.socket] = []

    def enter(self, first: bytes = b"", greeting: bytes = b"") -> tuple[Viewer, socket.socket]:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self.ends.append(theirs)
        return self.viewers.adopt(ours, first=first, greeting=greeting), theirs


@pytest_asyncio.fixture
async def room() -> AsyncIterator[Room]:
    made = Room()
    yield made
    for viewer in made.viewers:
        viewer.close()
    for end in made.ends:
        end.close()


async def read_frames(end: socket.socket, reader: ViewerFrameReader) -> list[Frame]:
    """Read once and return the complete frames."""
    async with asyncio.timeout(LIMIT_S):
        return list(reader.feed(await asyncio.get_running_loop().sock_recv(end, 1 << 20)))


async def test_greeting_is_sent_before_the_screen(room: Room) -> None:
    _, end = room.enter(greeting=b'{"ok":true}\n')

    received = await asyncio.get_running_loop().sock_recv(end, 1 << 20)

    assert received == b'{"ok":true}\n' + data_frames(SCREEN)


async def test_bytes_after_the_request_are_processed(room: Room) -> None:
    room.enter(first=b"\n" + data_frames(b"keys"))

    assert room.stage.keys == [b"keys"]


async def test_half_frame_after_the_request_waits_for_its_rest(room: Room) -> None:
    frames = data_frames(b"keys")
    _, end = room.enter(first=frames[:3])

    end.send(frames[3:] + control_to_bytes({"type": "redraw"}))
    await until(lambda: room.stage.controls)

    assert room.stage.keys == [b"keys"]


async def until(is_so: object) -> None:
    assert callable(is_so)
    async with asyncio.timeout(LIMIT_S):
        while not is_so():  # noqa: ASYNC110 - the event loop itself changes the condition
            await asyncio.sleep(0)


async def test_output_reaches_all_viewers_in_order(room: Room) -> None:
    ends = [room.enter()[1] for _ in range(3)]

    room.viewers.show(b"one ")
    room.viewers.show(b"two")

    for end in ends:
        frames = await read_frames(end, ViewerFrameReader())
        assert b"".join(payload for _, payload in frames) == SCREEN + b"one two"


async def test_viewer_that_does_not_read_is_bounded_and_redrawn_later(
    room: Room,
) -> None:
    _, lazy = room.enter()
    _, busy = room.enter()
    shown = ViewerFrameReader()

    for _ in range(200):
        room.viewers.show(PIECE)
        await read_frames(busy, shown)
    room.viewers.tell({"type": "state"})

    received = b""
    reader = ViewerFrameReader()
    kinds: list[int] = []
    async with asyncio.timeout(LIMIT_S):
        while not received.endswith(SCREEN):
            for kind, payload in reader.feed(await asyncio.get_running_loop().sock_recv(lazy, 1 << 20)):
                kinds.append(kind)
                received += payload if kind == DATA else b""
    assert len(received) < 1024 * 1024
    assert set(received.replace(SCREEN, b"")) == {ord("x")}
    assert CONTROL in kinds


async def test_closed_viewer_is_removed_and_the_others_continue(room: Room) -> None:
    gone, end = room.enter()
    _, other = room.enter()

    end.close()
    for _ in range(3):
        room.viewers.show(b"more")
    await until(lambda: not gone.is_open)

    assert len(room.viewers) == 1
    frames = await read_frames(other, ViewerFrameReader())
    assert frames[-1] == (DATA, b"more")


async def test_half_closed_viewer_is_removed(room: Room) -> None:
    viewer, end = room.enter()

    end.shutdown(socket.SHUT_WR)

    await until(lambda: not viewer.is_open)


async def test_frame_over_the_limit_closes_only_its_viewer(room: Room) -> None:
    viewer, end = room.enter()
    _, other = room.enter()

    end.send(b"\x00\xff\xff\xff\xff")
    await until(lambda: not viewer.is_open)

    frames = await read_frames(end, ViewerFrameReader())
    assert json.loads(frames[-1][1])["error"] == "message_too_large"
    room.viewers.show(b"still here")
    assert (await read_frames(other, ViewerFrameReader()))[-1] == (DATA, b"still here")


async def test_nothing_after_an_unreadable_frame_is_read(room: Room) -> None:
    viewer, end = room.enter()
    _, other = room.enter()
    fill(room, viewer)
    end.send(b"\x00\xff\xff\xff\xff")
    sent = 0

    with suppress(BlockingIOError):
        for _ in range(100):
            sent += end.send(PIECE)
            other.send(data_frames(b"x"))
            await until(lambda: room.stage.keys)
            room.stage.keys.clear()

    assert sent < 100 * len(PIECE)


async def test_refused_control_is_reported_and_the_connection_stays_open(room: Room) -> None:
    viewer, end = room.enter()

    end.send(control_to_bytes({"type": "bad"}) + data_frames(b"keys"))
    await until(lambda: room.stage.keys)

    frames = await read_frames(end, ViewerFrameReader())
    assert json.loads(frames[-1][1]) == {
        "type": "error",
        "error": "bad_request",
        "message": "no such control",
        "about": "bad",
    }
    assert viewer.is_open


async def test_viewer_is_not_read_while_there_is_no_room_for_its_keys(room: Room) -> None:
    _, end = room.enter()
    room.stage.has_room = False
    end.send(data_frames(b"one"))
    await until(lambda: room.stage.keys)

    end.send(data_frames(b"two"))
    _, other = room.enter()
    other.send(control_to_bytes({"type": "later"}))
    await until(lambda: room.stage.controls)
    assert room.stage.keys == [b"one"]
    room.stage.has_room = True
    room.viewers.resume()

    await until(lambda: room.stage.keys == [b"one", b"two"])


async def test_keyboard_is_released_when_its_owner_disconnects(room: Room) -> None:
    first, end = room.enter()
    second, _ = room.enter()
    assert room.viewers.take_keyboard(first, is_forced=False)
    assert not room.viewers.take_keyboard(second, is_forced=False)
    assert not room.viewers.can_type(second)
    changes = room.stage.changes

    end.close()
    await until(lambda: room.viewers.owner is None)

    assert room.stage.changes > changes
    assert room.viewers.can_type(second)


async def test_keyboard_can_be_taken_over_and_given_up(room: Room) -> None:
    first, _ = room.enter()
    second, _ = room.enter()
    room.viewers.take_keyboard(first, is_forced=False)

    assert room.viewers.take_keyboard(second, is_forced=True)
    room.viewers.give_up_keyboard(first)
    assert room.viewers.owner is second
    room.viewers.give_up_keyboard(second)

    assert room.viewers.owner is None


async def test_last_control_is_sent_before_the_connection_ends(room: Room) -> None:
    viewer, end = room.enter()

    room.viewers.tell({"type": "exited", "status": 0})
    room.viewers.end()

    frames = await read_frames(end, ViewerFrameReader())
    assert json.loads(frames[-1][1]) == {"type": "exited", "status": 0}
    assert not viewer.is_open
    assert await asyncio.get_running_loop().sock_recv(end, 1) == b""


async def test_half_sent_frame_is_completed_after_an_upgrade(room: Room) -> None:
    _, end = room.enter()
    for _ in range(10):
        room.viewers.show(PIECE)
    (kept,) = room.viewers.release()
    again = Viewers(FakeStage())

    again.take_up([kept])

    received: list[bytes] = []
    reader = ViewerFrameReader()
    async with asyncio.timeout(LIMIT_S):
        while received[-1:] != [SCREEN] or len(received) == 1:
            data = await asyncio.get_running_loop().sock_recv(end, 1 << 20)
            received += [payload for _, payload in reader.feed(data)]
    assert received[0] == received[-1] == SCREEN
    assert set(received[1:-1]) == {PIECE}
    for viewer in again:
        viewer.close()


async def test_viewer_that_sends_requests_but_never_reads_is_closed(room: Room) -> None:
    viewer, end = room.enter()
    fill(room, viewer)

    for _ in range(100):
        if not viewer.is_open:
            break
        with suppress(BlockingIOError):
            end.send(control_to_bytes({"type": "bad"}) * 10)
        await asyncio.sleep(0)

    await until(lambda: not viewer.is_open)
    assert len(room.viewers) == 0


async def test_only_the_newest_control_of_each_type_is_kept_for_a_slow_viewer(room: Room) -> None:
    viewer, end = room.enter()
    fill(room, viewer)

    for number in range(10_000):
        room.viewers.tell({"type": "size", "cols": number, "rows": number})
    room.viewers.tell({"type": "state", "state": "idle"})

    assert viewer.is_open
    reader = ViewerFrameReader()
    controls: list[object] = []
    while len(controls) < 2:
        controls += [json.loads(frame) for kind, frame in await read_frames(end, reader) if kind == CONTROL]
    assert controls == [{"type": "size", "cols": 9_999, "rows": 9_999}, {"type": "state", "state": "idle"}]


def fill(room: Room, viewer: Viewer) -> None:
    """Show output until the connection is full."""
    while not viewer.is_waiting:
        room.viewers.show(PIECE)


async def test_keys_without_room_are_dropped_when_their_viewer_leaves(room: Room) -> None:
    _, end = room.enter()
    room.stage.has_room = False
    end.send(data_frames(b"one"))
    await until(lambda: room.stage.keys)

    end.close()
    room.viewers.resume()

    await until(lambda: len(room.viewers) == 0)


async def test_missed_output_is_redrawn_only_after_a_flood(room: Room) -> None:
    viewer, end = room.enter()
    shown = ViewerFrameReader()
    room.stage.is_flooded = True
    for _ in range(20):
        room.viewers.show(PIECE)
    while viewer.is_waiting:
        await read_frames(end, shown)
    room.viewers.tell({"type": "state"})
    frames = await read_frames(end, shown)
    assert frames[-1][0] == CONTROL
    assert (DATA, SCREEN) not in frames

    room.viewers.catch_up()

    assert await read_frames(end, shown) == [(DATA, SCREEN)]


async def test_catching_up_sends_nothing_to_an_up_to_date_viewer(room: Room) -> None:
    _, end = room.enter()
    shown = ViewerFrameReader()
    await read_frames(end, shown)

    room.viewers.catch_up()
    room.viewers.show(b"more")

    assert await read_frames(end, shown) == [(DATA, b"more")]
