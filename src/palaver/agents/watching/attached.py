"""The viewers of an agent's terminal, and the one that has its keyboard.

Each viewer has an outbox with a limit, so that a slow viewer delays neither the agent nor the other viewers.
This module does not check who may attach: that is decided before a connection gets here.
"""

import socket
from collections.abc import Iterable, Iterator
from typing import Final

from palaver.agents.watching.frames_wire import control_to_bytes, data_frames
from palaver.agents.watching.viewer import KeptViewer, Stage, Viewer

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
        is_human: bool = True,
        size: tuple[int, int] | None = None,
    ) -> Viewer:
        """Add a viewer. It receives the greeting, then the current screen, then all later output.

        `first` is the data that it sent after its request, `size` the columns and rows that it has.
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
            viewer = self.adopt(connection, first=one.received, greeting=one.unsent, size=one.size)
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
        """Return whether this viewer may type: a person who has the keyboard, or the keyboard is free."""
        return viewer.is_human and self.owner in (None, viewer)

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
