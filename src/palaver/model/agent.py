"""Agents, their seats, and who is asking. Values only: nothing here looks at a process."""

import enum
from dataclasses import dataclass
from typing import Final

import msgspec

from palaver.errors import BadName

ROLES: Final = ("worker", "operator", "orchestrator", "observer")
"""The roles an agent can join with; the first is the default."""
LAUNCHED: Final = ("pal",)
"""How the command of an agent begins that was started by its harness: `pal claude ...`, in its own way."""


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


_STANDINGS: Final = {role: Standing[role.upper()] for role in ROLES}


def standing_of_role(role: str) -> Standing:
    """Give the standing that comes with a role."""
    standing = _STANDINGS.get(role)
    if standing is None:
        raise BadName(role, f"the roles are {', '.join(ROLES)}")
    return standing


class Seat(msgspec.Struct, frozen=True, kw_only=True):
    """An anchor process that is somebody.

    The pid alone is used again by the system; with start ticks and boot id it never is. The key tells apart
    the sessions of one process.
    """

    pid: int
    start: int
    boot: str
    key: str = ""


class Agent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One name on the bus, as the log knows it. Presence is not in it: that is asked of the links."""

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
    since: int = 0
    joined: int = 0
    seat: Seat | None = None
    link: bool = False
    """True when it lives on a connection only."""
    session: str = ""
    """The harness's session id, or the hash of a link's secret."""
    by: str = ""
    parent: str = ""
    """The agent inside whose session it is a sub-agent; `session` is then its harness's id of it."""
    left: bool = False
    paused: bool = False
    ready: bool = False
    """It has said that it is idle, once, since it came."""
    remote: bool = False
    seq: int = 0
    holder: str = ""
    """The hash of its holder's secret, when it runs in a terminal that a holder owns."""
    argv: tuple[str, ...] = ()
    cwd: str = ""
    """What its holder runs, and where: enough to start it again. The environment is never kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who is asking, as the doors hand it to the broker."""

    name: str
    """`human`, `script` or the agent's full name."""
    standing: Standing
    kind: str
    """`instance`, `human` or `external`."""
    harness: str = ""
    by: str | None = None
    """Who speaks in this name, when it is somebody else."""
    seat: Seat | None = None
    is_marked: bool = False
    """Only a mark says that it is this agent."""
    is_orphan: bool = False
    """The process that started it may have ended. It does not use --as and takes no messages."""
