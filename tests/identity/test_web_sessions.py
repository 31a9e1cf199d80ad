"""Codes and sessions of the page: valid once and for a while, stored as hashes, invalid when revoked."""

import asyncio
import re
import shutil
import stat
from pathlib import Path

import pytest
from tests.fakes import START_MS, FakeClock

from palaver.errors import StorageFailed, WhoAreYou
from palaver.identity.web_sessions import (
    CODE_S,
    IDLE_MS,
    LIMIT_WRONG,
    WEB_SESSIONS_FILE,
    CodeEnd,
    Grant,
    SignIns,
    WebSessions,
    draw_code,
)

GRANT = Grant(cookie="c", key="k")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def sign_ins(clock: FakeClock) -> SignIns:
    return SignIns(clock)


def test_code_has_eight_characters_that_do_not_look_alike() -> None:
    codes = {draw_code() for _ in range(50)}

    assert len(codes) == 50
    assert all(re.fullmatch(r"[2-9a-hjkmnp-z]{8}", code) for code in codes)


async def test_entered_code_lets_the_browser_in_after_the_reply(sign_ins: SignIns) -> None:
    code = sign_ins.open(is_read_only=True)

    entered = sign_ins.enter(f" {code.code[:4].upper()}-{code.code[4:]} ")
    waiting = asyncio.ensure_future(entered.granted())
    await asyncio.sleep(0)

    assert entered is code
    assert (code.is_read_only, code.is_browser_there) == (True, True)
    assert await code.ended() is CodeEnd.ENTERED
    assert not waiting.done()
    code.reply(GRANT)
    code.reply(None)
    assert await waiting == GRANT
    assert not code.is_browser_there


async def test_code_is_valid_once(sign_ins: SignIns) -> None:
    code = sign_ins.open(is_read_only=False)
    sign_ins.enter(code.code)

    with pytest.raises(WhoAreYou, match="no code is open"):
        sign_ins.enter(code.code)


async def test_code_ends_after_a_minute(sign_ins: SignIns, clock: FakeClock) -> None:
    code = sign_ins.open(is_read_only=False)

    clock.advance(CODE_S)

    with pytest.raises(WhoAreYou, match="no code is open"):
        sign_ins.enter(code.code)


async def test_no_code_is_valid_before_the_first_one(sign_ins: SignIns) -> None:
    with pytest.raises(WhoAreYou, match="run 'pal web'"):
        sign_ins.enter("")


async def test_too_many_wrong_codes_end_the_right_one(sign_ins: SignIns) -> None:
    code = sign_ins.open(is_read_only=False)

    for _ in range(LIMIT_WRONG - 1):
        with pytest.raises(WhoAreYou, match="the code is wrong"):
            sign_ins.enter("\udcff")
    with pytest.raises(WhoAreYou, match="too many wrong codes"):
        sign_ins.enter("")

    assert await code.ended() is CodeEnd.GUESSED
    with pytest.raises(WhoAreYou, match="no code is open"):
        sign_ins.enter(code.code)


async def test_new_code_replaces_the_open_one(sign_ins: SignIns) -> None:
    old = sign_ins.open(is_read_only=False)

    new = sign_ins.open(is_read_only=False)
    sign_ins.close(old)

    assert await old.ended() is CodeEnd.REPLACED
    with pytest.raises(WhoAreYou, match="the code is wrong"):
        sign_ins.enter(old.code)
    assert sign_ins.enter(new.code) is new


async def test_closed_code_is_invalid(sign_ins: SignIns) -> None:
    code = sign_ins.open(is_read_only=False)

    sign_ins.close(code)

    with pytest.raises(WhoAreYou, match="no code is open"):
        sign_ins.enter(code.code)


async def test_browser_that_leaves_is_known_to_the_terminal(sign_ins: SignIns) -> None:
    code = sign_ins.open(is_read_only=False)
    waiting = asyncio.ensure_future(sign_ins.enter(code.code).granted())
    await asyncio.sleep(0)

    waiting.cancel()
    await asyncio.wait({waiting})

    assert not code.is_browser_there
    code.reply(None)


def test_secrets_are_not_in_the_text_of_a_grant() -> None:
    assert repr(Grant(cookie="one", key="two")) == "Grant()"


