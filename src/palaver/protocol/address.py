"""The grammar of addresses, and the mentions in a text. Pure: parses addresses, does not resolve them.

    @api-luna  luna  luna:BOXE     Named
    @api-                          TagGroup
    @workers                       RoleGroup (singular too)
    @all                           Everyone
    @claude-*                      Glob
    @human                         Human
    room  #name                    RoomAddress
    anything with /                Path

Case matters only in paths, and the `@` is always optional.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from palaver.errors import BadRequest
from palaver.protocol.agents import ROLES
from palaver.protocol.text import LIMIT_PATH_BYTES, LIMIT_PATH_MANY, LIMIT_PATH_SEGMENTS, check_line

# --------------------
# The form of a delivery path: its segments, canonical spelling and limits. `domain/paths.py` matches paths.

AGENT: Final = "agent"
"""The first segment of every agent's own path."""

IRC_LOCAL: Final = "irc/local/"
"""The beginning of the paths of this bus's own IRC door: its channels (`irc/local/#dev`) and its guests."""

ONE: Final = "*"
MANY: Final = "**"


def split_path(path: str) -> tuple[str, ...]:
    """Return the segments; leading, trailing and doubled slashes are ignored.

    The empty path is one empty segment, so that `*` and `**` match it.
    """
    if "//" in path or path[:1] == "/" or path[-1:] == "/":
        return tuple(segment for segment in path.split("/") if segment) or ("",)
    return tuple(path.split("/"))


def check_path(path: str) -> str:
    """Return the canonical spelling of a path or pattern, or refuse it.

    Slashes at the ends and doubled slashes are dropped, and a run of `**` becomes one. Case is kept, except
    for the name in `agent/<name>`, which is folded.
    """
    check_line(path, "the path", LIMIT_PATH_BYTES)
    split = split_path(path)
    segments = [name for at, name in enumerate(split) if name != MANY or at == 0 or split[at - 1] != MANY]
    if segments == [""]:
        raise BadRequest("a path needs at least one character that is not a slash")
    if len(segments) > LIMIT_PATH_SEGMENTS:
        raise BadRequest(f"a path has at most {LIMIT_PATH_SEGMENTS} segments; this one has {len(segments)}")
    if segments.count(MANY) > LIMIT_PATH_MANY:
        raise BadRequest(f"a path has at most {LIMIT_PATH_MANY} '**'; this one has {segments.count(MANY)}")
    # The names of agents have no case. Only ASCII is folded: some other characters become ASCII in
    # lower case, such as the sign for kelvin, and would be a second way to write a name.
    if len(segments) > 1 and segments[0] == AGENT and segments[1].isascii():
        name, colon, device = segments[1].partition(":")
        segments[1] = name.lower() + colon + device.upper()
    return "/".join(segments)


# --------------------
# The kinds of address, their grammar, and the mentions in a text.


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A name: full, base, or the beginning of one. Only the directory can tell which."""

    name: str
    """Lower case, with the device in capitals."""
    explicit: bool = False
    """Written with its `@`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TagGroup:
    """All agents with a tag."""

    tag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleGroup:
    """All agents with a role."""

    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Everyone:
    """Every agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Glob:
    """Every full name that begins with the prefix, whose last character is a hyphen."""

    prefix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Human:
    """The person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomAddress:
    """Everyone in a room; without a name, the current one."""

    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """A delivery path, in its canonical spelling."""

    path: str


Address = Named | TagGroup | RoleGroup | Everyone | Glob | Human | RoomAddress | Path

_WORDS: Final[dict[str, Address]] = {
    "all": Everyone(),
    "human": Human(),
    "room": RoomAddress(),
    **{role: RoleGroup(role=role) for role in ROLES},
    **{f"{role}s": RoleGroup(role=role) for role in ROLES},
}
_NAME: Final = re.compile(r"([a-z][a-z0-9_-]*-)?[a-z0-9][a-z0-9_]*(:[a-z0-9]+)?")
_TAG: Final = re.compile(r"[a-z][a-z0-9_-]*")
_GLOB: Final = re.compile(r"[a-z0-9_-]*-\*")
_ROOM: Final = re.compile(r"#[^\s\x00-\x1f\x7f-\x9f/]+")
_SYSTEM: Final = "system senders cannot be addressed"


