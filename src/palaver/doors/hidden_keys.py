"""Raw keys for a prompt that asks for a secret: the log keeps a length and a hash, and memory the keys.

The holder is asked first whether the program hides what is typed. The keys wait here until they are typed or
expire. They are lost with the daemon: then the holder refuses the message.
"""

import asyncio
import base64
import hashlib
import secrets
from collections.abc import Mapping
from typing import Final

from msgspec import structs

from palaver.doors.holds import STATUS, Holds
from palaver.errors import NotFound, Unavailable
from palaver.model.request import Send
from palaver.model.terminal import RAW_EXPIRES_MS, raw_to_text

_ASK_S: Final = 1.0
_GRACE_S: Final = 10.0
"""How long the keys are kept after they have expired: an offer may be on its way."""
_COST: Final = {"n": 2**14, "r": 8, "p": 1, "dklen": 32}
"""Cost of scrypt: about 50 ms for one guess, because a password is short."""


async def hide_keys(holds: Holds, request: Send) -> Send:
    """Replace raw keys by a hash where their terminal asks for a secret; return any other request unchanged.

    Without a holder's reply it is not known that the keys will be shown, so they are hidden too. The broker
    refuses keys for an agent that has no holder.
    """
    if not request.raw or request.is_dry_run:
        return request
    try:
        told = await holds.ask_once(request.recipient, STATUS, limit_s=_ASK_S)
        is_hidden = told.ok.get("secret") is True
    except (NotFound, Unavailable):
        is_hidden = True
    if not is_hidden:
        return request
    raw_to_text(request.raw)  # It refuses keys that are empty or too large.
    digest = await asyncio.to_thread(secret_hash, request.raw)
    holds.hidden[digest] = request.raw
    kept_s = (request.expires_in_ms or RAW_EXPIRES_MS) / 1000 + _GRACE_S
    asyncio.get_running_loop().call_later(kept_s, holds.hidden.pop, digest, None)
    return structs.replace(request, raw_hash=digest)


def show_keys(holds: Holds, view: dict[str, object]) -> dict[str, object]:
    """Add the hidden keys to a message for the holder that types them; they are not in the log."""
    keys = holds.hidden.get(str(view.get("hash", "")))
    return view if keys is None else {**view, "raw": base64.b64encode(keys).decode()}


def secret_hash(data: bytes) -> str:
    """Return a salted hash that is slow to guess: `scrypt$16384$8$1$SALT$HASH`, in base64."""
    salt = secrets.token_bytes(16)
    return _format(salt, hashlib.scrypt(data, salt=salt, **_COST))


def _format(salt: bytes, digest: bytes) -> str:
    words: Mapping[str, int] = _COST
    numbers = f"{words['n']}${words['r']}${words['p']}"
    return f"scrypt${numbers}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"
