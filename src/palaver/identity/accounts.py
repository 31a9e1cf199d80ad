"""Accounts: who a connection of the IRC door is, by a token, by a one-time code, or as a guest.

An IRC client has no visible process, and agents can read its configuration. So a person has the rights of a
guest here: to read and to write, also as `human`. An agent has at most the rights of its token.
"""

import hashlib
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol

from palaver.clock import Clock
from palaver.config import LiveSettings
from palaver.domain.routing import Directory
from palaver.errors import BadName, NameTaken, NotFound, WhoAreYou, cut_name
from palaver.identity.tokens import Token, TokenBook
from palaver.log.api import Log
from palaver.protocol.agents import (
    GUEST_ROLE,
    NOT_FIRST,
    ROLES,
    Agent,
    Caller,
    Standing,
    caller_for,
    split_name,
    standing_of_role,
)
from palaver.protocol.envelope import Event
from palaver.protocol.events import HELLO
from palaver.protocol.message import EXTERNAL, HUMAN
from palaver.protocol.requests import Join

# --------------------
# One-time codes: the password of `human`. In memory only, as hashes.
#
# A code has 59 bits, and at most 20 wrong codes a minute are compared: a guess in its five minutes is right
# with a probability below 1 in 10 to the 15. A wrong code ends no valid one.

CODE_MS: Final = 300_000
"""How long a code is valid."""
LIMIT_CODES: Final = 5
"""Codes that are valid at once; above the limit the oldest ends."""
LIMIT_WRONG_A_MINUTE: Final = 20
"""Wrong codes in a minute, of all connections. Until it is over, every further code is refused unread."""
_MINUTE_MS: Final = 60_000
_LETTERS: Final = "23456789abcdefghjkmnpqrstuvwxyz"
"""Without characters that look alike."""
_GROUPS: Final = 3
_GROUP: Final = 4
_NOT_LETTERS: Final = re.compile(r"[\s-]")


def draw_code() -> str:
    """Return a new code, such as `k3vm-8q2p-xw7d`."""
    groups = ("".join(secrets.choice(_LETTERS) for _ in range(_GROUP)) for _ in range(_GROUPS))
    return "-".join(groups)


class OneTimeCodes:
    """The codes that were issued and not used. Belongs to the loop's thread."""

    def __init__(self, clock: Clock, draw: Callable[[], str] = draw_code) -> None:
        self._clock = clock
        self._draw = draw
        self._open: dict[str, int] = {}
        """When each code ends, in Unix milliseconds, by its hash. The oldest is first."""
        self._wrong: list[int] = []
        """The times of the wrong codes of the last minute."""

    def issue(self) -> str:
        """Return a new code. It is valid once, for five minutes, and ends with the daemon."""
        self._forget()
        while len(self._open) >= LIMIT_CODES:
            del self._open[next(iter(self._open))]
        code = self._draw()
        self._open[_hash(code)] = self._clock.now_ms() + CODE_MS
        return code

    def use(self, written: str) -> None:
        """Use up a code, written in any case and with or without hyphens. Raises WhoAreYou."""
        self._forget()
        if len(self._wrong) >= LIMIT_WRONG_A_MINUTE:
            raise WhoAreYou("too many wrong codes in the last minute: wait a minute, then use the code again")
        hashed = _hash(written)
        # Compared with every code, so that the time says nothing about any of them.
        found = [known for known in self._open if secrets.compare_digest(known, hashed)]
        if not found:
            self._wrong.append(self._clock.now_ms())
            raise WhoAreYou(
                "the code is wrong, was used before, or is older than five minutes: a person gets a new one "
                "with 'pal irc code' at a terminal"
            )
        del self._open[found[0]]

    def _forget(self) -> None:
        now_ms = self._clock.now_ms()
        self._open = {hashed: end_ms for hashed, end_ms in self._open.items() if end_ms > now_ms}
        self._wrong = [at_ms for at_ms in self._wrong if now_ms - at_ms < _MINUTE_MS]


def _hash(code: str) -> str:
    plain = _NOT_LETTERS.sub("", code).lower()
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()


# --------------------
# Names that look alike. Pure.

GUEST_PREFIX: Final = "irc/local/"
"""Before the nick in the name of a guest. The slash makes it different from the name of any agent."""
_SAME: Final = str.maketrans({"0": "o", "1": "l", "i": "l", "5": "s"})
_PUNCTUATION: Final = re.compile(r"[^a-z0-9]+", re.ASCII)


