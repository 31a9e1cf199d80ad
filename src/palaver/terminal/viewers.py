"""The viewers of a terminal: frames to each one without blocking, and the keys that they send."""

import asyncio
import socket
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

import msgspec

from palaver.errors import PalaverError
from palaver.protocol.agent_socket import (
    CONTROL,
    DATA,
    ViewerFrameReader,
    control_from_bytes,
    control_to_bytes,
    data_frames,
)

# --------------------
# Read from and write to a socket without blocking: only the bytes that it has, or has room for.


def read_ready(wire: socket.socket, limit_bytes: int) -> bytes | None:
    """Return the bytes that have arrived: None if nothing has, empty if the connection has ended."""
    try:
        return wire.recv(limit_bytes)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def send_ready(wire: socket.socket, unsent: bytearray) -> bool:
    """Send as much as the socket takes and remove it from `unsent`. Return False while bytes are left.

    If the connection has ended, `unsent` is dropped; the next read reports the end.
    """
    try:
        while unsent:
            del unsent[: wire.send(unsent)]
    except BlockingIOError:
        return False
    except OSError:
        unsent.clear()
    return True


# --------------------
# One viewer of an agent's terminal: its frames in and out, with a limited outbox.
#
# A viewer that does not read misses output and later receives the current screen. It never delays the agent
# or other viewers.

_READ_BYTES: Final = 65536
"""Bytes to read at a time."""
_LIMIT_OUT_BYTES: Final = 256 * 1024
"""Output that may wait for a viewer that does not read. It bounds the memory of a holder."""
_LIMIT_ANSWER_BYTES: Final = 1024 * 1024
"""Bytes that may wait, including requested data."""
_LIMIT_ANSWERS: Final = 256
"""Replies that may wait for a viewer that does not read; it is disconnected at the next one."""


class KeptViewer(msgspec.Struct, frozen=True, kw_only=True):
    """A viewer for the process that takes over: its descriptor and the partly received and sent frames."""

    # At an upgrade an older version wrote this, so a field added later needs a default (see `Kept`).
    descriptor: int
    received: bytes = b""
    unsent: bytes = b""
    is_owner: bool = False
    is_drawn: bool = False
    takes_mail: bool = False
    size: tuple[int, int] | None = None


class Stage(Protocol):
    """The parts of the terminal host that viewers use."""

    def redraw(self) -> bytes:
        """Return the bytes that draw the current terminal on an empty screen."""
        ...

    @property
    def is_flooded(self) -> bool:
        """Whether the program writes faster than its output can be parsed. Then the screen is drawn later."""
        ...

    def on_keys(self, viewer: "Viewer", keys: bytes) -> bool:
        """Accept keys of a viewer. Return False if there is no room: do not read from it for now."""
        ...

    def on_control(self, viewer: "Viewer", fields: dict[str, object]) -> None:
        """Handle a control of a viewer. Raises PalaverError if it is refused."""
        ...

    def on_viewers(self) -> None:
        """Note that a viewer attached, left, or took or released the keyboard."""
        ...

    def on_gone(self, viewer: "Viewer") -> None:
        """Note that a viewer left whose keys had no room."""
        ...


class ViewerGroup(Protocol):
    """The parts of `Viewers` that a viewer uses."""

    stage: Stage
    stalled: "set[Viewer]"

    def has_keyboard(self, viewer: "Viewer") -> bool:
        """Return whether this viewer has the keyboard."""
        ...

    def left(self, viewer: "Viewer") -> None:
        """Remove a viewer whose connection has ended."""
        ...


