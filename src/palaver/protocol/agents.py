"""Agents, their seats, their states, and callers. Values only."""

import enum
import re
import unicodedata
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final

import msgspec

from palaver.errors import BadName

INSTANCE: Final = "instance"
_HUMAN: Final = "human"
"""The kind of a person. It is repeated here, because `protocol/message.py`, which defines it, imports this
module."""

# --------------------
# Agents, their seats, and callers. Values only: nothing here looks at a process.

ROLES: Final = ("worker", "operator", "orchestrator", "observer")
"""The roles an agent can join with; the first is the default."""
GUEST_ROLE: Final = "guest"
"""The role of a registered person. It is in no group, and only a person assigns it."""
LAUNCHED: Final = ("pal",)
"""Beginning of the command of an agent that was started with `pal claude ...` or the like."""


class Standing(enum.IntEnum):
    """Rights, lowest first."""

    EXTERNAL = 0
    OBSERVER = 1
    GUEST = 2
    WORKER = 3
    ORCHESTRATOR = 4
    OPERATOR = 5
    HUMAN = 6

    @property
    def word(self) -> str:
        """The standing as it is shown to people."""
        return self.name.lower()


_STANDINGS: Final = {role: Standing[role.upper()] for role in (*ROLES, GUEST_ROLE)}


def standing_of_role(role: str) -> Standing:
    """Return the standing of a role."""
    standing = _STANDINGS.get(role)
    if standing is None:
        raise BadName(role, f"the roles are {', '.join(ROLES)}")
    return standing


class Seat(msgspec.Struct, frozen=True, kw_only=True):
    """The anchor process of an agent.

    The system reuses pids; together with start ticks and boot id a pid is unique. The key separates the
    sessions of one process.
    """

    pid: int
    start: int
    boot: str
    key: str = ""


class Agent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One name on the bus, as the log knows it. Presence is not part of it: see `identity/presence.py`."""

    name: str
    base: str
    tag: str = ""
    role: str = "worker"
    harness: str = ""
    device: str = ""
    runtime: str = ""
    version: str = ""
    state: str = "idle"
    detail: str = ""
    tool: str = ""
    """The tool that it uses, if `detail` describes the use of one."""
    since: int = 0
    joined: int = 0
    seat: Seat | None = None
    link: bool = False
    """True if it exists only on a connection."""
    session: str = ""
    """The harness's session id, or the hash of a link's secret."""
    by: str = ""
    parent: str = ""
    """The parent agent of a sub-agent; `session` is then the harness's id of the sub-agent."""
    left: bool = False
    paused: bool = False
    hints: str = ""
    """A text that it gets after its messages, instead of that of the bus."""
    ready: bool = False
    """It has reported idle at least once since it joined."""
    remote: bool = False
    seq: int = 0
    holder: str = ""
    """The hash of its holder's secret, if it runs in a terminal that a holder owns."""
    argv: tuple[str, ...] = ()
    cwd: str = ""
    """The command and directory of its holder: enough to start it again. The environment is never stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller of a request, as the doors pass it to the broker."""

    name: str
    """`human`, `script` or the agent's full name."""
    standing: Standing
    kind: str
    """`instance`, `human` or `external`."""
    harness: str = ""
    by: str | None = None
    """The actual caller, if another one acts in this name."""
    seat: Seat | None = None
    is_marked: bool = False
    """Only a mark identifies it as this agent."""
    is_orphan: bool = False
    """The process that started it may have ended. It cannot use --as and takes no messages."""
    turn: str = ""
    """The session whose automatic turn, or triage, it is part of, as `agent+session`."""

    @property
    def is_person(self) -> bool:
        """Whether it is a person with all rights, at a terminal. A person on IRC has those of a guest."""
        return self.kind == _HUMAN and self.standing is Standing.HUMAN

    @property
    def is_guest(self) -> bool:
        """Whether it may only read and write messages: a person on IRC, a webhook, or a guest."""
        return self.kind != INSTANCE and self.standing < Standing.WORKER


# --------------------
# An agent as the caller. Pure: other modules decide which callers may act for it.