@lru_cache(maxsize=4096)
def looks_like(name: str) -> str:
    """Return a form that is equal for names that people confuse: `Luna`, `1una` and `luna_` are `luna`."""
    plain = _PUNCTUATION.sub("", name.lower())
    return plain.replace("rn", "m").replace("vv", "w").translate(_SAME)


_RESERVED: Final = frozenset(map(looks_like, NOT_FIRST))


def _looks_reserved(nick: str) -> bool:
    """Whether a nick looks like the person or a part of the bus: `human`, `Human_2`, `pal-bot`."""
    first = _PUNCTUATION.split(nick.lower(), maxsplit=1)[0]
    return looks_like(nick) in _RESERVED or looks_like(first) in _RESERVED


# --------------------
# Accounts.

HOW_TO_LOG_IN: Final = (
    "log in with SASL PLAIN: the account is the name of an agent and the password its token, from 'pal agent "
    "register NAME'; a person uses the account human and a code from 'pal irc code'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Who a connection is."""

    name: str
    """The full name of an agent, `human`, the name of a registered person, or the nick of a guest."""
    caller: Caller
    """The caller of its requests. The name of a guest's caller begins with `irc/local/`."""
    is_program: bool = False
    """It has the token of an agent."""
    is_guest: bool = False
    """It has no credentials."""
    token: Token | None = None


class LinkBook(Protocol):
    """Counts the connections of agents; implemented by `Presence`."""

    def link_opened(self, name: str) -> None: ...

    def link_closed(self, name: str) -> None: ...


SubmitAs = Callable[[Caller, Join], Awaitable[object]]
"""Submits a request to the broker in the name of a caller."""

REGISTERED: Final = "registered, and never connected"
"""The reason for which a new registered agent is offline."""


class Accounts:
    """Logs connections in, and says when they must end. Belongs to the loop's thread."""

    def __init__(
        self,
        *,
        tokens: TokenBook,
        directory: Directory,
        presence: LinkBook,
        submit: SubmitAs,
        gone: Callable[[str, str], Awaitable[object]],
        live: LiveSettings,
        clock: Clock,
    ) -> None:
        """`gone` records that an agent, which it gets with the reason, is offline."""
        self._tokens = tokens
        self._directory = directory
        self._presence = presence
        self._submit = submit
        self._gone = gone
        self._live = live
        self._clock = clock
        self._seen: dict[str, int] = {}
        self._watchers: list[Callable[[], None]] = []
        self.codes = OneTimeCodes(clock)
        tokens.watch(self.notify)
        live.watch(lambda _: self.notify())

    # Registered agents and persons

    async def register(self, caller: Caller, name: str, role: str) -> tuple[str, Token]:
        """Create a name and a token for it, and return the token with its secret, which is not stored.

        The agent is offline until it connects. The door has checked that the caller may do this. Raises
        NameTaken, BadName, NotPerson and StorageFailed.
        """
        if self.registered(name):
            raise NameTaken(name, f"it is registered; 'pal agent rotate {name}' makes a new token for it")
        parts = split_name(name)
        if parts.device:
            raise BadName(name, "an agent that logs in here has no device suffix")
        await self._submit(caller, Join(name=parts.base, tag=parts.tag, role=role, has_link=True))
        await self._gone(name, REGISTERED)
        standing = min(standing_of_role(role), caller.standing)
        return await self._tokens.create(name, standing=standing.word, by=caller.name, is_kept=True)

    async def rotate(self, caller: Caller, name: str) -> tuple[str, Token]:
        """Replace the token of a registered agent, and return the new one with its secret.

        The old one ends at once, with its connections. The new one has at most the rights of the old one and
        of the caller, unless a person makes it. Raises NotFound and StorageFailed.
        """
        old = self.registered(name)
        if not old:
            raise NotFound(f"registered agent {cut_name(name)}", "'pal agent list' shows them")
        agent = self._directory.get(name)
        role = ROLES[0] if agent is None else agent.role
        standing = min(caller.standing, standing_of_role(role))
        if not caller.is_person:
            standing = min(standing, *(Standing[token.standing.upper()] for token in old))
        return await self._tokens.create(
            name,
            standing=standing.word,
            by=caller.name,
            is_kept=True,
            replaces={token.id for token in old},
        )

    def registered(self, name: str) -> list[Token]:
        """Return the tokens with which a registered agent logs in; none if it is not registered."""
        return [token for token in self._tokens.all() if token.is_kept and token.name == name]

    # Connections

    def log_in(self, name: str, secret: str) -> Account:
        """Return the account with this name and password. A code is used up.

        Raises WhoAreYou with a sentence that explains how to log in, and StorageFailed.
        """
        if name.lower() == HUMAN:
            self.codes.use(secret)
            return Account(name=HUMAN, caller=Caller(name=HUMAN, standing=Standing.GUEST, kind=HUMAN))
        token = self._tokens.find(secret)
        agent = self._directory.find(name)
        if token is not None and token.acts_for:
            raise WhoAreYou("this token acts for several agents, and is valid on the WebSocket only")
        if token is None or agent is None or agent.name != token.name:
            raise WhoAreYou(f"wrong name or password for {cut_name(name)}: {HOW_TO_LOG_IN}")
        return Account(
            name=agent.name,
            caller=caller_for(agent, at_most=Standing[token.standing.upper()]),
            is_program=agent.role != GUEST_ROLE,
            token=token,
        )

    def guest(self, nick: str, *, is_local: bool) -> Account:
        """Return the account of a client without credentials. The nick is valid for IRC.

        Raises WhoAreYou if `irc_guests` is off, if the client is on another machine, or if the nick is, or
        looks like, the name of an agent or a person.
        """
        allowed = self._live.now.irc_guests
        if allowed == "off" or not is_local:
            raise WhoAreYou(f"a password is required: {HOW_TO_LOG_IN}")
        if self.owns(nick):
            raise WhoAreYou(
                f"{cut_name(nick)} is, or looks like, the name of an agent or a person: use another nick, or "
                f"{HOW_TO_LOG_IN}"
            )
        standing = Standing.GUEST if allowed == "talk" else Standing.OBSERVER
        caller = Caller(name=GUEST_PREFIX + nick.lower(), standing=standing, kind=EXTERNAL)
        return Account(name=nick, caller=caller, is_guest=True)

    def is_valid(self, account: Account) -> bool:
        """Return whether an account may stay connected, with the rights that it had when it logged in."""
        if account.is_guest:
            try:
                return self.guest(account.name, is_local=True).caller == account.caller
            except WhoAreYou:
                return False
        if account.token is None:
            return True
        agent = self._directory.get(account.name)
        if agent is None or not self._tokens.is_valid(account.token):
            return False
        now = caller_for(agent, at_most=Standing[account.token.standing.upper()])
        return (now.standing, now.kind) == (account.caller.standing, account.caller.kind)

    def watch(self, ended: Callable[[], None]) -> Callable[[], None]:
        """Call `ended` whenever an account may be invalid, except by time. Return a function that stops this.

        The end of a token by its time is in `token.expires_ms`.
        """
        self._watchers.append(ended)
        return lambda: self._watchers.remove(ended)

    def follow(self, log: Log) -> Callable[[], None]:
        """Check guests whenever an agent gets a name; return a function that stops this."""
        return log.subscribe(self._hear_names, {HELLO})

    def _hear_names(self, events: Sequence[Event]) -> None:
        self.notify()

    def notify(self) -> None:
        """Call all watchers: tokens have ended, a setting has changed, or a new agent has a name."""
        for ended in tuple(self._watchers):
            ended()

    def owns(self, nick: str) -> bool:
        """Return whether a nick is, or looks like, the name of an agent or person: no guest may use it."""
        if not nick.isascii() or _looks_reserved(nick):
            return True
        form = looks_like(nick)
        return any(looks_like(agent.name) == form for agent in self._directory.all())

    async def connected(self, account: Account) -> None:
        """Make the agent or registered person of a new connection present. It joins again if it has left.

        Call `disconnected` at the end of the connection, unless this raises.
        """
        if account.token is None:
            return
        # The link comes first: an agent that is present is not reported as offline any more.
        self._presence.link_opened(account.name)
        try:
            agent = self._directory.get(account.name)
            if agent is not None and not agent.remote:
                parts = split_name(agent.name)
                request = Join(name=parts.base, tag=parts.tag, role=agent.role, has_link=True, has_token=True)
                await self._submit(account.caller, request)
        except BaseException:
            self._presence.link_closed(account.name)
            raise

    def disconnected(self, account: Account) -> None:
        """Count one connection less. After the last one, the agent is offline when the grace period ends."""
        if account.token is not None:
            self._seen[account.name] = self._clock.now_ms()
            self._presence.link_closed(account.name)

    def last_seen_ms(self, agent: Agent) -> int | None:
        """Return when an agent that is offline was last connected; None if it never was.

        It is exact since the start of the daemon. Before that it is the time of its last change of state.
        """
        if agent.left and agent.detail == REGISTERED:
            return None
        return max(agent.since, self._seen.get(agent.name, 0))