class Viewer:
    """One attached client. Frames are sent in order and never cut; output over the limit is dropped."""

    def __init__(self, connection: socket.socket, room: ViewerGroup, first: bytes) -> None:
        self.connection = connection
        self.is_drawn = False
        """It draws the screen itself, so its terminal neither sees nor answers queries of the program."""
        self.size: tuple[int, int] | None = None
        """The columns and rows that it has for the agent; None until it has reported them."""
        self.takes_mail = False
        """Whether messages may be typed while it has the keyboard (composer empty, no recent key)."""
        self._room = room
        self._reader = ViewerFrameReader(first)
        self._loop = asyncio.get_running_loop()
        self._out: deque[memoryview] = deque()
        self._out_bytes = 0
        self._answers = 0
        self._news: dict[str, bytes] = {}
        self._begun: memoryview | None = None
        self._has_missed_output = False
        self._is_writing = False
        self._is_ending = False
        self.is_open = True

    # Towards the client

    def send(self, frames: bytes) -> None:
        """Send frames after all earlier ones."""
        # No limit here: what a viewer can cause again and again must use one of the functions below.
        if self.is_open:
            self._out.append(memoryview(frames))
            self._out_bytes += len(frames)
            self._flush()

    def reply(self, frames: bytes) -> None:
        """Send the reply to a control. Disconnect a viewer that leaves `_LIMIT_ANSWERS` replies unread."""
        # A viewer that reads is never counted, however many requests it sends.
        self._answers = self._answers + 1 if self._is_writing else 0
        if self._answers > _LIMIT_ANSWERS:
            self.close()
        else:
            self.send(frames)

    def tell(self, kind: str, frames: bytes) -> None:
        """Send a status control. For a viewer that does not read, only the newest of each kind is kept."""
        # Each status replaces the one before, so a slow viewer needs no more memory than one of each kind.
        if self.is_open and self._is_writing:
            self._news[kind] = frames
        else:
            self.send(frames)

    def show(self, frames: bytes) -> None:
        """Send output. Over the limit, waiting output is dropped, and the current screen is sent later."""
        if self._has_missed_output or not self.is_open:
            return
        if self._out_bytes + len(frames) > _LIMIT_OUT_BYTES:
            self._has_missed_output = True
            # Replies and controls stay: the screen that is sent later does not replace them.
            self._out = deque(piece for piece in self._out if piece[0] != DATA)
            self._out_bytes = sum(map(len, self._out))
            return
        self.send(frames)

    def catch_up(self) -> None:
        """Send the screen as it is now to a viewer that missed output and has read everything else."""
        # A frame that is partly sent must be completed first, and the screen replaces only output that was
        # dropped.
        if self._has_missed_output and self.is_open and self._begun is None and not self._out:
            self._has_missed_output = False
            self.send(data_frames(self._room.stage.redraw()))

    def answer(self, frames: bytes) -> None:
        """Send requested data. It is dropped if the outbox would exceed `_LIMIT_ANSWER_BYTES`."""
        if self._out_bytes + len(frames) <= _LIMIT_ANSWER_BYTES:
            self.send(frames)

    @property
    def is_waiting(self) -> bool:
        """Whether its socket takes no more bytes for now."""
        return self._is_writing

    def end(self) -> None:
        """Close after the waiting frames are sent; at once if no frame waits."""
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
        """Return the next bytes to send. A partly sent frame is completed first: no frame is ever cut."""
        if self._begun is not None:
            return self._begun
        # Only when all else is sent: until then a newer control of the same kind replaces one of these.
        if not self._out and self._news:
            news, self._news = self._news, {}
            self._out.extend(map(memoryview, news.values()))
            self._out_bytes += sum(map(len, self._out))
        # During a flood each screen would be outdated before it is sent.
        if not self._out and self._has_missed_output and not self._room.stage.is_flooded:
            self._has_missed_output = False
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
        """Begin to read, first the data that came after its request. Does nothing if it has left already."""
        if self.is_open:
            self._loop.add_reader(self.connection, self._read)
            self._take(b"")

    def resume(self) -> None:
        """Read again after there was no room for its keys."""
        if self.is_open and not self._is_ending:
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
                # The frame before this one may have closed the viewer.
                if not self.is_open:
                    return
                if kind == DATA:
                    if not self._room.stage.on_keys(self, payload):
                        self._wait_for_room()
                elif kind == CONTROL:
                    self._obey(payload)
        except PalaverError as error:  # Not a frame, so the rest of the stream cannot be parsed either.
            # Read on, the rest would fill the memory for as long as the viewer does not read this error.
            self._loop.remove_reader(self.connection)
            self.send(error_frame(error))
            self.end()

    def _wait_for_room(self) -> None:
        # Frames already in the reader are still handled: they are at most one read.
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
        """Close now. A second call does nothing."""
        if self.is_open:
            self.is_open = False
            # Before the descriptor is closed: the system gives its number to the next connection.
            self._loop.remove_reader(self.connection)
            self._loop.remove_writer(self.connection)
            self.connection.close()
            self._room.left(self)

    def release(self) -> KeptViewer:
        """Release the descriptor without closing it, for the process that takes over."""
        # Before `detach`, after which the socket has no number that the loop could look up.
        self._loop.remove_reader(self.connection)
        self._loop.remove_writer(self.connection)
        self.is_open = False
        return KeptViewer(
            descriptor=self.connection.detach(),
            received=self._reader.rest(),
            # Only a frame that may be half sent: the newer version sends the whole screen after it.
            unsent=b"" if self._begun is None else bytes(self._begun),
            is_owner=self._room.has_keyboard(self),
            is_drawn=self.is_drawn,
            takes_mail=self.takes_mail,
            size=self.size,
        )


