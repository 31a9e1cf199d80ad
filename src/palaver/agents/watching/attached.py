"""Those who watch an agent's terminal, and the one among them who has its keyboard.

Each has an outbox with a limit, so that nobody holds up the agent or the others. Who may attach was decided
before they come here.
"""

import socket
from collections.abc import Iterable, Iterator
from typing import Final

from palaver.agents.watching.frames_wire import control_to_bytes, data_frames
from palaver.agents.watching.viewer import KeptViewer, Stage, Viewer

LIMIT_CLIENTS: Final = 32


class Viewers:
    """Everybody who is attached. At most one has the keyboard; while one has, mail waits."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.owner: Viewer | None = None
        self.stalled: set[Viewer] = set()
        self._viewers: list[Viewer] = []
        self._state: dict[str, object] = {}

    def __len__(self) -> int:
        return len(self._viewers)

    def __iter__(self) -> Iterator[Viewer]:
        return iter(list(self._viewers))

    @property
    def has_terminal(self) -> bool:
        """Whether somebody's own terminal sees the output as it is, and so answers what the program asks."""
        return any(not viewer.is_drawn for viewer in self._viewers)

    def adopt(
        self,
        connection: socket.socket,
        *,
        first: bytes = b"",
        greeting: bytes = b"",
        is_human: bool = True,
        size: tuple[int, int] | None = None,
    ) -> Viewer:
        """Take in a connection: its greeting, then the screen as it is, then all that comes.

        `first` is what it sent behind its request, `size` the room that it has for the agent.
        """
        connection.setblocking(False)
        viewer = Viewer(connection, self, first, is_human=is_human)
        viewer.size = size
        self._viewers.append(viewer)
        viewer.send(greeting + data_frames(self.stage.redraw()))
        if viewer.is_open:
            self.stage.on_viewers()
            viewer.start()
        return viewer

    def show(self, data: bytes) -> None:
        """Send output to everybody; encoded once."""
        if self._viewers:
            frames = data_frames(data)
            for viewer in self:
                viewer.show(frames)

    def catch_up(self) -> None:
        """Send the screen as it is now to each viewer that missed output."""
        for viewer in self:
            viewer.catch_up()

    def tell(self, fields: dict[str, object]) -> None:
        """Send a control that says how something is to everybody."""
        frames = control_to_bytes(fields)
        for viewer in self:
            viewer.tell(str(fields["type"]), frames)

    def set_state(self, state: dict[str, object]) -> None:
        """Have everybody told how the agent is, when that has changed."""
        if state != self._state:
            self._state = state
            self.tell_state()

    def tell_state(self) -> None:
        """Tell everybody how the agent is, and who has the keyboard."""
        for viewer in self:
            word = "free" if self.owner is None else "own" if self.owner is viewer else "other"
            viewer.tell("state", control_to_bytes({"type": "state", **self._state, "passthrough": word}))

    def resume(self) -> None:
        """There is room for keys again."""
        stalled, self.stalled = self.stalled, set()
        for viewer in stalled:
            viewer.resume()

    def end(self) -> None:
        """Let everybody go, behind what they were sent."""
        for viewer in self:
            viewer.end()

    def release(self) -> list[KeptViewer]:
        """Give everybody up without a word, for the process that takes over."""
        return [viewer.release() for viewer in self]

    def take_up(self, kept: Iterable[KeptViewer]) -> None:
        """Go on with those whom an older version of this process had; they are shown the screen anew."""
        for one in kept:
            connection = socket.socket(fileno=one.descriptor)
            viewer = self.adopt(connection, first=one.received, greeting=one.unsent, size=one.size)
            viewer.is_drawn = viewer.is_drawn or one.is_drawn
            viewer.takes_mail = one.takes_mail
            if one.is_owner:
                self.take_keyboard(viewer, is_forced=True)

    # Sizes

    def sized(self, viewer: Viewer, size: tuple[int, int]) -> None:
        """Take in the size of a viewer's terminal. The last one that says so counts."""
        viewer.size = size
        if viewer in self._viewers:
            self._viewers.remove(viewer)
            self._viewers.append(viewer)

    @property
    def size(self) -> tuple[int, int] | None:
        """The size that counts now: of the last one that has said it and is still here."""
        return next((viewer.size for viewer in reversed(self._viewers) if viewer.size is not None), None)

    # The keyboard

    @property
    def holds_mail(self) -> bool:
        """Whether one has the keyboard for itself, so that only interrupts are typed."""
        return self.owner is not None and not self.owner.takes_mail

    def take_keyboard(self, viewer: Viewer, *, is_forced: bool) -> bool:
        """Give the keyboard to a viewer; False when another has it, and it did not ask to take it over."""
        if self.owner is not None and self.owner is not viewer and not is_forced:
            return False
        if self.owner is not viewer:
            self.owner = viewer
            self.stage.on_viewers()
        return True

    def give_up_keyboard(self, viewer: Viewer) -> None:
        """Take it back from a viewer; nothing happens when it has not got it."""
        if self.owner is viewer:
            self.owner = None
            self.stage.on_viewers()

    def can_type(self, viewer: Viewer) -> bool:
        """Whether its keys count: it has the keyboard, or nobody has."""
        return viewer.is_human and self.owner in (None, viewer)

    # What viewers call

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