def doing_text(tool: str, detail: str) -> str:
    """Return what an agent does: the tool and its use, or the detail of its state."""
    # A harness repeats the tool in the detail; an agent that uses `pal status set` may not.
    if tool and not detail.startswith(tool):
        return f"{tool}: {detail}" if detail else tool
    return detail


def caller_for(agent: Agent, *, at_most: Standing = Standing.HUMAN) -> Caller:
    """Return an agent as the caller, with the standing of its role, or with `at_most` if that is lower.

    A registered person is a caller of the kind `human` with the standing of a guest.
    """
    return Caller(
        name=agent.name,
        standing=min(standing_of_role(agent.role), at_most),
        kind=_HUMAN if agent.role == GUEST_ROLE else INSTANCE,
        harness=agent.harness,
        seat=agent.seat,
    )


# --------------------
# Names of agents: base names, tags, devices, and reserved names.
#
# Pure. Knows the rules for names and not which agents have them.

LIMIT_NAME: Final = 64
"""Characters of a full name without its device; it is part of a socket's path."""

SCRIPT_NAME: Final = "script"
"""The name of every caller that is neither an agent nor a person."""

HARNESS_WORDS: Final = ("claude", "codex", "gemini", "opencode")

RESERVED: Final = frozenset(
    {
        "room",
        "all",
        "human",
        "system",
        SCRIPT_NAME,
        "pal",
        "guest",
        "external",
        "self",
        *ROLES,
        *(f"{role}s" for role in ROLES),
        *HARNESS_WORDS,
    }
)
"""Words with another meaning in an address. A base name may not be one."""

NOT_FIRST: Final = frozenset({"room", "all", "human", "system", SCRIPT_NAME, "pal", "guest", "external"})
"""Words that a new name may not begin with: `human-zed` would look like the person, `pal-x` like the bus."""

_BASE: Final = re.compile(r"[a-z][a-z0-9_]*")
_TAGGED_BASE: Final = re.compile(r"[a-z0-9][a-z0-9_]*")
_TAG: Final = re.compile(r"[a-z][a-z0-9_-]*")
# With IGNORECASE, `[a-z]` also matches a few letters outside ASCII, such as the sign for kelvin. ASCII
# excludes them: they would be a second way to write a name.
_FULL: Final = re.compile(
    r"(?:(?P<tag>[a-z][a-z0-9_-]*)-(?P<tagged>[a-z0-9][a-z0-9_]*)|(?P<base>[a-z][a-z0-9_]*))"
    r"(?::(?P<device>[a-z0-9]+))?",
    re.ASCII | re.IGNORECASE,
)