def error_frame(error: PalaverError, about: object = "", **more: object) -> bytes:
    """Make the control that reports a refusal. `about` is the type of the refused control."""
    fields = {"type": "error", "error": error.code, "message": str(error), "about": about}
    return control_to_bytes({**fields, **more})


# --------------------
# The viewers of an agent's terminal, and the one that has its keyboard.
#
# Each viewer has an outbox with a limit, so that a slow viewer delays neither the agent nor the other
# viewers. Every viewer is the person and may type, resize and stop: the agent's socket lets no other caller
# attach (`holder/agent_socket.py`). A viewer that may only watch would need its rights kept in `KeptViewer`.

LIMIT_CLIENTS: Final = 32
"""Viewers of one terminal at the same time."""


class Viewers:
    """All attached viewers, the last sized one last. At most one has the keyboard."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.owner: Viewer | None = None
        self.stalled: set[Viewer] = set()
        self._viewers: list[Viewer] = []
        self._state: dict[str, object] = {}

    def __len__(self) -> int:
        return len(self._viewers)

    def __iter__(self) -> Iterator[Viewer]:
        # A copy: a viewer whose connection fails leaves during the iteration.
        return iter(list(self._viewers))

    @property
    def has_terminal(self) -> bool:
        """Whether a viewer passes raw output to its terminal, so that this terminal answers queries in it."""
        return any(not viewer.is_drawn for viewer in self._viewers)

    def adopt(
        self,
        connection: socket.socket,
        *,
        first: bytes = b"",
        greeting: bytes = b"",
        size: tuple[int, int] | None = None,
    ) -> Viewer:
        """Add a viewer. It receives the greeting, then the current screen, then all later output.

        `first` is the data that it sent after its request, `size` the columns and rows that it has.
        """
        connection.setblocking(False)
        viewer = Viewer(connection, self, first)
        viewer.size = size
        self._viewers.append(viewer)
        # In the same step as the entry above: output in between would be missing or shown twice.
        viewer.send(greeting + data_frames(self.stage.redraw()))
        # The first send may have found the connection closed. Then `left` has removed the viewer already.
        if viewer.is_open:
            self.stage.on_viewers()
            viewer.start()
        return viewer

    def show(self, data: bytes) -> None:
        """Send output to every viewer. It is encoded only once."""
        if self._viewers:
            frames = data_frames(data)
            for viewer in self:
                viewer.show(frames)

    def catch_up(self) -> None:
        """Send the screen as it is now to each viewer that missed output."""
        for viewer in self:
            viewer.catch_up()

    def tell(self, fields: dict[str, object]) -> None:
        """Send a status control to every viewer."""
        frames = control_to_bytes(fields)
        for viewer in self:
            viewer.tell(str(fields["type"]), frames)

    def set_state(self, state: dict[str, object]) -> None:
        """Set the state of the agent, and send it to every viewer if it has changed."""
        if state != self._state:
            self._state = state
            self.tell_state()

    def tell_state(self) -> None:
        """Send every viewer the state of the agent and whether it, another or no viewer has the keyboard."""
        for viewer in self:
            # Words of the protocol, so they cannot change.
            word = "free" if self.owner is None else "own" if self.owner is viewer else "other"
            viewer.tell("state", control_to_bytes({"type": "state", **self._state, "passthrough": word}))

    def resume(self) -> None:
        """Read again from the viewers that had to wait: there is room for keys."""
        stalled, self.stalled = self.stalled, set()
        for viewer in stalled:
            viewer.resume()

    def end(self) -> None:
        """Disconnect every viewer after its waiting frames are sent."""
        for viewer in self:
            viewer.end()

    def release(self) -> list[KeptViewer]:
        """Release every connection without closing it, for the process that takes over."""
        return [viewer.release() for viewer in self]

    def take_up(self, kept: Iterable[KeptViewer]) -> None:
        """Continue with the viewers of the process that was replaced, and send each the current screen."""
        for one in kept:
            connection = socket.socket(fileno=one.descriptor)
            # The rest of a half-sent frame goes first, or the client could not parse the stream any more.
            viewer = self.adopt(connection, first=one.received, greeting=one.unsent, size=one.size)
            # A control in the received bytes, which `adopt` has handled already, may be newer.
            viewer.is_drawn = viewer.is_drawn or one.is_drawn
            viewer.takes_mail = one.takes_mail
            if one.is_owner:
                self.take_keyboard(viewer, is_forced=True)

    # Sizes

    def sized(self, viewer: Viewer, size: tuple[int, int]) -> None:
        """Set the size of a viewer's terminal. The most recently set size is the one that counts."""
        viewer.size = size
        if viewer in self._viewers:
            self._viewers.remove(viewer)
            self._viewers.append(viewer)

    @property
    def size(self) -> tuple[int, int] | None:
        """The size that counts: the most recently set one of the attached viewers, or None."""
        return next((viewer.size for viewer in reversed(self._viewers) if viewer.size is not None), None)

    # The keyboard

    @property
    def holds_mail(self) -> bool:
        """Whether a viewer has the keyboard exclusively, so that only interrupts are typed."""
        return self.owner is not None and not self.owner.takes_mail

    def take_keyboard(self, viewer: Viewer, *, is_forced: bool) -> bool:
        """Assign the keyboard to a viewer. Return False if another has it and `is_forced` is not set."""
        if self.owner is not None and self.owner is not viewer and not is_forced:
            return False
        if self.owner is not viewer:
            self.owner = viewer
            self.stage.on_viewers()
        return True

    def give_up_keyboard(self, viewer: Viewer) -> None:
        """Release the keyboard of a viewer. Does nothing if that viewer does not have it."""
        if self.owner is viewer:
            self.owner = None
            self.stage.on_viewers()

    def can_type(self, viewer: Viewer) -> bool:
        """Return whether this viewer may type: it has the keyboard, or the keyboard is free."""
        return self.owner in (None, viewer)

    # Called by the viewers

    def has_keyboard(self, viewer: Viewer) -> bool:
        return self.owner is viewer

    def left(self, viewer: Viewer) -> None:
        self._viewers.remove(viewer)
        if viewer in self.stalled:
            self.stalled.discard(viewer)
            self.stage.on_gone(viewer)
        if self.owner is viewer:
            self.owner = None
        self.stage.on_viewers()
