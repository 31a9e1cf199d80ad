import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palaver.protocol.envelope import Event
from palaver.protocol.query import Query, index_words, matches, wanted_words

_event = Event(
    seq=10,
    id="i",
    type="message",
    sender="Luna",
    to=("@nova",),
    ts=1000,
    device="BOXE",
    payload={
        "delivered_to": ["nova", "api-nova"],
        "mentions": ["nova"],
        "thread": "pr-1",
        "room": "main",
        "intent": "request",
        "file": "a.py",
        "state": "idle",
        "agent": "kira",
        "to": "mila",
        "odd": [1, "x"],
    },
    delivered_to=("deka",),
)


@pytest.mark.parametrize(
    "query",
    [
        Query(),
        Query(types=("message",)),
        Query(types=("message_sent",)),
        Query(types=("status", "message")),
        Query(agents=("luna",)),
        Query(agents=("API-nova",)),
        Query(agents=("kira",)),
        Query(agents=("mila",)),
        Query(agents=("@deka",)),
        Query(senders=("@LUNA",)),
        Query(to=("nova",)),
        Query(to=("@nova",)),
        Query(to=("api-nova",)),
        Query(mentions=("@nova",)),
        Query(targets=("nova",)),
        Query(targets=("deka",)),
        Query(threads=("pr-1",)),
        Query(rooms=("main",)),
        Query(intents=("request",)),
        Query(files=("a.py",)),
        Query(statuses=("listening",)),
        Query(statuses=("idle",)),
        Query(after=9, before=11, since=1000, until=1000),
        Query(types=("message",), senders=("luna", "nova"), threads=("pr-1",)),
    ],
)
def test_matching_event_passes_a_filter(query: Query) -> None:
    assert matches(query, _event)


@pytest.mark.parametrize(
    "query",
    [
        Query(types=("status",)),
        Query(agents=("nobody",)),
        Query(senders=("nova",)),
        Query(to=("luna",)),
        Query(mentions=("api-nova",)),
        Query(targets=("luna",)),
        Query(threads=("PR-1",)),
        Query(rooms=("other",)),
        Query(intents=("ack",)),
        Query(files=("b.py",)),
        Query(statuses=("exited",)),
        Query(after=10),
        Query(before=10),
        Query(since=1001),
        Query(until=999),
        Query(types=("message",), senders=("nova",)),
    ],
)
def test_other_event_does_not_pass_a_filter(query: Query) -> None:
    assert not matches(query, _event)


def test_stored_alias_of_a_state_is_found_by_either_word() -> None:
    event = replace(_event, payload={"state": "inactive"})

    assert matches(Query(statuses=("exited",)), event)
    assert matches(Query(statuses=("inactive",)), event)


@pytest.mark.parametrize("word", ["exited", "inactive"])
def test_bye_is_found_by_the_exited_state(word: str) -> None:
    event = replace(_event, type="agent.bye", payload={"reason": "left"})

    assert matches(Query(statuses=(word,)), event)
    assert not matches(Query(statuses=("idle",)), event)


def test_payload_of_another_shape_is_ignored() -> None:
    event = replace(_event, payload={"delivered_to": 5, "mentions": [1, "nova"], "thread": None})

    assert matches(Query(mentions=("nova",)), event)
    assert not matches(Query(threads=("pr-1",)), event)
    assert not matches(Query(targets=("nova",)), event)


@pytest.mark.parametrize("type_", ["release", "member_left"])
def test_event_that_the_bus_writes_for_a_member_is_found_by_that_member(type_: str) -> None:
    event = replace(_event, type=type_, sender="[pal-events]", payload={"from": "vega", "room": "main"})

    assert matches(Query(agents=("vega",)), event)
    assert matches(Query(senders=("@Vega",)), event)
    assert matches(Query(senders=("[pal-events]",)), event)
    assert not matches(Query(senders=("kira",)), event)


