"""SQL of callers can read events for a limited time, and do nothing else."""

import asyncio
import contextlib
import re
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.limits import LIMIT_S
from tests.log.logs import begun, fold, put

from palaver.clock import SystemClock
from palaver.errors import BadQuery, ShuttingDown, TooSlow
from palaver.log.sql_guard import check_clause
from palaver.log.sqlite import SqliteLog
from palaver.protocol.query import Query

ENDLESS = "(SELECT count(*) FROM events_v a, events_v b, events_v c, events_v d, events_v e, events_v f) > 0"


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[SqliteLog]:
    made = await SqliteLog.open(tmp_path, apply=fold, clock=SystemClock(), sql_limit_s=0.3)
    yield made
    await made.close()


async def ask(log: SqliteLog, clause: str, **filters: object) -> list[object]:
    async with asyncio.timeout(4 * LIMIT_S):  # several may wait for each other
        found = await log.read(Query(sql=clause, **filters))  # type: ignore[arg-type]  # fields of a query
    return [event.payload["text"] for event in found]


async def test_condition_finds_events(log: SqliteLog) -> None:
    await put(log, "one", intent="request", thread="t", delivered_to=["nova"])
    await put(log, "two", type="status", state="idle", agent="luna", to=("kira",))

    assert await ask(log, "intent = 'request'") == ["one"]
    assert await ask(log, "type = 'status' AND state = 'idle' AND agent = 'luna'") == ["two"]
    assert await ask(log, "\"from\" = 'luna' AND \"to\" LIKE '%kira%'") == ["two"]
    assert await ask(log, "delivered_to LIKE '%nova%' OR text GLOB 't?o'") == ["one", "two"]
    assert await ask(log, "payload ->> 'thread' = 't' AND json_extract(payload, '$.intent') IS NOT NULL") == [
        "one"
    ]
    assert await ask(log, "time LIKE '2023-11-14T%Z' AND ts < unixepoch('now') * 1000") == ["one", "two"]
    assert await ask(log, "seq IN (SELECT max(seq) FROM events_v)") == ["two"]
    assert await ask(log, "'nova' IN (SELECT value FROM json_each(delivered_to))") == ["one"]
    assert await ask(log, "text = 'one -- no comment; (not :this either'") == []
    assert await ask(log, "1", last=1) == ["two"]
    assert await ask(log, "1", before=2) == ["one"]
    assert await ask(log, "1", types=("status",)) == ["two"]
    assert await ask(log, "1", search="one") == ["one"]


async def test_every_column_of_the_view_can_be_used(log: SqliteLog) -> None:
    await put(
        log, "one", scope="mentions", mentions=["nova"], sender_kind="instance", reply_to="x", bundle_id="b"
    )
    columns = [
        "seq",
        "id",
        "type",
        "sender",
        '"from"',
        '"to"',
        "ts",
        "time",
        "device",
        '"by"',
        "text",
        "scope",
        "mentions",
        "sender_kind",
        "delivered_to",
        "intent",
        "thread",
        "reply_to",
        "bundle_id",
        "priority",
        "room",
        "command",
        "path",
        "state",
        "agent",
        "file",
        "payload",
    ]

    every = " AND ".join(f"({column} IS NULL OR {column} IS NOT NULL)" for column in columns)
    assert await ask(log, every) == ["one"]


@pytest.mark.parametrize(
    "clause",
    [
        "1) UNION SELECT 1 --",
        "1) OR (1",
        "1; DROP TABLE events",
        "1 -- )",
        "1 /* )",
        "1 /* ) */",
        "((1)",
        ")(",
        "'open",
        '"open',
        "`open",
        "[open",
        "text = ?",
        "text = :name",
        "text = @name",
        "text = $name",
        "text = '\0'\0",
        "",
        "   ",
        "1 ORDER BY 1",
        "1 LIMIT 1",
        "no_such_column = 1",
        "text = '\ud800'",
        "x" * 20_000,
        "seq IN (SELECT seq FROM state)",
        "seq IN (SELECT seq FROM meta)",
        "seq IN (SELECT 1 FROM sqlite_schema)",
        "seq IN (SELECT rowid FROM events_fts)",
        "seq IN (SELECT 1 FROM pragma_database_list)",
        "seq IN (SELECT 1 FROM dbstat)",
        "(SELECT request_key FROM events) IS NULL",
        "(PRAGMA user_version)",
        "(ATTACH '/tmp/x' AS x)",
        "(DELETE FROM events)",
        "(INSERT INTO meta VALUES ('a', 'b'))",
        "EXISTS (DELETE FROM events RETURNING 1)",
        "load_extension('x')",
        "fts3_tokenizer('simple') IS NULL",
        "readfile('/etc/passwd')",
        "randomblob(1000000000) IS NOT NULL",
        "zeroblob(1000000000) IS NOT NULL",
        "printf('%1000000000d', 1) = ''",
        "format('%*d', 1000000000, 1) = ''",
        "hex(payload) = ''",
        "sqlite_version() = ''",
        "seq IN (WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n)",
        "(" * 200 + "1" + ")" * 200,
        " UNION ".join(["SELECT 1"] * 20).join(("seq IN (", ")")),
        "text LIKE '" + "%a" * 2000 + "'",
        "text REGEXP 'a'",
        "text MATCH 'a'",
        "count(*) > 1",
    ],
)
async def test_anything_but_a_plain_condition_is_refused(log: SqliteLog, clause: str) -> None:
    await put(log, "one")

    with pytest.raises(BadQuery, match="SQL condition"):
        await ask(log, f" {clause}")

    assert await ask(log, "1") == ["one"]


