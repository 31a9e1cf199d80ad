"""Sign-in codes and sessions of the page in the browser. A session acts as the person.

A browser is not a visible process, so a person signs it in: types the code of `pal web` into the page, and
then agrees at the terminal. Codes are in memory only. A session has two secrets of 32 random bytes: a cookie,
which browsers also send to other ports of this machine, and a key, which only the page has. Their hashes are
in `web_sessions.json` in the home, mode 0600, so that a session continues after a start of the daemon.
"""

import asyncio
import enum
import hashlib
import re
import secrets
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from palaver.clock import Clock
from palaver.errors import StorageFailed, WhoAreYou
from palaver.home import replace_file

# --------------------
# Codes. One is open at a time.
#
# A code has 39 bits and ends after five wrong ones: a guess is right with a probability below 1 in 10 to the
# 11, and the person would still be asked.

CODE_S: Final = 60
"""Seconds that a code is valid, and then that a browser waits for the person's reply."""
LIMIT_WRONG: Final = 5
"""Wrong codes after which the open code ends."""
_LETTERS: Final = "23456789abcdefghjkmnpqrstuvwxyz"
"""Without characters that look alike."""
_LENGTH: Final = 8
_NOT_LETTERS: Final = re.compile(r"[\s-]")


def draw_code() -> str:
    """Return a new code, such as `k3vm8q2p`."""
    return "".join(secrets.choice(_LETTERS) for _ in range(_LENGTH))


class CodeEnd(enum.Enum):
    """How a code ended."""

    ENTERED = "entered"
    """A browser has it, and waits for the person."""
    GUESSED = "guessed"
    """There were too many wrong ones."""
    REPLACED = "replaced"
    """There is a newer code."""


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """The two secrets of a new session, for the browser. They are not stored."""

    cookie: str
    key: str

    def __repr__(self) -> str:
        """Leave out the secrets, so that no log contains them."""
        return "Grant()"


class SignIn:
    """One code, and the browser that has entered it. Made by `SignIns`; belongs to the loop's thread."""

    def __init__(self, code: str, end_ms: int, *, is_read_only: bool) -> None:
        self.code = code
        self.end_ms = end_ms
        self.is_read_only = is_read_only
        self.is_browser_there = False
        self.wrong = 0
        self._ended: asyncio.Future[CodeEnd] = asyncio.get_running_loop().create_future()
        self._granted: asyncio.Future[Grant | None] = asyncio.get_running_loop().create_future()

    async def ended(self) -> CodeEnd:
        """Wait until the code is entered, or ends in another way, except by its time."""
        return await asyncio.shield(self._ended)  # A caller that is cancelled must not cancel the result.

    async def granted(self) -> Grant | None:
        """Wait for the person's reply, on behalf of the browser; None if the person refuses."""
        self.is_browser_there = True
        try:
            return await asyncio.shield(self._granted)
        finally:
            self.is_browser_there = False

    def end(self, how: CodeEnd) -> None:
        """End the code. A repeat changes nothing."""
        if not self._ended.done():
            self._ended.set_result(how)

    def reply(self, grant: Grant | None) -> None:
        """Let the browser in, or not. A repeat changes nothing."""
        if not self._granted.done():
            self._granted.set_result(grant)


class SignIns:
    """The open code of a home."""

    def __init__(self, clock: Clock, draw: Callable[[], str] = draw_code) -> None:
        self._clock = clock
        self._draw = draw
        self._open: SignIn | None = None

    def open(self, *, is_read_only: bool) -> SignIn:
        """Return a new code, which is valid once and for a minute. The previous one ends."""
        if self._open is not None:
            self._open.end(CodeEnd.REPLACED)
        end_ms = self._clock.now_ms() + CODE_S * 1000
        self._open = SignIn(self._draw(), end_ms, is_read_only=is_read_only)
        return self._open

    def enter(self, written: str) -> SignIn:
        """Use up the open code, written in any case, for a browser. Raises WhoAreYou."""
        code = self._open
        if code is None or code.end_ms <= self._clock.now_ms():
            self._open = None
            raise WhoAreYou("no code is open: run 'pal web' at a terminal, and type its code here")
        # By their hashes: `compare_digest` raises TypeError for a text that is not ASCII.
        if not secrets.compare_digest(_hash(_plain(written)), _hash(code.code)):
            code.wrong += 1
            if code.wrong < LIMIT_WRONG:
                raise WhoAreYou("the code is wrong: type the one that 'pal web' shows at its terminal")
            self.close(code, CodeEnd.GUESSED)
            raise WhoAreYou("too many wrong codes: this code has ended, and 'pal web' shows a new one")
        # Closed before the person has replied, so that a second browser cannot use the same code.
        self.close(code, CodeEnd.ENTERED)
        return code

    def close(self, code: SignIn, how: CodeEnd = CodeEnd.REPLACED) -> None:
        """End a code; another one stays open."""
        code.end(how)
        if self._open is code:
            self._open = None


