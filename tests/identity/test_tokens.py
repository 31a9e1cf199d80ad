"""Tokens: printed once, stored as hashes, invalid when revoked."""

import os
import stat
from pathlib import Path

import pytest

from palaver.errors import StorageFailed
from palaver.identity.tokens import FILE_NAME, TokenBook


async def _make(book: TokenBook, name: str = "luna") -> str:
    secret, _ = await book.create(name, standing="worker", by="human", ts=1)
    return secret


async def test_token_is_found_by_its_secret_also_after_a_restart(tmp_path: Path) -> None:
    secret = await _make(TokenBook(tmp_path))

    found = TokenBook(tmp_path).find(secret)

    assert found is not None
    assert (found.name, found.standing, found.by, found.ts) == ("luna", "worker", "human", 1)


async def test_token_file_is_private_and_contains_no_secret(tmp_path: Path) -> None:
    secret = await _make(TokenBook(tmp_path))

    path = tmp_path / FILE_NAME
    assert secret not in path.read_text()
    assert secret.removeprefix("pal_") not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == [FILE_NAME]


async def test_wrong_secret_finds_no_token(tmp_path: Path) -> None:
    book = TokenBook(tmp_path)
    secret = await _make(book)

    assert book.find(secret[:-1]) is None
    assert book.find("") is None
    assert book.find("\udcff") is None


async def test_revoked_token_is_invalid_and_others_stay_valid(tmp_path: Path) -> None:
    book = TokenBook(tmp_path)
    old, new = await _make(book), await _make(book, "nova")
    gone = book.find(old)
    assert gone is not None

    await book.revoke({gone.id})

    assert book.find(old) is None
    assert TokenBook(tmp_path).find(old) is None
    assert TokenBook(tmp_path).find(new) is not None


async def test_token_owners_are_known_while_the_file_is_readable(tmp_path: Path) -> None:
    book = TokenBook(tmp_path)
    await _make(book)

    assert (book.has_one_of("luna"), book.has_one_of("nova")) == (True, False)
    (tmp_path / FILE_NAME).write_text("{")
    assert not TokenBook(tmp_path).has_one_of("luna")


async def test_unreadable_token_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("[{")

    with pytest.raises(StorageFailed):
        TokenBook(tmp_path).find("x")


async def test_token_that_cannot_be_stored_is_not_created(tmp_path: Path) -> None:
    book = TokenBook(tmp_path / "gone")

    with pytest.raises(StorageFailed):
        await _make(book)

    assert book.all() == ()
