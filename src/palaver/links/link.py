"""One connection: who is behind it, what it opened, and the way back. Reads and writes no bytes itself."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import MappingProxyType

from palaver.errors import BadRequest, NotAllowed
from palaver.links.outbox import Outbox
from palaver.model.agent import Caller, Standing


class Link:
    """A caller at a door, from connecting to closing. Belongs to the loop's thread."""

    def __init__(self, *, id: str, caller: Caller, outbox: Outbox) -> None:
        self.id = id
        self.caller = caller
        self.outbox = outbox
        self._names: dict[str, Standing] = {}
        self._ends = ExitStack()
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """True from the first moment of closing."""
        return self._is_closed

    @property
    def names(self) -> Mapping[str, Standing]:
        """The names opened on this link, which live as long as it does, in the order of opening."""
        return MappingProxyType(self._names)

    def open_name(self, name: str, standing: Standing) -> None:
        """Open a child name on this link, with at most the link's own standing. Twice is once."""
        if self._is_closed:
            raise BadRequest("the connection is closed")
        if standing > self.caller.standing:
            raise NotAllowed(f"opening {name}", self.caller.standing.word, standing.word)
        self._names[name] = standing

    def close_name(self, name: str) -> None:
        """Give up a name; nothing happens when it is not open here."""
        self._names.pop(name, None)

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call back when the link closes, the last one added first; at once when it has closed already."""
        if self._is_closed:
            callback()
        else:
            self._ends.callback(callback)

    def close(self) -> None:
        """Close the outbox and tell everyone, once. One callback that fails keeps no other from its call."""
        if self._is_closed:
            return
        self._is_closed = True
        self.outbox.close()
        self._ends.close()
