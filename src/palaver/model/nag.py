"""An answer that is waited for, as rows of the fold: who owes it, and how often it was reminded. Pure."""

from typing import Final

import msgspec

LIMIT_NAGS: Final = 3
"""So often a recipient is reminded."""


class Nag(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One answer that one recipient owes to the sender of a message."""

    agent: str
    request: int
    sender: str
    nags: int = 0
    last: int = 0
    """The place of the last reminder: the next one waits until that was seen."""


class NagDue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a reminder is due: the agent is idle, or it stopped."""

    state: str
    cause: str
    since: int = 0
    """When an agent that was idle had seen it all, in Unix ms: it has had no time for it yet."""


decode_nag: Final = msgspec.json.Decoder(Nag).decode
decode_nag_due: Final = msgspec.json.Decoder(NagDue).decode
