"""The contract suite of every log: commits, repeats and decisions. See test_contract.py."""

import asyncio

import pytest
from msgspec.structs import replace
from tests.log.logs import begun, draft, put, writes

from palaver.errors import BadRequest, NameTaken, ShuttingDown
from palaver.log.api import Commit, Decide, Log
from palaver.protocol.envelope import Draft
from palaver.protocol.query import Query
from palaver.state.rows import Rows


async def test_commit_returns_the_event_with_its_seq(log: Log) -> None:
    made = draft("hello")

    commit = await log.commit(None, writes(made))

    event = commit.event
    assert event is not None
    assert (event.id, event.sender, event.to, event.payload) == (
        made.id,
        "luna",
        ("nova",),
        {"text": "hello"},
    )
    assert event.device == log.device
    assert log.event(event.seq) == event
    assert log.last() == event.seq
    assert not commit.is_repeat


async def test_seq_without_an_event_is_empty(log: Log) -> None:
    event = await put(log)

    assert log.event(event.seq + 1) is None
    assert log.event(0) is None


async def test_seqs_increase_strictly(log: Log) -> None:
    events = [await put(log) for _ in range(10)]

    seqs = [event.seq for event in events]
    assert seqs == sorted(set(seqs))
    assert seqs[0] > 0


async def test_empty_log_has_no_last_seq(log: Log) -> None:
    assert log.last() == 0
    assert log.largest_id() == ""
    assert await log.read(Query()) == []


async def test_rows_of_a_commit_exist_when_it_returns(log: Log) -> None:
    event = await put(log)

    assert log.rows.get("mail", f"nova/{event.seq:012d}") == event.id.encode()
    assert log.rows.get("count", "message") == b"1"
    assert log.rows.get("count", "nothing") is None
    assert log.rows.get("no such table", "message") is None


async def test_row_is_removed_by_a_change_without_a_value(log: Log) -> None:
    await put(log, type="claim", room="r")
    assert log.rows.get("stick", "r") == b"luna"

    await put(log, type="release", room="r")
    await put(log, type="release", room="r")

    assert log.rows.get("stick", "r") is None


async def test_decision_without_a_draft_writes_nothing(log: Log) -> None:
    commit = await log.commit("agent/luna", writes(None))

    assert commit == Commit(None)
    assert log.last() == 0


async def test_refusal_is_raised_and_nothing_is_written(log: Log) -> None:
    def refuse(rows: Rows) -> Draft:
        raise NameTaken("luna", "she is here")

    with pytest.raises(NameTaken, match="she is here"):
        await log.commit("agent/luna", refuse)

    assert log.last() == 0


@pytest.mark.parametrize("error", [KeyError("a bug"), StopIteration("a bug")], ids=["key", "stop"])
async def test_failing_decision_does_not_affect_other_commits(log: Log, error: Exception) -> None:
    def fail(rows: Rows) -> Draft:
        raise error

    first, failed, second = await asyncio.gather(
        log.commit(None, writes(draft("first"))),
        log.commit(None, fail),
        log.commit(None, writes(draft("second"))),
        return_exceptions=True,
    )

    assert isinstance(first, Commit)
    assert isinstance(second, Commit)
    assert isinstance(failed, (KeyError, RuntimeError))
    assert [event.payload["text"] for event in await log.read(Query())] == ["first", "second"]


async def test_commits_made_together_have_their_own_outcomes_in_order(log: Log) -> None:
    def refuse(rows: Rows) -> Draft:
        raise NameTaken("luna", "she is here")

    orders = [
        (None, writes(draft("first"))),
        ("agent/luna", refuse),
        (None, writes(None)),
        (None, writes(draft("second"))),
    ]
    first, refused, nothing, second = await log.commit_all(orders)

    assert isinstance(first, Commit)
    assert isinstance(second, Commit)
    assert [first.event, second.event] == await log.read(Query())
    assert isinstance(refused, NameTaken)
    assert nothing == Commit(None)


async def test_each_decision_of_commits_made_together_sees_those_before_it(log: Log) -> None:
    def release(rows: Rows) -> Draft | None:
        return None if rows.get("stick", "r") is None else draft(type="release", room="r")

    orders = [
        ("turn", claim("luna")),
        ("ledger", release),
        ("ledger", release),
        ("turn", claim("nova")),
        ("turn", claim("kira")),
    ]
    first, second, nothing, third, refused = await log.commit_all(orders)

    written = [one.event for one in (first, second, third) if isinstance(one, Commit)]
    assert [event.type for event in written if event is not None] == ["claim", "release", "claim"]
    assert nothing == Commit(None)
    assert isinstance(refused, NameTaken)
    assert log.rows.get("stick", "r") == b"nova"
    assert await log.read(Query()) == written


async def test_commits_made_together_are_refused_by_a_closed_log(log: Log) -> None:
    await log.close()

    with pytest.raises(ShuttingDown):
        await log.commit_all([(None, writes(draft()))])


async def test_event_that_the_fold_rejects_is_not_written(log: Log) -> None:
    with pytest.raises(ZeroDivisionError):
        await log.commit(None, writes(draft(type="broken fold")))

    event = await put(log, "good")
    assert await log.read(Query()) == [event]


