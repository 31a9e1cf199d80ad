"""One connection: its caller, the names opened on it, and its outbox. Reads and writes no bytes itself."""

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
        """True as soon as closing starts."""
        return self._is_closed

    @property
    def names(self) -> Mapping[str, Standing]:
        """The names opened on this link, in order of opening. They end with the link."""
        return MappingProxyType(self._names)

    def open_name(self, name: str, standing: Standing) -> None:
        """Open a child name on this link, with at most the link's own standing. Repeats are harmless."""
        if self._is_closed:
            raise BadRequest("the connection is closed")
        if standing > self.caller.standing:
            raise NotAllowed(f"opening {name}", self.caller.standing.word, standing.word)
        self._names[name] = standing

    def close_name(self, name: str) -> None:
        """Close a name; does nothing if it is not open here."""
        self._names.pop(name, None)

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call back when the link closes, last added first; at once if it has closed already."""
        if self._is_closed:
            callback()
        else:
            self._ends.callback(callback)

    def close(self) -> None:
        """Close the outbox and run the callbacks, once. A callback that fails does not stop the others."""
        if self._is_closed:
            return
        self._is_closed = True
        self.outbox.close()
        self._ends.close()