async def test_growing_texts_reach_a_limit(log: SqliteLog) -> None:
    await put(log, "a" * 1000)

    grown = "text"
    for _ in range(4):
        grown = f"replace({grown}, 'a', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa')"
    with pytest.raises(BadQuery, match="too big"):
        await ask(log, f"length({grown}) > 0")


async def test_condition_that_takes_too_long_is_stopped(log: SqliteLog) -> None:
    await asyncio.gather(*(put(log, "one") for _ in range(50)))

    with pytest.raises(TooSlow, match=r"0\.3 s"):
        await ask(log, ENDLESS)

    assert len(await ask(log, "1")) == 50


async def test_commits_continue_during_a_slow_condition(tmp_path: Path) -> None:
    log = await SqliteLog.open(tmp_path, apply=fold, clock=SystemClock(), sql_limit_s=3600)
    await asyncio.gather(*(put(log, "one") for _ in range(50)))
    slow = asyncio.ensure_future(log.read(Query(sql=ENDLESS)))
    await begun()

    events = [await put(log, "beside") for _ in range(10)]

    assert await log.read(Query(last=10)) == events
    assert not slow.done()
    await log.close()
    with pytest.raises((TooSlow, ShuttingDown)):
        await slow


async def test_only_a_few_conditions_may_wait(log: SqliteLog) -> None:
    await asyncio.gather(*(put(log, "one") for _ in range(50)))

    results = await asyncio.gather(
        ask(log, ENDLESS), *(ask(log, "1") for _ in range(10)), return_exceptions=True
    )

    refused = [str(result) for result in results if isinstance(result, TooSlow) and "waiting" in str(result)]
    served = [result for result in results if isinstance(result, list)]
    assert (len(refused), len(served)) == (3, 7)


async def test_close_does_not_wait_for_a_slow_condition(tmp_path: Path) -> None:
    log = await SqliteLog.open(tmp_path, apply=fold, clock=SystemClock(), sql_limit_s=3600)
    await asyncio.gather(*(put(log, "one") for _ in range(50)))
    await ask(log, "1")
    slow = asyncio.ensure_future(log.read(Query(sql=ENDLESS)))
    await begun()

    async with asyncio.timeout(LIMIT_S):
        await log.close()
        with pytest.raises((TooSlow, ShuttingDown)):
            await slow


@given(st.text() | st.text("()'\"`[]-/*;:a ", max_size=30))
def test_accepted_clause_has_balanced_parentheses(clause: str) -> None:
    with contextlib.suppress(BadQuery):
        check_clause(clause)

        bare = re.sub(r"""'[^']*'|"[^"]*"|`[^`]*`|\[[^\]]*\]""", "", clause)
        assert bare.count("(") == bare.count(")")
        assert not any(sign in bare for sign in ("--", "/*", ";", "'", '"', "`", "[", ":", "?"))


@given(clause=st.text("()'\" 1=orand", max_size=25))
def test_any_clause_has_a_result_or_a_refusal(clause: str) -> None:
    async def try_it(directory: Path) -> None:
        log = await SqliteLog.open(directory, apply=fold, clock=SystemClock())
        await put(log, "one")

        with contextlib.suppress(BadQuery):
            await log.read(Query(sql=f" {clause}"))

        assert await ask(log, "1") == ["one"]
        await log.close()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(try_it(Path(directory)))
