"""The life of an agent: the types of events about it, and the actions of `life` events. Pure.

`started` and `stopped` directly follow the hello or bye that they repeat, for followers of `life` events.
Nothing is decided by them.
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
"""Events by which an agent joins, leaves, or returns at another seat."""

STATE_TYPES: Final = frozenset({"status", PAUSED, UNPAUSED})
"""Events that change the state of an agent and not its seat."""

AGENT_TYPES: Final = SEAT_TYPES | STATE_TYPES
"""Events that change any stored field of an agent."""

_ECHOES: Final = frozenset({STARTED, STOPPED})
_WHOLE: Final = frozenset({RESUMED, SESSION})


def is_echo(event: Event) -> bool:
    """Return whether an event repeats the hello or bye before it."""
    return event.type == LIFE and event.payload.get("action") in _ECHOES


def has_agent(event: Event) -> bool:
    """Return whether an event carries the complete agent as it is from then on."""
    return event.type == LIFE and event.payload.get("action") in _WHOLE


def is_return(event: Event) -> bool:
    """Return whether an agent returns with this event: at another seat, or on a new connection."""
    return event.type == LIFE and event.payload.get("action") == RESUMED


def is_ready(event: Event) -> bool:
    """Return whether an agent is idle for the first time since it joined."""
    return event.type == LIFE and event.payload.get("action") == READY
