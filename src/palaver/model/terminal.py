"""Requests about agents in a terminal, and the bytes that are typed raw. Pure.

Raw bytes are stored exactly, as base64, with a text in which every control byte is escaped: a log contains
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
"""The `life` action of a line that a person typed at an agent's terminal."""
DIALOG: Final = "dialog"
"""The reason of a closed gate, and of held interrupts, while a dialog is open: the gate opens by itself."""
USAGE_LIMIT: Final = "usage_limit"
"""The reason of a closed gate while a usage limit is reached, and its text if nothing else is known."""

GATE_ADVICE: Final = {
    "prompt": (
        "its program shows no known prompt: describe the prompt with 'pal run --prompt REGEX' "
        "or in a profile file"
    ),
    "tool": (
        "a process that its program started reads the terminal: answer it with 'pal attach'; if that process "
        "is the agent, start it with exec, or name its prompt with 'pal run --prompt REGEX'"
    ),
}
"""The meaning of a closed gate and how to open it, by the reason. Other reasons explain themselves."""

LIMIT_RAW_BYTES: Final = 16 * 1024
"""Keys that can be sent at once; escaped they still fit into a message."""
RAW_EXPIRES_MS: Final = 10_000
"""Keys that are not typed by then are dropped: the question they were for may be closed."""


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """Deliver only interrupts to an agent until `Unpause`."""

    name: str


class Unpause(msgspec.Struct, frozen=True, kw_only=True):
    """Deliver an agent's mail again."""

    name: str


class Typed(msgspec.Struct, frozen=True, kw_only=True):
    """A person typed this at an agent's terminal. From its holder, through the door."""

    name: str
    text: str = ""
    secret: int = 0
    """The number of characters of a secret, which is sent instead of its text."""


class FireNag(msgspec.Struct, frozen=True, kw_only=True):
    """Remind a recipient of an expected reply, or notify the sender that there will be none."""

    agent: str
    request: int


def secret_text(characters: int) -> str:
    """Return the text that the log stores instead of a secret."""
    return f"secret, {characters} character{'' if characters == 1 else 's'}"


def raw_to_text(data: bytes) -> str:
    """Encode the bytes for an event; raise an error for empty and oversized input."""
    if not data:
        raise BadRequest("the keys to type are missing")
    if len(data) > LIMIT_RAW_BYTES:
        raise MessageTooLarge("the input to type", len(data), LIMIT_RAW_BYTES)
    return base64.b64encode(data).decode()


def raw_from_text(text: str) -> bytes:
    """Return the bytes that were passed to `raw_to_text`."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequest("the bytes to type are not valid base64") from error


def shown(data: bytes) -> str:
    r"""Return bytes in a readable and harmless form: `\x1b[A`, `y\r`."""
    text = data.decode("utf-8", "surrogateescape")
    return "".join(char if char.isprintable() and char != "\\" else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # a byte that is not UTF-8
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode()
