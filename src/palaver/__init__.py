"""One message bus for coding agents and the people who work with them.

Only the names listed here are public; everything else may change without notice. Each is loaded at its first
use: every command imports this package, and would otherwise wait for modules that it does not need.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from palaver import errors
    from palaver.client.connection import Connection, connect
    from palaver.client.values import AgentInfo as Agent
    from palaver.client.values import Delivery, Message, Receipt
    from palaver.domain.paths import path_matches
    from palaver.protocol.envelope import Draft as Envelope
    from palaver.protocol.envelope import Event, matches_recipient
    from palaver.protocol.paths import (
        DeadLetter,
        PathSubscription,
        RoutedMessage,
        RouteResult,
        SessionId,
        SubscriptionResult,
    )
    from palaver.protocol.paths import Delivered as Routed
    from palaver.version import __version__

__all__ = [
    "Agent",
    "Connection",
    "DeadLetter",
    "Delivery",
    "Envelope",
    "Event",
    "Message",
    "PathSubscription",
    "Receipt",
    "RouteResult",
    "Routed",
    "RoutedMessage",
    "SessionId",
    "SubscriptionResult",
    "__version__",
    "connect",
    "errors",
    "matches_recipient",
    "path_matches",
]

# The full names of the public names; a type checker reads the imports above instead.
_HOMES = {
    "Agent": "palaver.client.values.AgentInfo",
    "Connection": "palaver.client.connection.Connection",
    "DeadLetter": "palaver.protocol.paths.DeadLetter",
    "Delivery": "palaver.client.values.Delivery",
    "Envelope": "palaver.protocol.envelope.Draft",
    "Event": "palaver.protocol.envelope.Event",
    "Message": "palaver.client.values.Message",
    "PathSubscription": "palaver.protocol.paths.PathSubscription",
    "Receipt": "palaver.client.values.Receipt",
    "RouteResult": "palaver.protocol.paths.RouteResult",
    "Routed": "palaver.protocol.paths.Delivered",
    "RoutedMessage": "palaver.protocol.paths.RoutedMessage",
    "SessionId": "palaver.protocol.paths.SessionId",
    "SubscriptionResult": "palaver.protocol.paths.SubscriptionResult",
    "__version__": "palaver.version.__version__",
    "connect": "palaver.client.connection.connect",
    "matches_recipient": "palaver.protocol.envelope.matches_recipient",
    "path_matches": "palaver.domain.paths.path_matches",
}


if not TYPE_CHECKING:  # a type checker knows the names above, and that there are no others

    def __getattr__(name: str) -> object:
        from importlib import import_module

        # The only public name that is a module: the look-up below would search it as an attribute.
        if name == "errors":
            return import_module("palaver.errors")
        if name not in _HOMES:
            raise AttributeError(f"module 'palaver' has no attribute {name!r}")
        module, _, attribute = _HOMES[name].rpartition(".")
        return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return __all__
