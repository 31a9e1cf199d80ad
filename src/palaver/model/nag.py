"""An expected reply, as rows of the fold: the agent that owes it, and its reminders. Pure."""

from typing import Final

import msgspec

LIMIT_NAGS: Final = 3
"""The number of reminders that a recipient gets."""


class Nag(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One reply that one recipient owes to the sender of a message."""

    agent: str
    request: int
    sender: str
    nags: int = 0
    last: int = 0
    """The seq of the last reminder: the next one waits until that was seen."""


class NagDue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a reminder is due: the agent is idle, or it stopped."""

    state: str
    cause: str
    since: int = 0
    """When an idle agent had seen everything, in Unix ms: it has had no time for the reply yet."""


decode_nag: Final = msgspec.json.Decoder(Nag).decode
decode_nag_due: Final = msgspec.json.Decoder(NagDue).decode
