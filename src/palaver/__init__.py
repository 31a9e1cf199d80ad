"""One message bus for coding agents and the people who work with them.

What this module lists is what outsiders may use; everything else may change without notice. The names are looked up
when they are first used, so that the thin client, which needs none of them, starts fast.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from palaver.client.connection import Connection, connect
    from palaver.client.message import Message, Receipt
    from palaver.model.envelope import Envelope, matches_recipient
    from palaver.routing.paths import path_matches

__all__ = [
    "Connection",
    "Envelope",
    "Message",
    "Receipt",
    "__version__",
    "connect",
    "matches_recipient",
    "path_matches",
]

_HOMES = {
    "Connection": "palaver.client.connection",
    "Envelope": "palaver.model.envelope",
    "Message": "palaver.client.message",
    "Receipt": "palaver.client.message",
    "connect": "palaver.client.connection",
    "matches_recipient": "palaver.model.envelope",
    "path_matches": "palaver.routing.paths",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'palaver' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