def test_only_the_bus_writes_events_for_another_agent() -> None:
    claim = replace(_event, type="claim", payload={"from": "vega"})
    release = replace(_event, type="release", payload={"from": "vega"})
    odd = replace(_event, type="release", sender="[pal-events]", payload={"from": 5})

    assert matches(Query(agents=("vega",)), claim)
    assert not matches(Query(senders=("vega",)), claim)
    assert not matches(Query(senders=("vega",)), release)
    assert not matches(Query(senders=("vega",)), odd)


words = st.sampled_from(["luna", "nova", "kira"])


@given(st.lists(words).map(tuple), st.lists(words).map(tuple), words, st.lists(words))
def test_same_filter_twice_is_or_and_different_ones_are_and(
    senders: tuple[str, ...], targets: tuple[str, ...], sender: str, delivered_to: list[str]
) -> None:
    event = replace(_event, sender=sender, payload={"delivered_to": delivered_to}, delivered_to=())

    expected = (not senders or sender in senders) and (not targets or bool({*targets} & {*delivered_to}))

    assert matches(Query(senders=senders, targets=targets), event) is expected


@pytest.mark.parametrize(
    ("query", "is_found"),
    [
        (Query(participants=("LUNA",)), True),
        (Query(participants=("@api-nova",)), True),
        (Query(participants=("kira",)), False),
        (Query(tools=("bash",)), True),
        (Query(tools=("Edit",)), False),
        (Query(files=("*.py",)), True),
        (Query(files=("?.py", "b")), True),
        (Query(files=("[bc].py",)), False),
        (Query(files=("b.*",)), False),
        (Query(replies_to=("7",)), True),
        (Query(replies_to=("7:BOXE",)), False),
    ],
)
def test_event_is_found_by_participant_tool_file_and_reply(query: Query, *, is_found: bool) -> None:
    event = replace(_event, payload={**_event.payload, "tool": "Bash", "reply_to": "7"})

    assert matches(query, event) is is_found


def test_file_with_brackets_in_its_name_is_found_by_its_name() -> None:
    event = replace(_event, payload={"file": "app/[id]/page.tsx"})

    assert matches(Query(files=("app/[id]/page.tsx",)), event)


def test_reply_of_an_imported_message_is_found_by_number_and_device() -> None:
    event = replace(_event, payload={"reply_to": "7"}, imported=10)

    assert matches(Query(replies_to=("7:BOXE",), with_imported=True), event)
    assert not matches(Query(replies_to=("7",), with_imported=True), event)


_names = st.lists(st.sampled_from(["luna", "@Nova", "api-luna", "[pal-events]"]), max_size=2)
_events = st.builds(
    lambda type, sender, to, delivered, payload: Event(
        type=type, id="1", sender=sender, to=tuple(to), delivered_to=tuple(delivered), ts=1, payload=payload,
        seq=7, device="BOXE",
    ),
    st.sampled_from(["message", "status", "agent.bye", "member_left", "release", "x"]),
    st.sampled_from(["luna", "nova", "[pal-events]"]),
    _names,
    _names,
    st.dictionaries(
        st.sampled_from(
            ["to", "from", "agent", "mentions", "delivered_to", "intent", "tool", "state", "reply_to", "file"]
        ),
        st.sampled_from(["luna", "Nova", "request", "Bash", "idle", "listening", "3", "a.py"]) | _names,
    ),
)  # fmt: skip
_FILTERS = (
    "agents",
    "to",
    "mentions",
    "targets",
    "intents",
    "files",
    "statuses",
    "tools",
    "replies_to",
    "participants",
)


@given(event=_events, field=st.sampled_from(_FILTERS), words=st.lists(st.text(max_size=3), max_size=2))
def test_matching_event_has_one_of_the_wanted_words(event: Event, field: str, words: list[str]) -> None:
    known = ["luna", "@NOVA", "api-luna", "request", "bash", "idle", "exited", "inactive", "3", "a.py"]
    for word in known:
        query = replace(Query(), **{field: (word, *words)})

        if matches(query, event):
            assert set(wanted_words(query)) & set(index_words(event))


def test_pattern_of_a_file_has_no_words() -> None:
    assert wanted_words(Query(files=("src/*.py",))) == []
    assert wanted_words(Query(files=("src/a.py",))) == ["fsrc/a.py"]
