"""One message bus for coding agents and the people who work with them.

Only the names listed here are public; everything else may change without notice. They are loaded at first
use, so that the thin client, which needs none of them, starts fast.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from palaver import errors
    from palaver.client.agent import Agent
    from palaver.client.connection import Connection, connect
    from palaver.client.message import Message
    from palaver.client.receipt import Delivery, Receipt
    from palaver.model.envelope import Envelope, Event, matches_recipient
    from palaver.routing.paths import path_matches

__all__ = [
    "Agent",
    "Connection",
    "Delivery",
    "Envelope",
    "Event",
    "Message",
    "Receipt",
    "__version__",
    "connect",
    "errors",
    "matches_recipient",
    "path_matches",
]

_HOMES = {
    "Agent": "palaver.client.agent",
    "Connection": "palaver.client.connection",
    "Delivery": "palaver.client.receipt",
    "Envelope": "palaver.model.envelope",
    "Event": "palaver.model.envelope",
    "Message": "palaver.client.message",
    "Receipt": "palaver.client.receipt",
    "connect": "palaver.client.connection",
    "matches_recipient": "palaver.model.envelope",
    "path_matches": "palaver.routing.paths",
}


if not TYPE_CHECKING:  # a type checker knows the names above, and that there are no others

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name == "errors":
            return import_module("palaver.errors")
        if name not in _HOMES:
            raise AttributeError(f"module 'palaver' has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
