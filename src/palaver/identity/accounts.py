"""Credentials: tickets, tokens, the runner's secret, webhooks, one-time codes, and accounts made of them.

Secrets are stored as hashes, except those of webhooks. Rights are decided elsewhere; a token can only lower
them.
"""

import asyncio
import hashlib
import hmac
import re
import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal, Protocol, TypeVar, get_args

import msgspec

from palaver.clock import Clock
from palaver.config import LiveSettings
from palaver.domain.routing import Directory
from palaver.errors import BadName, BadRequest, NameTaken, NotFound, StorageFailed, WhoAreYou, cut_name
from palaver.home import replace_file
from palaver.identity.process import Process
from palaver.log.api import Log
from palaver.protocol.agents import (
    GUEST_ROLE,
    NOT_FIRST,
    ROLES,
    Agent,
    Caller,
    Seat,
    Standing,
    caller_for,
    full_name,
    split_name,
    standing_of_role,
)
from palaver.protocol.envelope import Event
from palaver.protocol.events import BYE, HELLO, AgentBye
from palaver.protocol.message import EXTERNAL, HUMAN
from palaver.protocol.query import Query
from palaver.protocol.requests import LEFT, Join
from palaver.state.fold import agent_of

# --------------------
# Tickets: one-time rights of holders to claim an agent that a caller asked to run. In memory only.
#
# The rights for `pal run` are checked when it is requested, but another process carries it out a little
# later: the ticket passes the decision on. It can be used once, within a minute, and not after a restart of
# the daemon. It is bound to the process that asked: no other process can use it, even one that has read it.

TICKET_MS: Final = 60_000
LIMIT_TICKETS: Final = 1000
"""Tickets kept at once; above the limit the oldest is forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """The agent to start, and the caller that asked for it."""

    by: Caller
    asker: tuple[int, int]
    """Pid and start of the process that asked. Only it and the processes below it can use the ticket."""
    name: str = ""
    tag: str = ""
    role: str = "worker"
    harness: str = ""
    argv: tuple[str, ...] = ()
    cwd: str = ""
    is_resumed: bool = False


class Tickets:
    """Tickets that were issued and not used."""

    def __init__(self, clock: Clock, draw: Callable[[], str] = lambda: secrets.token_hex(16)) -> None:
        self._clock = clock
        self._draw = draw
        self._open: dict[str, tuple[int, Ticket]] = {}

    def mint(self, ticket: Ticket) -> str:
        """Store a ticket and return its token."""
        self._forget()
        while len(self._open) >= LIMIT_TICKETS:
            # A dict keeps the order of insertion, so its first ticket is the oldest.
            del self._open[next(iter(self._open))]
        word = self._draw()
        self._open[word] = self._clock.now_ms() + TICKET_MS, ticket
        return word

    def take(self, word: str, chain: Sequence[Process]) -> Ticket:
        """Return a ticket and forget it. `chain` is the process that shows it and its parents.

        Raises NotFound for a ticket that was used, is too old, never existed, or was asked for by another
        process; in the last case it stays valid for its asker.
        """
        self._forget()
        found = self._open.get(word)
        if found is None:
            raise NotFound("valid start ticket", "it was used or has expired; run 'pal run' again")
        # The whole chain is searched, because the holder that shows the ticket is a child of the asker.
        if found[1].asker not in [(process.pid, process.start) for process in chain]:
            raise NotFound("valid start ticket", "it belongs to another process; run 'pal run' again")
        del self._open[word]
        return found[1]

    def give_back(self, word: str, ticket: Ticket) -> None:
        """Make a ticket valid again: the request that used it was refused and had no effect."""
        self._open[word] = self._clock.now_ms() + TICKET_MS, ticket

    def _forget(self) -> None:
        now = self._clock.now_ms()
        self._open = {word: kept for word, kept in self._open.items() if kept[0] > now}


# --------------------
# The files of tokens and webhooks: a list of entries, private, and replaced as a whole.

_Entry = TypeVar("_Entry", bound=msgspec.Struct)


def _read_entries(path: Path, kind: type[_Entry]) -> tuple[_Entry, ...]:
    """Return the entries of a file; none if there is no file. Raises StorageFailed.

    An unreadable file must not count as empty: the next write would replace it and lose all its entries.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=tuple[kind, ...])  # type: ignore[valid-type]  # as given
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StorageFailed(f"{path} cannot be read: {error}") from error


