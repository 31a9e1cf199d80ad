"""What can be asked about agents that live in a terminal, and the bytes that are typed raw. Pure.

Raw bytes are kept exactly, as base64, beside a text in which every control byte is written out: a log holds
what was typed and shows it harmlessly.
"""

import base64
import binascii
from typing import Final

import msgspec

from palaver.errors import BadRequest, MessageTooLarge

PAUSED: Final = "agent.paused"
UNPAUSED: Final = "agent.unpaused"
TYPED: Final = "typed"
"""The `life` action of what a person typed at an agent's terminal."""
DIALOG: Final = "dialog"
"""Why a gate is closed, and an interrupt held, while a dialog is open: it opens by itself, with the gate."""
USAGE_LIMIT: Final = "usage_limit"
"""Why a gate is closed while an allowance is used up, and what is said where no more than that is known."""

GATE_ADVICE: Final = {
    "prompt": (
        "its program shows no prompt that is known to take a message: name it with 'pal run --prompt REGEX' "
        "or in a profile file"
    ),
    "tool": "a tool that it started reads its terminal: answer it with 'pal attach'",
}
"""What a closed gate means and how to open it, by the reason. Other reasons say enough by themselves."""

LIMIT_RAW_BYTES: Final = 16 * 1024
"""So many keys go at once; written out they still fit into a message."""
RAW_EXPIRES_MS: Final = 10_000
"""Keys that cannot be typed by then are not typed later: whatever they were an answer to may be gone."""


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """Hand an agent nothing but interrupts until `Unpause`."""

    name: str


class Unpause(msgspec.Struct, frozen=True, kw_only=True):
    """Hand an agent its mail again."""

    name: str


class Typed(msgspec.Struct, frozen=True, kw_only=True):
    """A person typed this at an agent's terminal. From its holder, through the door."""

    name: str
    text: str = ""
    secret: int = 0
    """The number of characters of a secret, which comes in place of its text."""


class FireNag(msgspec.Struct, frozen=True, kw_only=True):
    """Remind a recipient that an answer is waited for, or tell the sender that none will come."""

    agent: str
    request: int


def secret_text(characters: int) -> str:
    """Return what the log keeps in place of a secret."""
    return f"secret, {characters} character{'' if characters == 1 else 's'}"


def raw_to_text(data: bytes) -> str:
    """Encode the bytes as they stand in an event; raises for none at all, and for too many."""
    if not data:
        raise BadRequest("there is nothing to type")
    if len(data) > LIMIT_RAW_BYTES:
        raise MessageTooLarge("what is to be typed", len(data), LIMIT_RAW_BYTES)
    return base64.b64encode(data).decode()


def raw_from_text(text: str) -> bytes:
    """Give the bytes that `raw_to_text` was given."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequest("the bytes to type cannot be read") from error


def shown(data: bytes) -> str:
    r"""Write bytes so that they can be read and do nothing: `\x1b[A`, `y\r`."""
    text = data.decode("utf-8", "surrogateescape")
    return "".join(char if char.isprintable() and char != "\\" else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # a byte that is no UTF-8
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode()