_SHAPE: Final = (
    "a name has lowercase letters, digits and _, and begins with a letter (after a tag also with a digit)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """The parts of a full name: lower case, with the device in capitals."""

    base: str
    tag: str = ""
    device: str = ""


def valid_base(base: str, *, is_tagged: bool = False) -> bool:
    """Return whether a base name is well formed; only after a tag may it begin with a digit."""
    return (_TAGGED_BASE if is_tagged else _BASE).fullmatch(base) is not None


def valid_tag(tag: str) -> bool:
    """Return whether a tag is well formed."""
    return _TAG.fullmatch(tag) is not None


@lru_cache(maxsize=4096)
def split_name(text: str) -> Name:
    """Parse a full name in any case; the last hyphen divides tag and base. The pair of `full_name`."""
    found = _FULL.fullmatch(text)
    if found is None:
        raise BadName(text, _SHAPE)
    tag, tagged, base, device = found.groups(default="")
    return Name(base=(tagged or base).lower(), tag=tag.lower(), device=device.upper())


def full_name(base: str, tag: str = "", device: str = "") -> str:
    """Format a full name: `luna`, `api-luna`, `api-luna:BOXE`."""
    name = f"{tag}-{base}" if tag else base
    return f"{name}:{device}" if device else name


def check_name(base: str, tag: str = "") -> None:
    """Refuse a name that is not allowed, with the reason."""
    if tag and not valid_tag(tag):
        raise BadName(tag, "a tag has lowercase letters, digits, _ and -, and begins with a letter")
    if tag.partition("-")[0] in NOT_FIRST:
        raise BadName(full_name(base, tag), f"a name cannot begin with {tag.partition('-')[0]}-")
    if base.startswith("human_"):
        raise BadName(full_name(base, tag), "a name cannot begin with human_")
    if base.lower() in RESERVED:
        raise BadName(base, "the name is reserved; it has another meaning in an address")
    if not valid_base(base, is_tagged=bool(tag)):
        raise BadName(base, _SHAPE)
    if len(full_name(base, tag)) > LIMIT_NAME:
        raise BadName(full_name(base, tag), f"a name has at most {LIMIT_NAME} characters")


_CONSONANTS: Final = "bcdfghjklmnprstvwxyz"
_VOWELS: Final = "aeiou"
# Offensive words, and words that are common in commands and code.
_SKIPPED: Final = frozenset(
    re.findall(
        r"\w+",
        "caca dago foda fuca homo kaka kike kuso lolo mona nazi niga paki pedo peni pipi popo puta puto rape "
        "sida base code date file here home like line make mode name node none note rule same save site size "
        "sudo take time type vote",
    )
)
# Far from every small fraction of the number of words, so that neighbours look unrelated; and without a
# common factor with that number (10,000), so that each word comes once.
_STRIDE: Final = 6_181


@cache
def _spare_words() -> tuple[str, ...]:
    words = [a + b + c + d for a in _CONSONANTS for b in _VOWELS for c in _CONSONANTS for d in _VOWELS]
    shuffled = [words[index * _STRIDE % len(words)] for index in range(1, len(words) + 1)]
    return tuple(word for word in shuffled if word not in _SKIPPED)


def spare_name(index: int) -> str:
    """Return the drawn name of an index: consonant, vowel, consonant, vowel. Each index has another name.

    When the words are used up they repeat with a number: `luna2`.
    """
    words = _spare_words()
    turn, offset = divmod(index, len(words))
    return f"{words[offset]}{turn + 1}" if turn else words[offset]


# --------------------
# Sub-agents: their names, and the request that starts one. Pure.
#
# A sub-agent is an agent inside another one's session: `luna_reviewer_1`, of the type `reviewer`, in
# luna's. It is identified by its harness's id, and ends at the latest with its parent.

NO_TYPE: Final = "sub"
"""The type of a sub-agent whose harness names none."""

_OTHER: Final = re.compile(r"[^a-z0-9]+", re.ASCII)
_LIMIT_DIGITS: Final = 4


class BeginSubagent(msgspec.Struct, frozen=True, kw_only=True):
    """Assign a sub-agent its name, or the one that it had. A request of the bus itself, for a local agent."""

    parent: str
    key: str
    """The harness's id of it: the same id of the same parent is the same sub-agent."""
    type: str = ""


def subagent_stem(parent: str, type: str) -> str:
    """Return the name of a sub-agent up to its number; a type that is too long for a name is cut.

    Raises BadName if the parent's own name leaves no space.
    """
    # Space for the number is kept, so that a later sub-agent of this type still has a valid name.
    room = LIMIT_NAME - len(parent) - _LIMIT_DIGITS - len("__")
    plain = _without_accents(type).lower()
    word = (_OTHER.sub("_", plain).strip("_") or NO_TYPE)[: max(room, 0)].strip("_")
    if not word:
        raise BadName(parent, f"it is too long for a sub-agent: a name has at most {LIMIT_NAME} characters")
    return f"{parent}_{word}"


def _without_accents(text: str) -> str:
    """Return a text without accents: `Prüfer` becomes `Prufer`."""
    parts = unicodedata.normalize("NFKD", text)
    return "".join(one for one in parts if not unicodedata.combining(one))


def subagent_name(stem: str, number: int) -> str:
    """Format the name of a sub-agent. The pair of `split_subagent_name`."""
    return f"{stem}_{number}"


def split_subagent_name(name: str) -> tuple[str, int]:
    """Return the stem and the number of a sub-agent's name; raise ValueError for one without a number."""
    stem, _, number = name.rpartition("_")
    if not stem or not (number.isascii() and number.isdigit()):
        raise ValueError(name)
    return stem, int(number)