def _plain(written: str) -> str:
    return _NOT_LETTERS.sub("", written).lower()


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


# --------------------
# Sessions.

WEB_SESSIONS_FILE: Final = "web_sessions.json"
IDLE_MS: Final = 12 * 3600 * 1000
"""A session ends when it was not used for this time."""
_SAVE_MS: Final = 300_000
"""How old the stored time of the last use may be."""


class WebSession(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A browser that is signed in."""

    id: str
    hash: str
    """Of the cookie."""
    key_hash: str
    ts: int
    used_ms: int
    """When it was last used, as far as it is stored."""
    is_read_only: bool = False


class WebSessions:
    """All sessions of a home. Use it only on the event loop's thread. An unreadable file is an error."""

    def __init__(self, home: Path, clock: Clock) -> None:
        self._path = home / WEB_SESSIONS_FILE
        self._clock = clock
        self._sessions: tuple[WebSession, ...] | None = None
        self._used: dict[str, int] = {}
        """When each session was last used, by its id."""
        self._lock = asyncio.Lock()
        self._watchers: list[Callable[[], None]] = []
        self.sign_ins = SignIns(clock)
        self.cookie_name = f"palaver_{_hash(str(home))[:8]}"
        """Differs between homes: browsers keep cookies by host, without the port."""

    def all(self) -> tuple[WebSession, ...]:
        """Return all valid sessions, oldest first, with their last use. Raises StorageFailed."""
        if self._sessions is None:
            self._sessions = _read(self._path)
        now_ms = self._clock.now_ms()
        current = (
            msgspec.structs.replace(one, used_ms=self._used.get(one.id, one.used_ms))
            for one in self._sessions
        )
        # A last use in the future means that the clock was set back.
        return tuple(one for one in current if abs(now_ms - one.used_ms) < IDLE_MS)

    def find(self, cookie: str, key: str) -> WebSession | None:
        """Return the session with these two secrets, or None. Raises StorageFailed."""
        hashed, key_hash = _hash(cookie), _hash(key)
        found = None
        for one in self.all():
            # Both are always compared, so that the time says nothing about either.
            is_cookie = secrets.compare_digest(one.hash, hashed)
            is_key = secrets.compare_digest(one.key_hash, key_hash)
            if is_cookie and is_key:
                found = one
        return found

    def is_valid(self, session: WebSession) -> bool:
        """Return whether a session that was found before has not ended; False if that cannot be read."""
        try:
            return any(one.id == session.id for one in self.all())
        except StorageFailed:
            return False

    async def use(self, session: WebSession) -> None:
        """Record that a session is used now. This is stored every few minutes, if it can be."""
        now_ms = self._clock.now_ms()
        # In memory first: a write to the file for each request would be too much.
        self._used[session.id] = now_ms
        stored = next((one.used_ms for one in self._sessions or () if one.id == session.id), now_ms)
        if abs(now_ms - stored) >= _SAVE_MS:
            with suppress(StorageFailed):  # The stored time stays old, so the next use tries again.
                async with self._lock:
                    await self._write(self.all())

    async def create(self, *, is_read_only: bool) -> tuple[Grant, WebSession]:
        """Create a session, and return it with its secrets, which are not stored. Raises StorageFailed."""
        grant = Grant(cookie=secrets.token_urlsafe(32), key=secrets.token_urlsafe(32))
        now_ms = self._clock.now_ms()
        session = WebSession(
            id=secrets.token_hex(4),
            hash=_hash(grant.cookie),
            key_hash=_hash(grant.key),
            ts=now_ms,
            used_ms=now_ms,
            is_read_only=is_read_only,
        )
        # The list is read inside the lock: two writes that begin with the same list would lose a session.
        async with self._lock:
            await self._write((*self.all(), session))
        return grant, session

    async def revoke(self, ids: Collection[str]) -> None:
        """End sessions, with their open connections. Raises StorageFailed; then they stay valid."""
        async with self._lock:
            await self._write(tuple(one for one in self.all() if one.id not in ids))
        # A copy, because a watcher may remove itself while it is called.
        for ended in tuple(self._watchers):
            ended()

    def watch(self, ended: Callable[[], None]) -> Callable[[], None]:
        """Call `ended` when sessions may have ended, except by time. Return a function that stops this."""
        self._watchers.append(ended)
        return lambda: self._watchers.remove(ended)

    async def _write(self, sessions: tuple[WebSession, ...]) -> None:
        content = msgspec.json.format(msgspec.json.encode(sessions)) + b"\n"
        try:
            await asyncio.to_thread(replace_file, self._path, content)
        except OSError as error:
            raise StorageFailed(f"{self._path} cannot be written: {error.strerror}") from error
        # After the file: a session that could not be revoked in the file must stay visible as valid.
        self._sessions = sessions


def _read(path: Path) -> tuple[WebSession, ...]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=tuple[WebSession, ...])
    except FileNotFoundError:
        return ()
    # Any other file is an error and not an empty list, which the next write would store instead of it.
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StorageFailed(f"{path} cannot be read: {error}") from error
