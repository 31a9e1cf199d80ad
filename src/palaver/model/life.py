"""The moments of an agent's life, as `life` events name them. Pure.

`started` and `stopped` stand right behind the hello or bye that they repeat in words of their own: for those
who follow lives. Nothing is decided by them.
"""

from typing import Final

from palaver.model.envelope import Event

LIFE: Final = "life"

STARTED: Final = "started"
READY: Final = "ready"
STOPPED: Final = "stopped"
RESUMED: Final = "resumed"
DAEMON_STARTED: Final = "daemon_started"

_ECHOES: Final = frozenset({STARTED, STOPPED})


def is_echo(event: Event) -> bool:
    """Tell whether an event says again what the hello or bye before it has said."""
    return event.type == LIFE and event.payload.get("action") in _ECHOES


def is_return(event: Event) -> bool:
    """Tell whether an agent is back by this event: at another seat, or on a new connection."""
    return event.type == LIFE and event.payload.get("action") == RESUMED
