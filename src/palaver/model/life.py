"""The moments of an agent's life: the events that tell of them, and how `life` events name them. Pure.

`started` and `stopped` stand right behind the hello or bye that they repeat in words of their own: for those
who follow lives. Nothing is decided by them.
"""

from typing import Final

from palaver.model.envelope import Event
from palaver.model.terminal import PAUSED, UNPAUSED

HELLO: Final = "agent.hello"
BYE: Final = "agent.bye"
LIFE: Final = "life"

STARTED: Final = "started"
READY: Final = "ready"
STOPPED: Final = "stopped"
RESUMED: Final = "resumed"
SESSION: Final = "session"
DAEMON_STARTED: Final = "daemon_started"

SEAT_TYPES: Final = frozenset({HELLO, BYE, LIFE})
"""By these an agent comes, goes, or is back at another seat."""

STATE_TYPES: Final = frozenset({"status", PAUSED, UNPAUSED})
"""By these an agent stays where it is, and is in another state."""

AGENT_TYPES: Final = SEAT_TYPES | STATE_TYPES
"""By these anything changes that the state holds of an agent."""

_ECHOES: Final = frozenset({STARTED, STOPPED})
_WHOLE: Final = frozenset({RESUMED, SESSION})


def is_echo(event: Event) -> bool:
    """Tell whether an event says again what the hello or bye before it has said."""
    return event.type == LIFE and event.payload.get("action") in _ECHOES


def has_agent(event: Event) -> bool:
    """Tell whether an event carries an agent as it is from then on."""
    return event.type == LIFE and event.payload.get("action") in _WHOLE


def is_return(event: Event) -> bool:
    """Tell whether an agent is back by this event: at another seat, or on a new connection."""
    return event.type == LIFE and event.payload.get("action") == RESUMED


def is_ready(event: Event) -> bool:
    """Tell whether an agent is idle by this event for the first time since it came."""
    return event.type == LIFE and event.payload.get("action") == READY
