"""Parse a user's line in a chat: a message with its recipients, or a command. Pure; matches the help."""

import re
from dataclasses import dataclass
from typing import Final

COMMANDS: Final = {
    "/who": "who is in the room, and who has the stick",
    "/events": "what happened in the room lately",
    "/help": "what can be typed here",
    "/quit": "leave the chat; Ctrl-D does the same",
}

HELP: Final = (
    "text goes to everyone in the room; @name says it to one, @a @b to several",
    "!@name interrupts them; routing is not privacy: everyone in the room can read everything",
    *(f"{word}  {meaning}" for word, meaning in COMMANDS.items()),
)

LATELY: Final = 20
"""How many events `/events` shows."""

_MENTION: Final = re.compile(r"(?<![\w@!])(!?)@([a-z0-9][\w-]*(?::[a-z]+)?)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Said:
    """A text for the room, or for the members named in it."""

    text: str
    to: tuple[str, ...] = ()
    is_interrupt: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A line that begins with a slash."""

    word: str
    rest: str = ""


def parse_line(line: str) -> Said | Command | None:
    """Parse a line; None if it is empty.

    Names may be anywhere in the text and are kept; at its beginning they are removed. Two slashes at the
    beginning mean one.
    """
    text = line.strip()
    if not text:
        return None
    if text.startswith("//"):
        text = text[1:]
    elif text.startswith("/"):
        word, _, rest = text.partition(" ")
        return Command(word.lower(), rest.strip())
    found = list(_MENTION.finditer(text))
    to = tuple(dict.fromkeys(one[2].lower() for one in found))
    return Said(_without_heads(text), to, any(one[1] for one in found))


def no_command(word: str) -> str:
    """Return the error for an unknown command."""
    return f"{word} is not a command; /help shows the commands, and // begins a text with a slash"


def _without_heads(text: str) -> str:
    """Remove names that only address the message; a line of only names keeps them."""
    rest = text
    while (found := _MENTION.match(rest)) is not None:
        rest = rest[found.end() :].lstrip(" ,:")
    return rest or text
