"""One who watches an agent's terminal: frames in, frames out, with a limit to what waits.

One that does not read misses output and is then shown the screen anew; it never holds up anybody else.
"""

import asyncio
import socket
from collections import deque
from typing import Final, Protocol

import msgspec

from palaver.agents.watching.frames_wire import (
    CONTROL,
    DATA,
    FrameReader,
    control_from_bytes,
    control_to_bytes,
    data_frames,
)
from palaver.agents.watching.stream import read_ready
from palaver.errors import PalaverError

_READ_BYTES: Final = 65536
_LIMIT_OUT_BYTES: Final = 256 * 1024
"""Output that may wait for one who does not read: a holder stays small, whoever watches it."""
_LIMIT_ANSWER_BYTES: Final = 1024 * 1024
_LIMIT_ANSWERS: Final = 256
"""So many answers may wait for one who does not read; one more ends it: it only asks."""


class KeptViewer(msgspec.Struct, frozen=True, kw_only=True):
    """One who watches: its descriptor, what it has half sent, and what it was half sent."""

    descriptor: int
    received: bytes = b""
    unsent: bytes = b""
    is_owner: bool = False
    is_drawn: bool = False
    takes_mail: bool = False
    size: tuple[int, int] | None = None


class Stage(Protocol):
    """What the watched side does for those who watch."""

    def redraw(self) -> bytes:
        """Give the bytes that show the terminal as it is now on an empty screen."""
        ...

    @property
    def is_flooded(self) -> bool:
        """Whether the program writes faster than its output can be parsed: drawing the screen waits."""
        ...

    def on_keys(self, viewer: "Viewer", keys: bytes) -> bool:
        """Take keys of a viewer; False when there is no room, and it must not be read from for now."""
        ...

    def on_control(self, viewer: "Viewer", fields: dict[str, object]) -> None:
        """Take a control of a viewer; raises PalaverError for one that is refused."""
        ...

    def on_viewers(self) -> None:
        """Somebody came, went, or took the keyboard."""
        ...

    def on_gone(self, viewer: "Viewer") -> None:
        """One has gone whose keys had no room: they are nobody's any more."""
        ...


class Room(Protocol):
    """Those who watch together."""

    stage: Stage
    stalled: "set[Viewer]"

    def has_keyboard(self, viewer: "Viewer") -> bool:
        """Whether it has the keyboard."""
        ...

    def left(self, viewer: "Viewer") -> None:
        """One of them has gone."""
        ...


