"""Tokens of the TCP doors. They identify callers whose process cannot be seen. Only hashes are stored.

They are in `tokens.json` in the home, mode 0600. A token is 32 random bytes, so its hash reveals nothing and
needs no salt.
"""

import asyncio
import hashlib
import secrets
from pathlib import Path
from typing import Final

import msgspec

from palaver.errors import StorageFailed
from palaver.home import replace_file

FILE_NAME: Final = "tokens.json"
PREFIX: Final = "pal_"
"""Lets people and scanners recognize a token in a text."""


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A stored token."""

    id: str
    name: str
    standing: str
    """The highest standing of its caller, even if the agent's role later allows more."""
    by: str
    ts: int
    hash: str


class TokenBook:
    """All tokens of a home. Use it only on the event loop's thread. An unreadable file is an error."""

    def __init__(self, home: Path) -> None:
        self._path = home / FILE_NAME
        self._tokens: tuple[Token, ...] | None = None
        self._lock = asyncio.Lock()

    def all(self) -> tuple[Token, ...]:
        """Return all tokens, oldest first. Raises StorageFailed."""
        if self._tokens is None:
            self._tokens = self._read()
        return self._tokens

    def find(self, secret: str) -> Token | None:
        """Return the token with this secret, or None. Raises StorageFailed."""
        hashed = _hash(secret)
        found = None
        for token in self.all():
            if secrets.compare_digest(token.hash, hashed):
                found = token
        return found

    def has_one_of(self, name: str) -> bool:
        """Return whether a name has a token; False while the file cannot be read."""
        try:
            return any(token.name == name for token in self.all())
        except StorageFailed:
            return False

    async def create(self, name: str, *, standing: str, by: str, ts: int) -> tuple[str, Token]:
        """Create a token and return it with its secret, which is not stored. Raises StorageFailed."""
        secret = PREFIX + secrets.token_urlsafe(32)
        token = Token(id=secrets.token_hex(4), name=name, standing=standing, by=by, ts=ts, hash=_hash(secret))
        async with self._lock:
            await self._write((*self.all(), token))
        return secret, token

    async def revoke(self, ids: set[str]) -> None:
        """Remove tokens. Raises StorageFailed; then they stay valid."""
        async with self._lock:
            await self._write(tuple(token for token in self.all() if token.id not in ids))

    def _read(self) -> tuple[Token, ...]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=tuple[Token, ...])
        except FileNotFoundError:
            return ()
        except (OSError, msgspec.DecodeError) as error:
            raise StorageFailed(f"{self._path} cannot be read: {error}") from error

    async def _write(self, tokens: tuple[Token, ...]) -> None:
        content = msgspec.json.format(msgspec.json.encode(tokens)) + b"\n"
        try:
            await asyncio.to_thread(replace_file, self._path, content)
        except OSError as error:
            raise StorageFailed(f"{self._path} cannot be written: {error.strerror}") from error
        self._tokens = tokens


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