@lru_cache(maxsize=8192)
def parse_address(token: str) -> Address:
    """Parse one token of an address; the pair of `format_address`.

    Raises `BadRequest` for an invalid address, and for system senders.
    """
    if "/" in token:
        return Path(path=check_path(token))
    explicit = token.startswith("@")
    # Only ASCII is folded, as in `check_path`.
    word = (token[1:] if explicit else token).lower() if token.isascii() else token
    if word.startswith("[pal-") or word == "system":
        raise BadRequest(f"{_SYSTEM}: {token}")
    # Before names: each of these words has its own meaning, and `RESERVED` keeps agents from having it as a
    # name.
    if known := _WORDS.get(word):
        return known
    if _NAME.fullmatch(word):
        name, colon, device = word.partition(":")
        return Named(name=name + colon + device.upper(), explicit=explicit)
    if word.endswith("-") and _TAG.fullmatch(word[:-1]):
        return TagGroup(tag=word[:-1])
    if _GLOB.fullmatch(word):
        return Glob(prefix=word[:-1])
    if _ROOM.fullmatch(word):
        return RoomAddress(name=word[1:])
    raise BadRequest(
        f"{token!r} cannot be an address: write @NAME, @all, @TAG-, '#room' or a path with a slash"
    )


def format_address(address: Address) -> str:
    """Format an address as `parse_address` reads it."""
    match address:
        case Named(name=name, explicit=explicit):
            return f"@{name}" if explicit else name
        case TagGroup(tag=tag):
            return f"@{tag}-"
        case RoleGroup(role=role):
            return f"@{role}s"
        case Everyone():
            return "@all"
        case Glob(prefix=prefix):
            return f"@{prefix}*"
        case Human():
            return "@human"
        case RoomAddress(name=name):
            return "room" if name is None else f"#{name}"
        case _:
            # The slash is what makes it a path.
            return address.path if "/" in address.path else f"/{address.path}"


def parse_tag(text: str) -> str:
    """Return a tag that is written alone, in any case, or as the address of its group: `api`, `@api-`.

    The tag may be invalid or empty.
    """
    return text.removeprefix("@").removesuffix("-").lower()


# An e-mail address, a path and a glob contain an @ too: the characters around it decide. The device is in
# capitals here, so that `@luna:look` is luna. Possessive, so that a name is never cut to make the rest of the
# pattern fit: `@luna-*` is a glob and does not mention luna.
_MENTION: Final = re.compile(r"(?<![\w.+/@-])@(\w[\w-]*+(?:(?<!-):[A-Z0-9]++\b)?+)(?![*/])")


# The beginning of a line of a chat: `luna: look` or `@luna, look`.
_ADDRESSED: Final = re.compile(r"@?([A-Za-z][\w-]*(?::[A-Z0-9]+)?)[:,](?:\s|$)", re.ASCII)


def find_named(line: str) -> list[str]:
    """Return the words with which a line of a chat names agents, once each, in order.

    They are `name:` or `name,` at the start, and `@name` anywhere. A word may still not be a name.
    """
    first = _ADDRESSED.match(line)
    words = [f"@{word}" for word in _MENTION.findall(line)]
    return list(dict.fromkeys([*([f"@{first[1]}"] if first else []), *words]))


def find_mentions(text: str) -> list[str]:
    """Return every `@word` of a text once, in order: plain names and groups, never paths or globs.

    A word may still not be the name of an agent. A text that addresses a system sender raises `BadRequest`.
    """
    if "@" not in text:
        return []
    # No name has a bracket, so the pattern would not find it: the sender would believe that the bus was
    # addressed.
    if "@[pal-" in text.lower():
        raise BadRequest(_SYSTEM)
    return list(dict.fromkeys(f"@{word}" for word in _MENTION.findall(text)))