async def test_session_is_found_by_both_secrets_after_a_restart(tmp_path: Path, clock: FakeClock) -> None:
    grant, made = await WebSessions(tmp_path, clock).create(is_read_only=True)
    other, _ = await WebSessions(tmp_path, clock).create(is_read_only=False)

    sessions = WebSessions(tmp_path, clock)

    assert sessions.find(grant.cookie, grant.key) == made
    assert (made.ts, made.used_ms, made.is_read_only) == (START_MS, START_MS, True)
    assert sessions.find(grant.cookie, other.key) is None
    assert sessions.find(other.cookie, grant.key) is None
    assert sessions.find("", "") is None
    assert sessions.find("\udcff", "") is None


async def test_session_file_is_private_and_contains_no_secret(tmp_path: Path, clock: FakeClock) -> None:
    grant, _ = await WebSessions(tmp_path, clock).create(is_read_only=False)

    path = tmp_path / WEB_SESSIONS_FILE
    assert grant.cookie not in path.read_text()
    assert grant.key not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_session_of_another_home_is_unknown(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / "other").mkdir()
    other, sessions = WebSessions(tmp_path / "other", clock), WebSessions(tmp_path, clock)
    grant, session = await other.create(is_read_only=False)

    assert sessions.find(grant.cookie, grant.key) is None
    assert not sessions.is_valid(session)
    assert other.cookie_name != sessions.cookie_name


async def test_idle_session_ends_and_a_used_one_stays(tmp_path: Path, clock: FakeClock) -> None:
    sessions = WebSessions(tmp_path, clock)
    _, idle = await sessions.create(is_read_only=False)
    _, used = await sessions.create(is_read_only=False)

    clock.advance(IDLE_MS / 1000 - 1)
    await sessions.use(used)
    clock.advance(1)

    assert [one.id for one in sessions.all()] == [used.id]
    assert sessions.is_valid(used)
    assert not sessions.is_valid(idle)
    assert [one.id for one in WebSessions(tmp_path, clock).all()] == [used.id]


async def test_session_used_in_the_future_ends(tmp_path: Path, clock: FakeClock) -> None:
    """The clock was far ahead, and is right again: the session does not stay until then."""
    sessions = WebSessions(tmp_path, clock)
    clock.advance(10 * IDLE_MS / 1000)
    await sessions.create(is_read_only=False)
    clock.advance(-10 * IDLE_MS / 1000)

    assert sessions.all() == ()


async def test_last_use_is_stored_only_every_few_minutes(tmp_path: Path, clock: FakeClock) -> None:
    sessions = WebSessions(tmp_path, clock)
    _, session = await sessions.create(is_read_only=False)

    clock.advance(60)
    await sessions.use(session)

    assert sessions.all()[0].used_ms == START_MS + 60_000
    assert WebSessions(tmp_path, clock).all()[0].used_ms == START_MS


async def test_revoked_session_ends_and_watchers_hear_it(tmp_path: Path, clock: FakeClock) -> None:
    sessions = WebSessions(tmp_path, clock)
    (grant, gone), (kept, _) = [await sessions.create(is_read_only=False) for _ in range(2)]
    heard: list[bool] = []
    stop = sessions.watch(lambda: heard.append(sessions.is_valid(gone)))

    await sessions.revoke({gone.id})
    stop()
    await sessions.revoke(())

    assert heard == [False]
    assert sessions.find(grant.cookie, grant.key) is None
    assert sessions.find(kept.cookie, kept.key) is not None
    await sessions.use(gone)
    assert not sessions.is_valid(gone)


@pytest.mark.parametrize("content", [b"{", b'[{"id":"\xff"}]'], ids=["not JSON", "not UTF-8"])
async def test_unreadable_file_is_an_error_and_lets_no_browser_in(
    tmp_path: Path, clock: FakeClock, content: bytes
) -> None:
    grant, session = await WebSessions(tmp_path, clock).create(is_read_only=False)
    (tmp_path / WEB_SESSIONS_FILE).write_bytes(content)
    sessions = WebSessions(tmp_path, clock)

    with pytest.raises(StorageFailed, match="cannot be read"):
        sessions.find(grant.cookie, grant.key)
    assert not sessions.is_valid(session)


async def test_failed_write_creates_and_ends_no_session(tmp_path: Path, clock: FakeClock) -> None:
    home = tmp_path / "home"
    home.mkdir()
    sessions = WebSessions(home, clock)
    grant, session = await sessions.create(is_read_only=False)
    shutil.rmtree(home)

    with pytest.raises(StorageFailed, match="cannot be written"):
        await sessions.create(is_read_only=False)
    with pytest.raises(StorageFailed, match="cannot be written"):
        await sessions.revoke({session.id})
    clock.advance(3600)
    await sessions.use(session)

    assert sessions.find(grant.cookie, grant.key) is not None
