"""Bundles at the broker: storage, refusals and lookup."""

from collections.abc import Sequence
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.broker.bundles import attached_bundle, create, find_bundle
from palaver.broker.context import Context
from palaver.domain.routing import Directory
from palaver.errors import BadRequest, BadText, MessageTooLarge, NotFound, PalaverError
from palaver.ids import UlidSource
from palaver.log.memory import MemoryLog
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.bundles import (
    LIMIT_BUNDLE_BYTES,
    LIMIT_EVENTS,
    LIMIT_FILE_BYTES,
    LIMIT_FILES,
    BundleFile,
    CreateBundle,
    bundle_of,
    file_content,
)
from palaver.protocol.envelope import Draft, Event
from palaver.protocol.query import Query
from palaver.protocol.transcript import Excerpt
from palaver.state.references import BUNDLE_PLACES, BUNDLES, made_bundle
from palaver.state.rows import Change, Rows

LUNA = Caller(name="luna", standing=Standing.WORKER, kind="instance", by="human")


class StillClock:
    """A clock that does not move."""

    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic_s(self) -> float:
        return 0.0


class Numbers:
    """A random source that counts, so that a test knows each id."""

    def __init__(self, first: int = 0) -> None:
        self._numbers = count(first)

    def __call__(self, size: int) -> bytes:
        return next(self._numbers).to_bytes(size, "big")


def fold(rows: Rows, event: Event) -> Sequence[Change]:
    return made_bundle(rows, event) if event.type == "bundle" else []


def context_of(log: MemoryLog, ids: UlidSource | None = None) -> Context:
    return Context(
        log=log,
        directory=Directory(),
        clock=StillClock(),
        ids=ids or UlidSource(StillClock(), Numbers()),
        is_present=lambda name: True,
        draw=lambda: 0,
    )


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(apply=fold)


@pytest.fixture
def context(log: MemoryLog) -> Context:
    return context_of(log)


async def made(context: Context, title: str = "T", key: bytes | None = None, **fields: object) -> Event:
    request = CreateBundle(title=title, **fields)  # type: ignore[arg-type]  # fields of the request
    written = await create(context, LUNA, request, key)
    assert written.event is not None
    return written.event


async def put_message(log: MemoryLog) -> int:
    draft = Draft(type="message", sender="nova", payload={}, id=f"ID{log.last()}", ts=0)
    commit = await log.commit(None, lambda rows: draft)
    assert commit.event is not None
    return commit.event.seq


def excerpt(first: int = 1, last: int = 1, level: str = "normal", text: str = "hi") -> Excerpt:
    entries = tuple({"number": number, "role": "user", "text": text} for number in range(first, last + 1))
    return Excerpt(agent="luna", first=first, last=last, level=level, entries=entries)


async def test_bundle_is_stored_completely(log: MemoryLog, context: Context) -> None:
    seq = await put_message(log)
    parent = await made(context, "first")
    files = (BundleFile(path="a.py", content=b"x = 1\n"), BundleFile(path="b.bin", content=b"\xff"))

    event = await made(
        context,
        "Review",
        description="look\nhere",
        files=files,
        events=((seq, seq),),
        transcripts=(excerpt(2, 3, "full"),),
        extends=str(parent.payload["bundle_id"]).upper(),
    )

    bundle = bundle_of(event)
    assert (event.type, event.sender, event.by) == ("bundle", "luna", "human")
    assert bundle.bundle_id == f"bundle:{event.id[-8:].lower()}"
    assert (bundle.title, bundle.description) == ("Review", "look\nhere")
    assert [(file.path, file_content(file)) for file in bundle.files] == [
        ("a.py", b"x = 1\n"),
        ("b.bin", b"\xff"),
    ]
    assert bundle.events == ((seq, seq),)
    assert bundle.transcripts == (excerpt(2, 3, "full"),)
    assert bundle.extends == parent.payload["bundle_id"]


async def test_bundle_is_found_by_its_id_in_any_case(log: MemoryLog, context: Context) -> None:
    event = await made(context)
    bundle_id = str(event.payload["bundle_id"])

    found = await find_bundle(log, bundle_id.removeprefix("bundle:").upper())

    assert found == event
    assert attached_bundle(log, bundle_id.upper()) == bundle_id


def test_empty_reference_attaches_no_bundle(log: MemoryLog) -> None:
    assert attached_bundle(log, "") == ""


async def test_unknown_bundle_is_not_found(log: MemoryLog, context: Context) -> None:
    await made(context)

    with pytest.raises(NotFound, match="there is no bundle:7f3q9x2m"):
        await find_bundle(log, "7F3Q9X2M")


async def test_same_request_key_creates_one_bundle(log: MemoryLog, context: Context) -> None:
    first = await made(context, "one", key=b"k" * 16)

    second = await made(context, "one", key=b"k" * 16, files=(BundleFile(path="a", content=b"changed"),))

    assert second == first
    assert len(await log.read(Query(types=("bundle",)))) == 1


async def test_two_bundles_never_share_the_last_eight_characters(log: MemoryLog) -> None:
    first = await made(context_of(log, UlidSource(StillClock(), Numbers())))

    # The same end after a different beginning: eight characters are forty bits.
    second = await made(context_of(log, UlidSource(StillClock(), Numbers(1 << 40))))

    assert first.id[-8:] == "00000000"
    assert second.id[-8:] == "00000001"
    assert second.payload["bundle_id"] == "bundle:00000001"


