"""The contract suite of every log: rows, stored events, and how they are read and found."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.log.logs import TS, Engine, all_rows, opened, put, writes

from palaver.errors import BadQuery
from palaver.log.api import Log
from palaver.log.search import parse_search
from palaver.protocol.envelope import Draft, event_from
from palaver.protocol.query import Query, matches

KEYS = ("a", "a/1", "a/2", "a/\U0010ffff", "a0", "b/1", "b/2", "é", "\U0010ffff", "\U0010ffffz")


async def with_keys(log: Log) -> None:
    await asyncio.gather(*(put(log, type="claim", room=key) for key in KEYS))


async def test_scan_returns_keys_in_order(log: Log) -> None:
    await with_keys(log)

    found = log.rows.scan("stick", "a/")

    assert found == [("a/1", b"luna"), ("a/2", b"luna"), ("a/\U0010ffff", b"luna")]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("after", ["", "a", "a/1", "a/15", "b", "b/2", "zz", "\U0010ffff"])
@pytest.mark.parametrize("prefix", ["", "a", "a/", "b/", "c", "é", "\U0010ffff", "\ud7ff"])
async def test_scan_continues_after_a_key(log: Log, prefix: str, after: str, reverse: bool) -> None:
    await with_keys(log)

    found = log.rows.scan("stick", prefix, after=after, reverse=reverse, limit=3)

    expected = sorted((key for key in KEYS if key.startswith(prefix)), reverse=reverse)
    if after:
        expected = [key for key in expected if (key < after if reverse else key > after)]
    assert [key for key, _ in found] == expected[:3]


events_in_plenty = st.lists(
    st.tuples(
        st.sampled_from(["message", "claim", "release", "purge", "note"]),
        st.sampled_from(["luna", "nova", "api-luna"]),
        st.sampled_from(["r", "r/1", "s"]),
    ),
    max_size=30,
)


@given(plenty=events_in_plenty)
def test_rebuilt_rows_equal_incremental_rows(engine: Engine, plenty: list[tuple[str, str, str]]) -> None:
    async def grow_and_rebuild() -> None:
        async with opened(engine) as log:
            await asyncio.gather(
                *(put(log, type=type_, sender=sender, room=room) for type_, sender, room in plenty)
            )
            grown = all_rows(log)

            folded = await log.rebuild()

            assert folded == len(plenty)
            assert all_rows(log) == grown
            await put(log, type="note")
            assert log.rows.get("count", "note") == b"%d" % (sum(one[0] == "note" for one in plenty) + 1)

    asyncio.run(grow_and_rebuild())


# Stored events


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
drafts = st.builds(
    Draft,
    type=words.filter(bool).filter(lambda name: name not in ("claim", "release", "broken fold")),
    sender=words.filter(bool),
    id=words.filter(bool),
    ts=st.integers(0, 2**53),
    to=st.lists(words, max_size=3).map(tuple),
    payload=st.dictionaries(
        st.sampled_from(["text", "thread", "room", "title"]) | words, json_values, max_size=4
    ),
    by=st.none() | words,
    delivered_to=st.lists(words, max_size=3).map(tuple),
)


@given(made=drafts)
def test_event_is_read_back_as_it_was_written(engine: Engine, made: Draft) -> None:
    async def write_and_read() -> None:
        async with opened(engine) as log:
            commit = await log.commit(None, writes(made))

            assert commit.event is not None
            assert log.event(commit.event.seq) == commit.event
            assert await log.read(Query()) == [commit.event]
            assert commit.event == event_from(made, commit.event.seq, log.device)

    asyncio.run(write_and_read())


async def test_large_payload_is_read_back_completely(log: Log) -> None:
    text = "grüße " * 15_000

    event = await put(log, text, thread="t", intent="request", large=["x" * 1000] * 20)

    assert event.payload["text"] == text
    assert log.event(event.seq) == event
    assert await log.read(Query(threads=("t",), intents=("request",))) == [event]
    assert await log.read(Query(search="grusse")) == []
    assert await log.read(Query(search="grüße")) == [event]


# Reading


async def test_read_returns_matching_events_in_seq_order(log: Log) -> None:
    events = [
        await put(log, f"number {number}", intent="request" if number % 2 else "inform")
        for number in range(6)
    ]

    assert await log.read(Query(limit=2)) == events[:2]
    assert await log.read(Query(last=2)) == events[-2:]
    assert await log.read(Query(last=5, limit=3)) == events[-3:]
    assert await log.read(Query(last=0)) == []
    assert await log.read(Query(after=events[2].seq, before=events[5].seq)) == events[3:5]
    assert await log.read(Query(after=events[2].seq, last=10)) == events[3:]
    assert await log.read(Query(intents=("request",), last=1)) == [events[5]]
    assert await log.read(Query(since=events[1].ts, until=events[2].ts)) == events[1:3]


names = st.sampled_from(
    [
        *("luna", "LUNA", "@nova", "api-luna", "luna:BOXE", "a_b", "ö", 'quo"te', "r", "idle", "@", "[bus]"),
        *("luna+Mon", "LUNA+Mon", "luna+mon"),
    ]
)
some_names = st.lists(names, max_size=2).map(tuple)
queries = st.builds(
    Query,
    types=st.lists(
        st.sampled_from(["message", "message_sent", "status", "agent.bye", "member_left"]), max_size=2
    ).map(tuple),
    agents=some_names,
    senders=some_names,
    to=some_names,
    mentions=some_names,
    targets=some_names,
    threads=st.lists(names | st.just(""), max_size=2).map(tuple),
    rooms=some_names,
    intents=some_names,
    tools=some_names,
    replies_to=some_names,
    participants=some_names,
    files=st.lists(
        names | st.sampled_from(["lu*", "*una", "[l]una", "?", "*", "q?o*", "a_*"]), max_size=2
    ).map(tuple),
    statuses=st.lists(st.sampled_from(["idle", "listening", "exited", "inactive"]), max_size=2).map(tuple),
    is_dead=st.sampled_from([False, False, True]),
    after=st.integers(0, 5),
    before=st.none() | st.integers(0, 30),
    last=st.none() | st.integers(0, 5),
    limit=st.integers(0, 5),
)
some_values = st.none() | names | st.just("") | st.lists(names, max_size=2) | st.just(5)
matchable = st.builds(
    Draft,
    type=st.sampled_from(["message", "status", "agent.bye", "member_left"]),
    sender=names,
    id=st.uuids().map(str),
    ts=st.just(TS),
    to=st.lists(names, max_size=2).map(tuple),
    payload=st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(
            (
                *("to", "from", "agent", "mentions", "delivered_to", "thread", "room", "intent", "file"),
                *("state", "tool", "reply_to", "dead"),
            ),
            some_values,
        ),
    ),
    delivered_to=st.lists(names, max_size=2).map(tuple),
)


@given(made=st.lists(matchable, max_size=6), query=queries, indexed=st.integers(0, 6))
def test_read_finds_exactly_the_events_that_the_query_describes(
    engine: Engine, made: list[Draft], query: Query, indexed: int
) -> None:
    async def write_and_read() -> None:
        async with opened(engine) as log:
            commits = [await log.commit(None, writes(one)) for one in made[:indexed]]
            await log.read(Query(search="any"))  # a search indexes the events that it covers
            commits += [await log.commit(None, writes(one)) for one in made[indexed:]]

            found = await log.read(query)

            meant = [commit.event for commit in commits if commit.event and matches(query, commit.event)]
            if query.last is None:
                assert found == meant[: query.limit]
            else:
                assert found == meant[::-1][: min(query.last, query.limit)][::-1]

    asyncio.run(write_and_read())


async def test_search_finds_words_and_phrases_and_prefixes(log: Log) -> None:
    apple = await put(log, "An apple a day, said the Doctor")
    pear = await put(log, "a pear; the day of the doctor's visit")
    note = await put(log, "", type="note_added", title="Apple season")

    assert await log.read(Query(search="day doctor")) == [apple, pear]
    assert await log.read(Query(search='"a day"')) == [apple]
    assert await log.read(Query(search="APP*")) == [apple, note]
    assert await log.read(Query(search='"the doc"*')) == [apple, pear]
    assert await log.read(Query(search="doc")) == []
    assert await log.read(Query(search="apple", types=("message",))) == [apple]
    assert await log.read(Query(search="apple", last=1)) == [note]
    assert await log.read(Query(search="apple", after=apple.seq)) == [note]
    assert await log.read(Query(search="apple !?")) == [apple, note]


async def test_search_finds_parts_of_text_without_blanks(log: Log) -> None:
    chinese = await put(log, "运行测试完成, see tests.py")
    japanese = await put(log, "Pythonで書いたテストは失敗した")
    korean = await put(log, "배포가 끝났습니다")

    assert await log.read(Query(search="测试")) == [chinese]
    assert await log.read(Query(search="试测")) == []
    assert await log.read(Query(search="测试 tests")) == [chinese]
    assert await log.read(Query(search="テスト")) == [japanese]
    assert await log.read(Query(search="python")) == [japanese]
    assert await log.read(Query(search="끝났*")) == [korean]
    assert await log.read(Query(search='"测试 完成"')) == [chinese]


@pytest.mark.parametrize("search", ["!?", '""', " ", "*", '"'])
async def test_search_without_a_word_is_refused(log: Log, search: str) -> None:
    with pytest.raises(BadQuery, match="no word"):
        await log.read(Query(search=search))


@given(search=st.text(min_size=1, max_size=20) | st.text('ab"* ^():-+{}\0', min_size=1, max_size=20))
def test_search_never_causes_a_syntax_error(engine: Engine, search: str) -> None:
    async def look() -> None:
        async with opened(engine) as log:
            await put(log, "a b ab")
            if parse_search(search):
                await log.read(Query(search=search))
            else:
                with pytest.raises(BadQuery, match="no word"):
                    await log.read(Query(search=search))

    asyncio.run(look())


@pytest.mark.parametrize(
    "search", ["a AND b", "NEAR(a b)", "text:a", "a OR zebra", "NOT a", "a -b", "{a} ^b"]
)
async def test_operators_of_the_search_engine_have_no_meaning(log: Log, search: str) -> None:
    await put(log, "a b")

    found = await log.read(Query(search=search))

    assert len(found) == (
        "a" in search and not any(word in search for word in ("AND", "NEAR", "text", "OR", "NOT"))
    )


# Finding


async def test_event_is_found_by_its_id_or_the_end_of_it(log: Log) -> None:
    event = await put(log, id="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    other = await put(log, id="01BX5ZZKBKACTAV9WEVGEMMFAV")

    assert log.find("01ARZ3NDEKTSV4RRFFQ69G5FAV") == [event]
    assert log.find("9G5FAV") == [event]
    assert log.find("9g5fav") == [event]
    assert log.find("MFAV") == [other]
    assert log.find("FAV") == []
    assert log.find("9H5FAV") == []
    assert log.find("") == []


async def test_ambiguous_end_of_an_id_returns_the_newest_events(log: Log) -> None:
    events = [await put(log, id=f"foreign-{number}-same") for number in range(7)]

    assert log.find("-same") == events[:1:-1]


async def test_same_id_of_several_senders_returns_all_events(log: Log) -> None:
    events = [await put(log, id="one", sender=f"agent{number}") for number in range(2)]

    assert log.find("one") == events[::-1]


async def test_largest_id_is_a_ulid(log: Log) -> None:
    await put(log, id="01BX5ZZKBKACTAV9WEVGEMMVRZ")
    for foreign in (
        "zebra",
        "9",
        "7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
        "01bx5zzkbkactav9wevgemmvry",
        "02IX5ZZKBKACTAV9WEVGEMMVRZ",
    ):
        await put(log, id=foreign)
    await put(log, id="01ARZ3NDEKTSV4RRFFQ69G5FAV")

    assert log.largest_id() == "01BX5ZZKBKACTAV9WEVGEMMVRZ"
