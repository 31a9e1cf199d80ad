"""Agents, their seats, and callers. Values only: nothing here looks at a process."""

import enum
from dataclasses import dataclass
from typing import Final

import msgspec

from palaver.errors import BadName

ROLES: Final = ("worker", "operator", "orchestrator", "observer")
"""The roles an agent can join with; the first is the default."""
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


_STANDINGS: Final = {role: Standing[role.upper()] for role in ROLES}


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
    """One name on the bus, as the log knows it. Presence is not part of it: `links` has it."""

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
    """True if it exists only on a connection."""
    session: str = ""
    """The harness's session id, or the hash of a link's secret."""
    by: str = ""
    parent: str = ""
    """The parent agent of a sub-agent; `session` is then the harness's id of the sub-agent."""
    left: bool = False
    paused: bool = False
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