@pytest.mark.parametrize(
    ("fields", "error", "complaint"),
    [
        ({"title": " "}, BadRequest, "needs a title"),
        ({"title": "a\nb"}, BadRequest, "the title must be one line"),
        ({"title": "a\rb"}, BadRequest, "the title must be one line"),
        ({"title": "a\x1b"}, BadText, "the title"),
        ({"title": "x" * 257}, MessageTooLarge, "the title has 257 bytes"),
        ({"description": "\x00"}, BadText, "the description"),
        ({"description": "x" * 100_001}, MessageTooLarge, "the description"),
        ({"extends": "7f3q9x2m"}, NotFound, "there is no bundle:7f3q9x2m"),
        ({"extends": "what"}, BadRequest, "is not a bundle"),
        ({"files": (BundleFile(path="", content=b""),)}, BadRequest, "needs a path"),
        ({"files": (BundleFile(path="a\x07", content=b""),)}, BadText, "the path of a file"),
        ({"files": (BundleFile(path="a" * 4097, content=b""),)}, MessageTooLarge, "the path of a file"),
        ({"files": (BundleFile(path="a", content=b""),) * 2}, BadRequest, "the same path twice"),
        (
            {"files": (BundleFile(path="a", content=bytes(LIMIT_FILE_BYTES + 1)),)},
            MessageTooLarge,
            f"a has {LIMIT_FILE_BYTES + 1} bytes; the limit is {LIMIT_FILE_BYTES}. Nothing was stored",
        ),
        (
            {"files": tuple(BundleFile(path=str(number), content=b"") for number in range(LIMIT_FILES + 1))},
            BadRequest,
            "at most 200 files; this one has 201",
        ),
        (
            {"files": tuple(BundleFile(path=f"{number}", content=bytes(900_000)) for number in range(5))},
            MessageTooLarge,
            f"the bundle has 4500000 bytes; the limit is {LIMIT_BUNDLE_BYTES}",
        ),
        ({"transcripts": (excerpt(text="x" * LIMIT_BUNDLE_BYTES),)}, MessageTooLarge, "the bundle has"),
        ({"transcripts": (excerpt(level="loud"),)}, BadRequest, "the level of a transcript must be"),
        ({"transcripts": (excerpt(3, 2),)}, BadRequest, "3-2 is not a range of entries"),
        ({"transcripts": (excerpt(0, 1),)}, BadRequest, "0-1 is not a range of entries"),
        (
            {"transcripts": (Excerpt(agent="luna", first=1, last=2, level="full", entries=()),)},
            BadRequest,
            "the range 1-2 of a transcript needs 2 entries, not 0",
        ),
        (
            {"transcripts": (Excerpt(agent="l\x00", first=1, last=1, level="full", entries=({},)),)},
            BadText,
            "the agent of a transcript",
        ),
        ({"events": ((0, 1),)}, BadRequest, "0-1 is not a range of events; write A-B, counted from 1"),
        ({"events": ((2, 1),)}, BadRequest, "2-1 is not a range of events; write A-B, counted from 1"),
        ({"events": ((1, 9),)}, NotFound, "there is no event 9: the last event is #1"),
    ],
)
async def test_invalid_bundle_is_refused_and_nothing_is_stored(
    log: MemoryLog, context: Context, fields: dict[str, object], error: type[PalaverError], complaint: str
) -> None:
    await put_message(log)

    with pytest.raises(error, match=complaint):
        await made(context, **fields)  # type: ignore[arg-type]  # fields of the request

    assert await log.read(Query(types=("bundle",))) == []


async def test_bundle_refers_to_at_most_as_many_events_as_can_be_shown(
    log: MemoryLog, context: Context
) -> None:
    last = 0
    while last <= LIMIT_EVENTS:
        last = await put_message(log)

    await made(context, events=((1, LIMIT_EVENTS),))
    with pytest.raises(BadRequest, match="at most 1000 events; these ranges have 1001"):
        await made(context, events=((1, LIMIT_EVENTS), (last, last)))


async def test_bundle_of_the_maximum_size_is_stored(context: Context) -> None:
    files = tuple(BundleFile(path=f"{number}", content=bytes(LIMIT_FILE_BYTES)) for number in range(4))

    event = await made(context, files=files)

    assert len(bundle_of(event).files) == 4


contents = st.lists(st.lists(st.binary(max_size=20), max_size=3), max_size=6)


@given(contents)
async def test_rebuilt_rows_equal_the_live_rows(contents: list[list[bytes]]) -> None:
    log = MemoryLog(apply=fold)
    context = context_of(log)
    extends = ""
    for files in contents:
        named = tuple(BundleFile(path=f"{number}", content=one) for number, one in enumerate(files))
        extends = str((await made(context, files=named, extends=extends)).payload["bundle_id"])
    before = [log.rows.scan(table, "") for table in (BUNDLES, BUNDLE_PLACES)]

    await log.rebuild()

    assert [log.rows.scan(table, "") for table in (BUNDLES, BUNDLE_PLACES)] == before
    assert len(before[0]) == len(contents)


async def test_reference_to_a_missing_bundle_is_refused(log: MemoryLog, context: Context) -> None:
    await made(context)

    with pytest.raises(NotFound, match="there is no bundle:7f3q9x2m"):
        attached_bundle(log, "7F3Q9X2M")