async def _write_entries(path: Path, entries: tuple[msgspec.Struct, ...]) -> None:
    """Replace a file. Raises StorageFailed."""
    content = msgspec.json.format(msgspec.json.encode(entries)) + b"\n"
    try:
        await asyncio.to_thread(replace_file, path, content)
    except OSError as error:
        raise StorageFailed(f"{path} cannot be written: {error.strerror}") from error


# --------------------
# Tokens: created and revoked by people, and looked up for each request.

FILE_NAME: Final = "tokens.json"
PREFIX: Final = "pal_"
"""Lets people and scanners recognize a token in a text."""
ALL_AGENTS: Final = "all"
"""In `acts_for`: every agent. No agent has this name."""


class Token(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stored token."""

    id: str
    name: str
    standing: str
    """The highest standing of its caller, even if the agent's role later allows more."""
    by: str
    ts: int
    hash: str
    expires_ms: int = 0
    """When it ends, in Unix milliseconds; 0 for never."""
    acts_for: tuple[str, ...] = ()
    """The names that it acts for, or `all`; empty if it acts as one agent, which is `name`."""
    is_kept: bool = False
    """It stays valid when its agent leaves, which can join again with it: `pal agent register` made it."""

    def acts_as(self, name: str) -> bool:
        """Return whether it may act in a full name, as stored."""
        if not self.acts_for:
            return name == self.name
        return name in self.acts_for or ALL_AGENTS in self.acts_for

    @property
    def is_persons(self) -> bool:
        """Whether it is a registered person's, which is for IRC only."""
        return self.standing == GUEST_ROLE

    @property
    def holder(self) -> str:
        """Its name in the `by` of events that were written with it for several agents."""
        return f"token {self.id}"


class TokenBook:
    """All tokens of a home. Use it only on the event loop's thread. An unreadable file is an error."""

    def __init__(self, home: Path, clock: Clock) -> None:
        self._path = home / FILE_NAME
        self._clock = clock
        self._tokens: tuple[Token, ...] | None = None
        self._ended: set[str] = set()
        """The ids of tokens that have ended and may still be in the file.

        A set apart from the list, because a write that began before the end stores and loads the old list.
        """
        self._lock = asyncio.Lock()
        self._watchers: list[Callable[[], None]] = []

    def all(self) -> tuple[Token, ...]:
        """Return all valid tokens, oldest first. Raises StorageFailed."""
        if self._tokens is None:
            # Read once: while a daemon runs, nothing else writes the file.
            self._tokens = _read_entries(self._path, Token)
        now_ms = self._clock.now_ms()
        return tuple(
            token
            for token in self._tokens
            if token.id not in self._ended and not 0 < token.expires_ms <= now_ms
        )

    def find(self, secret: str) -> Token | None:
        """Return the token with this secret, or None. Raises StorageFailed."""
        hashed = _hash(secret)
        found = None
        # No early return, so that the time says nothing about any token.
        for token in self.all():
            if secrets.compare_digest(token.hash, hashed):
                found = token
        return found

    def is_valid(self, token: Token) -> bool:
        """Return whether a token that was found before has not ended; False if that cannot be read."""
        try:
            return any(one.id == token.id for one in self.all())
        except StorageFailed:
            return False

    def watch(self, ended: Callable[[], None]) -> Callable[[], None]:
        """Call `ended` whenever tokens may have ended, except by time. Return a function that stops this."""
        self._watchers.append(ended)
        return lambda: self._watchers.remove(ended)

    def has_one_of(self, name: str) -> bool:
        """Return whether a name has a token; False while the file cannot be read."""
        try:
            return any(token.name == name for token in self.all())
        except StorageFailed:
            return False

    async def create(
        self,
        name: str,
        *,
        standing: str,
        by: str,
        expires_ms: int = 0,
        acts_for: tuple[str, ...] = (),
        is_kept: bool = False,
        replaces: Collection[str] = (),
    ) -> tuple[str, Token]:
        """Create a token and return it with its secret, which is not stored. Raises StorageFailed.

        A token with `acts_for` has an empty `name`. The tokens with the ids in `replaces` end with the same
        write: there is no time without a valid token, or with two.
        """
        secret = PREFIX + secrets.token_urlsafe(32)
        token = Token(
            id=secrets.token_hex(4),
            name=name,
            standing=standing,
            by=by,
            ts=self._clock.now_ms(),
            hash=_hash(secret),
            expires_ms=expires_ms,
            acts_for=acts_for,
            is_kept=is_kept,
        )
        # The list is read inside the lock: two writes that begin with the same list would lose a token.
        async with self._lock:
            await self._write((*(one for one in self.all() if one.id not in replaces), token))
        if replaces:
            self._notify()
        return secret, token

    async def revoke(self, ids: set[str]) -> None:
        """Remove tokens. Raises StorageFailed; then they stay valid."""
        async with self._lock:
            await self._write(tuple(token for token in self.all() if token.id not in ids))
        self._notify()

    def end_with_agents(self, log: Log, tasks: asyncio.TaskGroup) -> Callable[[], None]:
        """End the tokens of each agent that leaves from now on; return a function that stops this.

        They are invalid before the leave is confirmed. The file is written in a task; if that fails, the next
        start of the daemon ends them again.
        """

        def hear(events: Sequence[Event]) -> None:
            if self._end(events):
                # A task, because the commit that calls this handler must not wait for the disk.
                tasks.create_task(self._save())

        return log.subscribe(hear, {BYE})

    async def catch_up(self, log: Log) -> None:
        """End the tokens of agents that left while no daemon could write that into the file."""
        try:
            tokens = self.all()
        except StorageFailed:
            return
        # A token for several agents has no name, and does not end with any of them.
        tokens = tuple(token for token in tokens if token.name)
        if tokens:
            names = tuple({token.name for token in tokens})
            # A leave before the oldest token was made can end none of them.
            query = Query(types=(BYE,), senders=names, since=min(token.ts for token in tokens))
            if self._end(await log.read(query)):
                await self._save()

    def _end(self, events: Sequence[Event]) -> bool:
        """End the tokens that are older than a leave of their agent. Return whether there were any."""
        try:
            tokens = self.all()
        except StorageFailed:
            return False
        # A newer token was made for an agent that got the name after the leave, so it stays.
        ended = {
            token.id
            for event in events
            # Only a leave by request: an agent whose process has ended may come back, and still needs its
            # token.
            if isinstance(event.body, AgentBye) and event.body.reason == LEFT
            for token in tokens
            if token.name == agent_of(event) and token.ts <= event.ts and not token.is_kept
        }
        self._ended |= ended
        if ended:
            self._notify()
        return bool(ended)

    def _notify(self) -> None:
        # A copy, because a watcher may remove itself while it is called.
        for ended in tuple(self._watchers):
            ended()

    async def _save(self) -> None:
        # Ignored, because `_ended` keeps the tokens invalid and `catch_up` ends them again after the next
        # start.
        with suppress(StorageFailed):
            async with self._lock:
                await self._write(self.all())

    async def _write(self, tokens: tuple[Token, ...]) -> None:
        # The file comes first: a token that is valid in memory only would end with the daemon.
        await _write_entries(self._path, tokens)
        self._tokens = tokens


def _hash(secret: str) -> str:
    """Return the stored form of a secret. A fast hash is enough, because secrets are long and random."""
    # A secret with lone surrogates must be a wrong one, not an error of the encoder.
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


# --------------------
# The runner of automatic turns: its process, its secret, and the processes of its turns.
#
# They are in `runner.json`, mode 0600, so that the next daemon knows the runner and its turns again. Only the
# hash of the secret is stored.

RUNNER_FILE: Final = "runner.json"


class TurnProcess(msgspec.Struct, frozen=True, kw_only=True):
    """The process of a running turn."""

    seat: Seat
    agent: str
    session: str
    turn: int


class RunnerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The runner of a home."""

    seat: Seat
    hash: str
    since_ms: int
    turns: tuple[TurnProcess, ...] = ()


class RunnerBook:
    """The one runner of a home. Use it only on the event loop's thread."""

    def __init__(self, home: Path, is_alive: Callable[[Seat], bool]) -> None:
        self._path = home / RUNNER_FILE
        self._is_alive = is_alive
        self._runner = self._read()

    @property
    def last(self) -> RunnerRecord | None:
        """The last runner, also if its process has ended."""
        return self._runner

    def current(self) -> RunnerRecord | None:
        """Return the runner whose process runs, connected or not, or None."""
        runner = self._runner
        return runner if runner is not None and self._is_alive(runner.seat) else None

    def find(self, secret: str) -> RunnerRecord | None:
        """Return the runner that has this secret, or None."""
        runner = self.current()
        is_it = runner is not None and secrets.compare_digest(runner.hash, _hash(secret))
        return runner if is_it else None

    async def put(self, seat: Seat, secret: str, now_ms: int) -> RunnerRecord:
        """Record a new runner. Raises StorageFailed."""
        return await self._write(RunnerRecord(seat=seat, hash=_hash(secret), since_ms=now_ms))

    async def put_turn(self, process: TurnProcess) -> None:
        """Record the process of a turn. Those that have ended are forgotten. Raises StorageFailed."""
        runner = self._runner
        if runner is not None:
            kept = [one for one in runner.turns if self._is_alive(one.seat)]
            # No lock is needed here: the caller records one process at a time.
            await self._write(msgspec.structs.replace(runner, turns=(*kept, process)))

    def _read(self) -> RunnerRecord | None:
        """Read the file. An unreadable one counts as missing: the runner then cannot register again."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=RunnerRecord)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None

    async def _write(self, runner: RunnerRecord) -> RunnerRecord:
        try:
            await asyncio.to_thread(replace_file, self._path, msgspec.json.encode(runner) + b"\n")
        except OSError as error:
            raise StorageFailed(f"{self._path} cannot be written: {error.strerror}") from error
        self._runner = runner
        return runner


# --------------------
# Webhooks: the services that may post to the bus, each with a secret. Added and removed by people.

WEBHOOKS_FILE: Final = "webhooks.json"
Scheme = Literal["bearer", "github", "slack", "hmac-sha256"]
"""How a request proves that its sender has the secret."""
SCHEMES: Final[tuple[Scheme, ...]] = get_args(Scheme)
LEAST_SECRET_BYTES: Final = 16
"""A shorter secret can be guessed."""
LIMIT_SECRET_BYTES: Final = 4096
_LIMIT_NAME: Final = 64
_SERVICE: Final = re.compile(r"[a-z0-9][a-z0-9_-]*", re.ASCII)
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
_NOT_SENDABLE: Final = re.compile(rb"[\x00-\x1f\x7f]|^ | $")
"""Bytes that a header cannot carry. HTTP removes spaces at its ends."""


class Webhook(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A service, and how its requests are checked."""

    service: str
    scheme: Scheme
    secret: bytes
    """Stored itself and not as a hash, because a signature can be checked only with the secret."""
    by: str
    ts: int
    id_header: str = ""
    """The header with the id of a delivery; empty for the usual one of the scheme, if there is one."""

    def __repr__(self) -> str:
        """Leave out the secret, so that no log contains it."""
        return f"Webhook({self.service}, {self.scheme})"

    @property
    def sender(self) -> str:
        """The sender of its messages. The slash makes it different from the name of any agent."""
        return f"webhook/{self.service}"


class WebhookBook:
    """All webhooks of a home. Use it only on the event loop's thread. An unreadable file is an error."""

    def __init__(self, home: Path, clock: Clock) -> None:
        self._path = home / WEBHOOKS_FILE
        self._clock = clock
        self._webhooks: tuple[Webhook, ...] | None = None
        self._lock = asyncio.Lock()

    def all(self) -> tuple[Webhook, ...]:
        """Return all webhooks, by service. Raises StorageFailed."""
        if self._webhooks is None:
            self._webhooks = _read_entries(self._path, Webhook)
        return self._webhooks

    def find(self, service: str) -> Webhook | None:
        """Return the webhook of a service, or None. Raises StorageFailed."""
        return next((one for one in self.all() if one.service == service), None)

    async def put(
        self, service: str, *, scheme: str, secret: bytes, by: str, id_header: str = ""
    ) -> tuple[Webhook, bool]:
        """Add a webhook, or replace the one of this service; return it, and whether it replaced one.

        Raises BadRequest, and StorageFailed if nothing was changed.
        """
        webhook = Webhook(
            service=check_service(service),
            scheme=check_scheme(scheme),
            secret=secret,
            by=by,
            ts=self._clock.now_ms(),
            id_header=check_id_header(id_header),
        )
        _check_secret(webhook)
        async with self._lock:
            others = tuple(one for one in self.all() if one.service != service)
            is_replaced = len(others) < len(self.all())
            await self._write((*others, webhook))
        return webhook, is_replaced

    async def remove(self, service: str) -> bool:
        """Remove a webhook, and return whether there was one. Raises StorageFailed; then it stays valid."""
        async with self._lock:
            others = tuple(one for one in self.all() if one.service != service)
            if is_known := len(others) < len(self.all()):
                await self._write(others)
        return is_known

    async def _write(self, webhooks: tuple[Webhook, ...]) -> None:
        ordered = tuple(sorted(webhooks, key=lambda one: one.service))
        await _write_entries(self._path, ordered)
        self._webhooks = ordered


def check_service(service: str) -> str:
    """Return the name of a service, or refuse it."""
    if len(service) > _LIMIT_NAME or not _SERVICE.fullmatch(service):
        raise BadRequest(
            f"{cut_name(service)!r} cannot be the name of a service: use 1 to {_LIMIT_NAME} lowercase "
            "letters, digits and the characters _ and -, and begin with a letter or digit"
        )
    return service


def check_scheme(scheme: str) -> Scheme:
    """Return a scheme, or refuse it."""
    for known in SCHEMES:
        if scheme == known:
            return known
    raise BadRequest(f"no such scheme: {cut_name(scheme)!r}; the schemes are {', '.join(SCHEMES)}")


def check_id_header(name: str) -> str:
    """Return the name of a header with the id of a delivery, or refuse it. It may be empty."""
    if not name:
        return ""
    if len(name) > _LIMIT_NAME or not _HEADER_NAME.fullmatch(name):
        raise BadRequest(
            f"{cut_name(name)!r} cannot be the name of a header: use letters, digits and -, without spaces"
        )
    # The id of a delivery is stored in the log, which every agent can read: it must never be a proof.
    if name.lower() in _NOT_IDS:
        raise BadRequest(f"{name} proves who sent the request: name the header that has the delivery id")
    return name


def _check_secret(webhook: Webhook) -> None:
    size_bytes = len(webhook.secret)
    if not size_bytes:
        raise BadRequest("the secret is empty; nothing was stored")
    if size_bytes < LEAST_SECRET_BYTES:
        raise BadRequest(
            f"the secret has {size_bytes} bytes, and needs at least {LEAST_SECRET_BYTES}: "
            "'openssl rand -hex 32' makes a good one; nothing was stored"
        )
    if size_bytes > LIMIT_SECRET_BYTES:
        raise BadRequest(f"the secret has more than {LIMIT_SECRET_BYTES} bytes; nothing was stored")
    # The other schemes use the secret as a key only, so it may have any bytes.
    if webhook.scheme == "bearer" and _NOT_SENDABLE.search(webhook.secret):
        raise BadRequest(
            "the secret of the scheme bearer is sent in a header: it must be one line without control "
            "characters and without spaces at its ends; nothing was stored"
        )


# --------------------
# Whether a request of a webhook is authentic. Pure: the time is an argument.
#
# Signatures cover the body exactly as it was sent. A header that is there twice counts as missing, because a
# proxy and this check could each use another one of the two.

RawHeaders = Sequence[tuple[bytes, bytes]]
"""The headers of a request as they were sent, with names in lower case."""

SLACK_WINDOW_MS: Final = 300_000
"""How far the time of a request of Slack may be from now, in both directions."""
_AUTHORIZATION: Final = "authorization"
_GITHUB_SIGNATURE: Final = "x-hub-signature-256"
_SLACK_SIGNATURE: Final = "x-slack-signature"
_SLACK_TIME: Final = "x-slack-request-timestamp"
_HMAC_SIGNATURES: Final = ("x-signature-256", "x-signature", _GITHUB_SIGNATURE)
"""The first of these that a request has."""
_NOT_IDS: Final = frozenset(
    {_AUTHORIZATION, "proxy-authorization", "cookie", _SLACK_SIGNATURE, _SLACK_TIME, *_HMAC_SIGNATURES}
)
_SHA_256: Final = b"sha256="
_BEARER: Final = re.compile(rb"bearer +(.+)", re.IGNORECASE | re.DOTALL)
_HEX: Final = re.compile(rb"[0-9a-fA-F]{64}")
# Limited to 11 digits, because `int` raises ValueError for a text of more than 4,300.
_SECONDS: Final = re.compile(rb"[0-9]{1,11}")


def only_header(headers: RawHeaders, name: str) -> bytes | None:
    """Return the value of a header; None if it is missing or there twice."""
    found = [value for known, value in headers if known == name.encode()]
    return found[0] if len(found) == 1 else None


def is_authentic(webhook: Webhook, headers: RawHeaders, body: bytes, now_ms: int) -> bool:
    """Return whether a request proves that its sender has the secret of the webhook."""
    match webhook.scheme:
        case "bearer":
            return _has_secret(webhook.secret, only_header(headers, _AUTHORIZATION))
        case "github":
            signature = only_header(headers, _GITHUB_SIGNATURE)
            return _is_signed(webhook.secret, body, _without(signature, _SHA_256))
        case "slack":
            sent = only_header(headers, _SLACK_TIME)
            if sent is None or not _SECONDS.fullmatch(sent):
                return False
            # Slack signs the time too, so that an old request cannot be repeated with a new time.
            signature = _without(only_header(headers, _SLACK_SIGNATURE), b"v0=")
            is_recent = abs(now_ms - int(sent) * 1000) <= SLACK_WINDOW_MS
            return is_recent and _is_signed(webhook.secret, b"v0:%s:%s" % (sent, body), signature)
        case _:  # hmac-sha256
            names = {name for name, _ in headers}
            # A header that is there twice is selected too, and then refused: another one must not replace
            # it.
            used = next((name for name in _HMAC_SIGNATURES if name.encode() in names), _HMAC_SIGNATURES[0])
            signature = only_header(headers, used)
            # Senders differ: some write the digest with `sha256=` before it, some alone.
            return _is_signed(webhook.secret, body, signature and signature.removeprefix(_SHA_256))


def _has_secret(secret: bytes, authorization: bytes | None) -> bool:
    found = _BEARER.fullmatch(authorization or b"")
    # Of hashes, because the time of a comparison depends on the lengths.
    return found is not None and hmac.compare_digest(_sha_256(found[1]), _sha_256(secret))


def _is_signed(secret: bytes, content: bytes, signature: bytes | None) -> bool:
    # Checked before `fromhex`, which raises ValueError for other characters and ignores spaces.
    if signature is None or not _HEX.fullmatch(signature):
        return False
    return hmac.compare_digest(hmac.digest(secret, content, "sha256"), bytes.fromhex(signature.decode()))


def _without(value: bytes | None, prefix: bytes) -> bytes | None:
    """Return a value without its prefix; None if it has another one."""
    return value[len(prefix) :] if value is not None and value.startswith(prefix) else None


def _sha_256(value: bytes) -> bytes:
    return hashlib.sha256(value).digest()


# --------------------
# One-time codes: the password of `human`. In memory only, as hashes.
#
# A code has 59 bits, and at most 20 wrong codes a minute are compared: a guess in its five minutes is right
# with a probability below 1 in 10 to the 15. A wrong code ends no valid one; otherwise any client that can
# connect could end a person's code.

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
        self._open[_hash_code(code)] = self._clock.now_ms() + CODE_MS
        return code

    def use(self, written: str) -> None:
        """Use up a code, written in any case and with or without hyphens. Raises WhoAreYou."""
        self._forget()
        if len(self._wrong) >= LIMIT_WRONG_A_MINUTE:
            raise WhoAreYou("too many wrong codes in the last minute: wait a minute, then use the code again")
        hashed = _hash_code(written)
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


def _hash_code(code: str) -> str:
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


# Cached, because each nick of a guest is compared with the forms of every known agent.
@lru_cache(maxsize=4096)
def _forms_of(name: str) -> frozenset[str]:
    """Return what an agent is called: its full name, its name without the device, and its base name."""
    parts = split_name(name)
    return frozenset(map(looks_like, (name, full_name(parts.base, parts.tag), parts.base)))


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
    """The identity of a connection: a name, and the caller of its requests."""

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
            raise BadName(name, "leave out the device suffix: only agents of this machine log in here")
        # The token comes last, because there must never be a token for a name that the broker refuses.
        await self._submit(caller, Join(name=parts.base, tag=parts.tag, role=role, has_link=True))
        # A join makes the agent present, but nothing is connected yet.
        await self._gone(name, REGISTERED)
        # An agent that registers another must not get a token with more rights than it has.
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
        # Without an agent the token is made for a worker, as for a new agent.
        role = ROLES[0] if agent is None else agent.role
        standing = min(caller.standing, standing_of_role(role))
        # Otherwise an agent could raise the rights of a token that a person made for less.
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
            # A person is only a guest here: an IRC client stores its password in a file that agents can read.
            return Account(name=HUMAN, caller=Caller(name=HUMAN, standing=Standing.GUEST, kind=HUMAN))
        token = self._tokens.find(secret)
        agent = self._directory.find(name)
        if token is not None and token.acts_for:
            raise WhoAreYou("this token acts for several agents, and is valid on the WebSocket only")
        # The full names are compared, so that a token of one agent is no password for another.
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
            # Asked again: the setting may have changed, and an agent may have got the nick as its name.
            try:
                return self.guest(account.name, is_local=True).caller == account.caller
            except WhoAreYou:
                return False
        # The person's code was used up by the log-in, so nothing of it can end later.
        if account.token is None:
            return True
        agent = self._directory.get(account.name)
        if agent is None or not self._tokens.is_valid(account.token):
            return False
        # A changed role ends the connection, whose caller still has the rights of the old one.
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
        # A copy, because a watcher may remove itself while it is called.
        for ended in tuple(self._watchers):
            ended()

    def owns(self, nick: str) -> bool:
        """Return whether a nick is, or looks like, the name of an agent or person: no guest may use it."""
        # `looks_like` knows ASCII only, and other alphabets have letters that look the same.
        if not nick.isascii() or _looks_reserved(nick):
            return True
        # `luna` is also how people write `api-luna` and `luna:BOXE`, and `luna|BOXE` is luna on that machine.
        forms = {looks_like(nick), looks_like(nick.partition("|")[0])}
        return any(not forms.isdisjoint(_forms_of(agent.name)) for agent in self._directory.all())

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
            # For an agent of another device this join would make a second, local agent.
            if agent is not None and not agent.remote:
                parts = split_name(agent.name)
                request = Join(name=parts.base, tag=parts.tag, role=agent.role, has_link=True, has_token=True)
                await self._submit(account.caller, request)
        # Also after a cancellation: otherwise the agent would count as present without a connection.
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