def _nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "made",
    [
        draft(value=object()),
        draft(value=_nested(300)),
        draft(value=_nested(100_000)),
        draft("\ud800"),
    ],
    ids=["no JSON", "nested", "very deep", "half a character"],
)
async def test_bad_draft_fails_alone(log: Log, made: Draft) -> None:
    commits = [log.commit(None, writes(draft(f"good {number}"))) for number in range(3)]

    results = await asyncio.gather(
        *commits, log.commit(None, writes(made)), put(log, "good 3"), return_exceptions=True
    )

    assert isinstance(results[3], BadRequest)
    assert [event.payload["text"] for event in await log.read(Query())] == [
        f"good {number}" for number in range(4)
    ]
    assert log.rows.get("count", "message") == b"4"


async def test_nesting_up_to_the_limit_is_stored(log: Log) -> None:
    event = await put(log, value=_nested(150), many=[[number] for number in range(300)])

    assert log.event(event.seq) == event


async def test_cancelled_caller_does_not_affect_other_commits(log: Log) -> None:
    given_up = asyncio.ensure_future(log.commit(None, writes(draft("given up"))))
    kept = asyncio.ensure_future(log.commit(None, writes(draft("kept"))))
    await begun()

    given_up.cancel()

    commit = await kept
    assert commit.event is not None
    assert commit.event.payload["text"] == "kept"


# Repeats


async def test_known_request_key_returns_the_first_event(log: Log) -> None:
    first = await log.commit(None, writes(draft("once")), request_key=b"k" * 16)

    def never(rows: Rows) -> Draft:
        raise AssertionError("decided again")

    again = await log.commit(None, never, request_key=b"k" * 16)

    assert again == Commit(first.event, is_repeat=True)
    assert log.rows.get("count", "message") == b"1"


async def test_known_sender_and_id_return_the_first_event(log: Log) -> None:
    first = await put(log, "once", id="01ARZ3NDEKTSV4RRFFQ69G5FAV")

    again = await log.commit(None, writes(draft("twice", id="01ARZ3NDEKTSV4RRFFQ69G5FAV")))
    other = await put(log, "other", id="01ARZ3NDEKTSV4RRFFQ69G5FAV", sender="nova")

    assert again == Commit(first, is_repeat=True)
    assert other.seq > first.seq
    assert log.rows.get("count", "message") == b"2"


async def test_simultaneous_repeats_are_one_event(log: Log) -> None:
    with_key = [log.commit(None, writes(draft("key")), request_key=b"k" * 16) for _ in range(5)]
    with_id = [log.commit(None, writes(draft("id", id="an id of theirs"))) for _ in range(5)]

    commits = await asyncio.gather(*with_key, *with_id)

    assert len({commit.event.seq for commit in commits if commit.event}) == 2
    assert sum(not commit.is_repeat for commit in commits) == 2
    assert len(await log.read(Query())) == 2


async def test_many_request_keys_at_once_are_separate(log: Log) -> None:
    keys = [number.to_bytes(16, "big") for number in range(150)]
    firsts = await asyncio.gather(*(log.commit(None, writes(draft()), request_key=key) for key in keys))

    again = await asyncio.gather(*(log.commit(None, writes(draft()), request_key=key) for key in keys))

    assert [commit.event for commit in again] == [commit.event for commit in firsts]
    assert all(commit.is_repeat for commit in again)


async def test_refused_request_can_be_repeated_with_its_key(log: Log) -> None:
    def refuse(rows: Rows) -> Draft:
        raise NameTaken("luna", "she is here")

    with pytest.raises(NameTaken):
        await log.commit(None, refuse, request_key=b"k" * 16)

    commit = await log.commit(None, writes(draft()), request_key=b"k" * 16)
    assert commit.event is not None
    assert not commit.is_repeat


# Decisions


def claim(name: str) -> Decide:
    def decide(rows: Rows) -> Draft:
        holder = rows.get("stick", "r")
        if holder is not None:
            raise NameTaken("the stick", holder.decode())
        return draft(type="claim", sender=name, room="r")

    return decide


async def test_first_of_many_decisions_on_one_key_wins(log: Log) -> None:
    names = [f"agent{number}" for number in range(20)]

    results = await asyncio.gather(
        *(log.commit("stick/r", claim(name)) for name in names), return_exceptions=True
    )

    winners = [result for result in results if isinstance(result, Commit)]
    assert len(winners) == 1
    assert all(isinstance(result, NameTaken) for result in results if result not in winners)
    assert winners[0].event is not None
    assert log.rows.get("stick", "r") == winners[0].event.sender.encode()


async def test_decision_sees_the_rows_that_it_scans(log: Log) -> None:
    await asyncio.gather(put(log), put(log), put(log, type="purge", sender="nova", to=()), put(log))

    assert len(log.rows.scan("mail", "nova/")) == 1


@pytest.mark.parametrize("field", ["type", "sender", "id"])
async def test_draft_with_an_empty_field_is_refused(log: Log, field: str) -> None:
    await put(log)
    poisoned = replace(draft(), **{field: ""})

    with pytest.raises(BadRequest, match="is empty"):
        await log.commit(None, writes(poisoned))

    assert len(await log.read(Query())) == 1
    assert await log.count_unreadable() == 0
    assert list(await log.check_storage()) == []
