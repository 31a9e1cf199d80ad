"""Room ids, and finding a member by name. Pure."""

import hashlib
import re
from base64 import b32encode
from collections.abc import Callable
from typing import Final

from palaver.errors import AmbiguousRecipient, BadName, UnknownMember
from palaver.model.names import split_name
from palaver.rooms.room import Member, Room

_LIMIT_SLUG: Final = 32
_NO_SLUG: Final = re.compile(r"[^a-z0-9_]+")
_HASH_CHARACTERS: Final = 4
_BASE: Final = re.compile(r"[a-z0-9_-]+-[a-z2-7]{4}")
_NUMBER: Final = re.compile(r"(-[1-9][0-9]{0,8})?", re.ASCII)


def folder_name(path: str) -> str:
    """Return the last part of a path, or the whole path if it has no parts."""
    return path.rstrip("/").rpartition("/")[2] or path


def room_base(path: str) -> str:
    """Return the id of the first room at a path: the folder name in lower case and a hash of the path."""
    slug = _NO_SLUG.sub("-", folder_name(path).lower())[:_LIMIT_SLUG].strip("-") or "room"
    digest = b32encode(hashlib.sha256(path.encode()).digest()).decode().lower()
    return f"{slug}-{digest[:_HASH_CHARACTERS]}"


def room_id(base: str, number: int) -> str:
    """Return the id of the room with this number and base, counted from 1."""
    return base if number == 1 else f"{base}-{number}"


def check_room_id(id: str, base: str) -> None:
    """Raise ValueError for an id and a base that `room_base` and `room_id` cannot have made."""
    number = id.removeprefix(base)
    if not _BASE.fullmatch(base) or not id.startswith(base) or not _NUMBER.fullmatch(number):
        raise ValueError(f"{id!r} is not the id of a room")


def find_member(room: Room, word: str, is_present: Callable[[str], bool], *, asking: str = "") -> Member:
    """Find the one member with a full name, base name or harness, with or without `@`.

    A base name or harness never selects the member that is `asking`. If several others match, it selects the
    one that is present. Raises `AmbiguousRecipient` with the candidates, and `UnknownMember`.
    """
    wanted = _folded(word)
    if (member := room.member(wanted)) is not None:
        return member
    others = [member for member in room.members if member.name != asking]
    found = [member for member in others if _base(member.name) == wanted]
    found = found or [member for member in others if wanted and member.harness.lower() == wanted]
    if len(found) > 1:
        found = [member for member in found if is_present(member.name)] or found
    if len(found) > 1:
        raise AmbiguousRecipient(word, [member.name for member in found])
    if not found:
        raise UnknownMember(word, room.id)
    return found[0]


def _folded(word: str) -> str:
    """Return a name as stored: lower case, with the device in upper case."""
    name, colon, device = word.removeprefix("@").partition(":")
    return name.lower() + colon + device.upper()


def _base(name: str) -> str:
    try:
        return split_name(name).base
    except BadName:  # Names from the log can be invalid.
        return name