class Viewer:
    """One attached client. Its frames come in whole, and go out in the order in which they were given."""

    def __init__(self, connection: socket.socket, room: Room, first: bytes, *, is_human: bool) -> None:
        self.connection = connection
        self.is_human = is_human
        """Whether it may type."""
        self.is_drawn = False
        """It draws the screen itself, so no terminal of its own sees, or answers, what the program asks."""
        self.size: tuple[int, int] | None = None
        """The columns and rows that the agent has room for there; None while it has not said."""
        self.takes_mail = False
        """Messages may be typed although it has the keyboard: when the composer is empty and no key comes."""
        self._room = room
        self._reader = FrameReader(first)
        self._loop = asyncio.get_running_loop()
        self._out: deque[memoryview] = deque()
        self._out_bytes = 0
        self._answers = 0
        self._news: dict[str, bytes] = {}
        self._begun: memoryview | None = None
        self._is_behind = False
        self._is_writing = False
        self._is_ending = False
        self.is_open = True

    # Towards the client

    def send(self, frames: bytes) -> None:
        """Send frames behind all that were sent before."""
        if self.is_open:
            self._out.append(memoryview(frames))
            self._out_bytes += len(frames)
            self._flush()

    def reply(self, frames: bytes) -> None:
        """Send the answer to a control. One that asks and asks and never reads is let go."""
        self._answers = self._answers + 1 if self._is_writing else 0
        if self._answers > _LIMIT_ANSWERS:
            self.close()
        else:
            self.send(frames)

    def tell(self, kind: str, frames: bytes) -> None:
        """Send a control that says how something is. For one that does not read, only the newest is kept."""
        if self.is_open and self._is_writing:
            self._news[kind] = frames
        else:
            self.send(frames)

    def show(self, frames: bytes) -> None:
        """Send output. When it does not fit, what waits is dropped, and later the screen is shown anew."""
        if self._is_behind or not self.is_open:
            return
        if self._out_bytes + len(frames) > _LIMIT_OUT_BYTES:
            self._is_behind = True
            self._out = deque(piece for piece in self._out if piece[0] != DATA)
            self._out_bytes = sum(map(len, self._out))
            return
        self.send(frames)

    def catch_up(self) -> None:
        """Send the screen as it is now to a viewer that missed output and has read everything else."""
        if self._is_behind and self.is_open and self._begun is None and not self._out:
            self._is_behind = False
            self.send(data_frames(self._room.stage.redraw()))

    def answer(self, frames: bytes) -> None:
        """Send what it asked for; one that asks and does not read gets nothing."""
        if self._out_bytes + len(frames) <= _LIMIT_ANSWER_BYTES:
            self.send(frames)

    @property
    def is_waiting(self) -> bool:
        """Whether it takes nothing more for now."""
        return self._is_writing

    def end(self) -> None:
        """Close behind what was sent: at once when that is nothing."""
        self._is_ending = True
        self._flush()

    def _flush(self) -> None:
        try:
            while self.is_open and (piece := self._next()) is not None:
                sent = self.connection.send(piece)
                self._begun = piece[sent:] if sent < len(piece) else None
        except BlockingIOError:
            self._watch_room(is_wanted=True)
            return
        except OSError:
            self.close()
            return
        if self.is_open:
            self._watch_room(is_wanted=False)
            if self._is_ending:
                self.close()

    def _next(self) -> memoryview | None:
        """Give what goes out next: the rest of what was begun, so that no frame is ever cut."""
        if self._begun is not None:
            return self._begun
        if not self._out and self._news:
            news, self._news = self._news, {}
            self._out.extend(map(memoryview, news.values()))
            self._out_bytes += sum(map(len, self._out))
        if not self._out and self._is_behind and not self._room.stage.is_flooded:
            self._is_behind = False
            self._out.append(memoryview(data_frames(self._room.stage.redraw())))
            self._out_bytes += len(self._out[0])
        if self._out:
            self._begun = self._out.popleft()
            self._out_bytes -= len(self._begun)
        return self._begun

    def _watch_room(self, *, is_wanted: bool) -> None:
        if is_wanted != self._is_writing:
            self._is_writing = is_wanted
            if is_wanted:
                self._loop.add_writer(self.connection, self._flush)
            else:
                self._loop.remove_writer(self.connection)

    # From the client

    def start(self) -> None:
        """Begin to read, with what came behind its request; nothing when it has gone already."""
        if self.is_open:
            self._loop.add_reader(self.connection, self._read)
            self._take(b"")

    def resume(self) -> None:
        """Read again after there was no room for its keys."""
        if self.is_open:
            self._loop.add_reader(self.connection, self._read)

    def _read(self) -> None:
        data = read_ready(self.connection, _READ_BYTES)
        if data:
            self._take(data)
        elif data is not None:
            self.close()

    def _take(self, data: bytes) -> None:
        try:
            for kind, payload in self._reader.feed(data):
                if not self.is_open:
                    return
                if kind == DATA:
                    if not self._room.stage.on_keys(self, payload):
                        self._wait_for_room()
                elif kind == CONTROL:
                    self._obey(payload)
        except PalaverError as error:  # no frame: what follows cannot be read either
            self.send(error_frame(error))
            self.end()

    def _wait_for_room(self) -> None:
        # What is already in the reader goes on: it is no more than one read.
        self._loop.remove_reader(self.connection)
        self._room.stalled.add(self)

    def _obey(self, payload: bytes) -> None:
        fields: dict[str, object] = {}
        try:
            fields = control_from_bytes(payload)
            self._room.stage.on_control(self, fields)
        except PalaverError as error:
            self.reply(error_frame(error, fields.get("type", "")))

    # The end

    def close(self) -> None:
        """End it now. Closing twice is closing once."""
        if self.is_open:
            self.is_open = False
            self._loop.remove_reader(self.connection)
            self._loop.remove_writer(self.connection)
            self.connection.close()
            self._room.left(self)

    def release(self) -> KeptViewer:
        """Give the descriptor up without closing it, for the process that takes over."""
        self._loop.remove_reader(self.connection)
        self._loop.remove_writer(self.connection)
        self.is_open = False
        return KeptViewer(
            descriptor=self.connection.detach(),
            received=self._reader.rest(),
            unsent=b"" if self._begun is None else bytes(self._begun),
            is_owner=self._room.has_keyboard(self),
            is_drawn=self.is_drawn,
            takes_mail=self.takes_mail,
            size=self.size,
        )


def error_frame(error: PalaverError, about: object = "", **more: object) -> bytes:
    """Write a refusal as a control; `about` is the type of the control that was refused."""
    fields = {"type": "error", "error": error.code, "message": str(error), "about": about}
    return control_to_bytes({**fields, **more})
