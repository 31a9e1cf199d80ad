"""The fold: it accepts any event, and gives the same state live and rebuilt."""

import asyncio
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import HUMAN, SCRIPT, Bus, FakeClock, GuardedTasks, OpenLog, open_memory, open_sqlite, seat
from tests.state.recomputed import check_lists

from palaver.broker.context import SYSTEM_CALLER
from palaver.errors import RequestError
from palaver.log.api import Log
from palaver.log.memory import MemoryRows
from palaver.protocol.agents import BeginSubagent, Caller
from palaver.protocol.envelope import Draft, Event
from palaver.protocol.events import ClosePermission, DeliveryReport, OpenPermission, can_rise
from palaver.protocol.message import PRIORITY_WORDS
from palaver.protocol.paths import ClearDeadLetters, Content, CreateSession, RemoveSession, SubscribePath
from palaver.protocol.requests import (
    Acknowledge,
    DaemonStarted,
    Gone,
    Join,
    Leave,
    Put,
    Redeliver,
    Release,
    ReportDelivery,
    Request,
    Send,
    SetStatus,
)
from palaver.protocol.turns import BatchMessage, FailTurn, FinishTurn, SetAutoRun, SkipTurn, StartTurn
from palaver.state.agents import (
    AGENTS,
    LAST_SUBAGENT,
    SESSIONS,
    SUBAGENTS,
    read_agent,
    read_agents,
    read_last_subagent,
    read_line,
    read_seats,
    read_session,
    read_subagent,
)
from palaver.state.attention import ATTENTION
from palaver.state.conversations import TALK_OPEN, TALK_ORDER, TALKS
from palaver.state.fold import _HANDLERS, SKIPPED, agent_of, apply
from palaver.state.references import THREADS
from palaver.state.rooms import IrcTopic, read_irc_level, read_irc_levels, read_irc_topic
from palaver.state.rows import (
    CARRIED,
    EXPIRY,
    HELD,
    LEDGER,
    MAIL,
    PUSHED,
    TIP,
    UNREAD,
    UNSURE,
    Change,
    decode_count,
    decode_mail,
    expiry_key,
    kind_of_key,
    ledger_key,
    parse_expiry_key,
)

TABLES = (
    AGENTS,
    SESSIONS,
    SUBAGENTS,
    LAST_SUBAGENT,
    SKIPPED,
    MAIL,
    LEDGER,
    UNREAD,
    EXPIRY,
    CARRIED,
    UNSURE,
    HELD,
    TIP,
    "path",
    "path_count",
    "agent_session",
    "dead_cleared",
    "auto_run",
    "turn_queue",
    "turn_held",
    "turn_session",
    "turn_count",
    TALKS,
    TALK_ORDER,
    TALK_OPEN,
    ATTENTION,
)
NAMES = ("luna", "nova", "api-luna")
MAILBOXES = (*NAMES, "luna+mon", "nova+main")


def event(
    type_: str, payload: dict[str, object], *, seq: int = 1, sender: str = "luna", **fields: object
) -> Event:
    return Event(
        seq=seq,
        id=f"ID{seq}",
        type=type_,
        sender=sender,
        to=(),
        ts=1000 + seq,
        device="TEST",
        payload=payload,
        **fields,  # type: ignore[arg-type]  # fields of an event
    )


def rows_of(log: Log) -> dict[str, list[tuple[str, bytes]]]:
    return {table: log.rows.scan(table, "", limit=100_000) for table in TABLES}


# Totality

words = st.sampled_from(
    ["luna", "nova", "queued", "submitted", "seen", "held", "idle", "interrupt", "resumed", "worker", "1", ""]
)
values = st.recursive(
    st.one_of(words, st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
KEYS = [
    "agent",
    "messages",
    "state",
    "lane",
    "unconfirmed",
    "priority",
    "delivered_to",
    "expires",
    "held",
    "handled",
    "reply_to",
    "action",
    "name",
    "base",
    "session",
    "runtime",
    "reason",
    "detail",
    "seq",
    "text",
]
payloads = st.dictionaries(st.sampled_from(KEYS), values, max_size=8)
turn_facts = st.tuples(
    st.sampled_from(["auto-turn", "auto-turn-result", "auto-turn-error", "turn.skipped"]),
    st.fixed_dictionaries(
        {"agent": st.sampled_from(NAMES), "session": st.sampled_from(["main", "mon"])},
        optional={
            "messages": st.lists(st.integers(1, 9), max_size=2),
            "mailboxes": st.lists(st.sampled_from(MAILBOXES), max_size=2),
            "attempt": st.integers(0, 4),
            "turn": st.integers(1, 9),
            "error": st.just("x"),
            "held": st.booleans(),
            "reason": st.sampled_from(["triage", "?"]),
        },
    ),
)
auto_runs: st.SearchStrategy[dict[str, object]] = st.fixed_dictionaries(
    {"key": st.just("autoRun"), "value": st.sampled_from([True, False, {}, "x", None]), "old": st.none()},
    optional={"agent": st.sampled_from([*NAMES, None]), "session": st.sampled_from(["mon", "main"])},
)
reports = st.fixed_dictionaries(
    {
        "agent": st.sampled_from(MAILBOXES),
        "messages": st.lists(st.integers(1, 9), max_size=3),
        "state": st.sampled_from(["queued", "held", "submitted", "seen", "refused", "expired", "dead", "?"]),
    },
    optional={
        "unconfirmed": st.booleans(),
        "priority": st.sampled_from([*PRIORITY_WORDS, "?"]),
        "lane": st.sampled_from(["", "terminal"]),
    },
)
mails = st.fixed_dictionaries(
    {"delivered_to": st.lists(st.sampled_from(MAILBOXES), max_size=3)},
    optional={
        "handled": st.dictionaries(st.sampled_from(NAMES), st.just(["mon"]), max_size=2),
        "priority": st.sampled_from([*PRIORITY_WORDS, "?"]),
        "expires": st.integers(-5, 2**70),
        "held": words,
        "reply_to": st.sampled_from(["1", "2", "3", "x", "9" * 5000]),
    },
)
irc_levels = st.fixed_dictionaries(
    {"key": st.just("irc_verbosity"), "value": st.sampled_from(["full", "loud", 7])},
    optional={"channel": st.sampled_from(["#general", ""])},
)
irc_topics = st.fixed_dictionaries(
    {"key": st.just("topic"), "value": st.sampled_from(["one", "", 7])},
    optional={"channel": st.sampled_from(["#general", ""])},
)
types = st.sampled_from([*_HANDLERS, "x", "claim"])
facts = st.one_of(
    st.tuples(types, payloads),
    st.tuples(st.just("delivery"), reports),
    st.tuples(st.just("message"), mails),
    st.tuples(st.just("setting.changed"), auto_runs),
    st.tuples(st.just("setting.changed"), irc_levels),
    st.tuples(st.just("setting.changed"), irc_topics),
    turn_facts,
    st.tuples(st.just("agent.hello"), st.just({"agent": {"name": "luna", "base": "luna", "session": "s"}})),
)


@given(st.lists(facts, max_size=12))
def test_fold_never_raises_and_is_repeatable_for_any_event(
    found: list[tuple[str, dict[str, object]]],
) -> None:
    rows = MemoryRows()

    for index, (type_, payload) in enumerate(found, 1):
        made = event(type_, payload, seq=index, sender=NAMES[index % 3], delivered_to=NAMES[: index % 3])
        changes = apply(rows, made)
        assert apply(rows, made) == changes
        rows.change(changes)

    check_counts(rows.scan)


def check_counts(scan: Callable[..., Iterable[tuple[str, bytes]]]) -> None:
    """Check that each count matches the rows, and that each short list matches the ledger."""
    counts = {key: decode_count(value) for key, value in scan(UNREAD, "")}
    found = [(key, decode_mail(value)) for key, value in scan(MAIL, "")]
    mails = [(key.rpartition("/")[0], mail) for key, mail in found]
    unread = [key for key, mail in found if not mail.is_kept_back and kind_of_key(key) in PUSHED]
    owners = [key.rpartition("/")[0] for key in unread]
    assert counts == {name: owners.count(name) for name in owners}
    assert {key for key, _ in scan(HELD, "")} == {
        ledger_key(mail.seq, owner) for owner, mail in mails if mail.is_kept_back
    }
    assert {key for key, _ in scan(CARRIED, "")}.isdisjoint(key for key, _ in scan(UNSURE, ""))


def test_unreadable_event_is_counted_by_its_type() -> None:
    rows = MemoryRows()

    for _ in range(3):
        rows.change(apply(rows, event("status", {})))

    assert rows.scan(SKIPPED, "") == [("status", b"3")]


# One agent

AGENT = {"name": "luna", "base": "luna", "harness": "claude", "session": "s"}


def folded(*events: Event) -> MemoryRows:
    rows = MemoryRows()
    for one in events:
        changes: Iterable[Change] = apply(rows, one)
        rows.change(changes)
    return rows


def test_hello_creates_an_agent_and_a_later_one_sets_its_runtime() -> None:
    rows = folded(
        event("agent.hello", {"agent": AGENT}),
        event("agent.hello", {"runtime": "py", "version": "3"}, seq=2),
    )

    agent = read_agent(rows, "luna")
    assert agent is not None
    assert (agent.joined, agent.seq, agent.runtime, agent.version) == (1001, 1, "py", "3")
    assert read_session(rows, "claude", "s") == "luna"
    assert read_session(rows, "codex", "s") is None


def test_every_process_of_a_boot_that_was_a_seat_is_stored() -> None:
    seats = [{"pid": pid, "start": pid, "boot": boot} for pid, boot in ((1, "b"), (2, "b"), (3, "c"))]
    hellos = [
        event("agent.hello", {"agent": {**AGENT, "seat": one}}, seq=number)
        for number, one in enumerate(seats, 1)
    ]

    rows = folded(*hellos, event("agent.bye", {"reason": "x"}, seq=4))

    assert [(seat.pid, seat.start) for seat in read_seats(rows, "b")] == [(1, 1), (2, 2)]


def test_status_and_pause_and_bye_change_the_agent() -> None:
    rows = folded(
        event("agent.hello", {"agent": AGENT}),
        event("status", {"state": "active", "detail": "works"}, seq=2),
        event("agent.paused", {"agent": "luna"}, seq=3, sender="human"),
        event("agent.bye", {"reason": "done"}, seq=4),
    )

    agent = read_agent(rows, "luna")
    assert agent is not None
    assert (agent.state, agent.detail, agent.paused, agent.left) == ("exited", "done", True, True)
    assert read_agents(folded(event("agent.hello", {"agent": AGENT}))) != read_agents(rows)


def test_pause_lasts_until_a_person_ends_it_even_if_the_agent_returns() -> None:
    paused = (
        event("agent.hello", {"agent": AGENT}),
        event("agent.paused", {"agent": "luna"}, seq=2, sender="human"),
        event("agent.bye", {"reason": "done"}, seq=3),
        event("agent.hello", {"agent": AGENT}, seq=4),
    )

    back = read_agent(folded(*paused), "luna")
    let_go = read_agent(folded(*paused, event("agent.unpaused", {"agent": "luna"}, seq=5)), "luna")

    assert back is not None
    assert (back.paused, back.left) == (True, False)
    assert let_go is not None
    assert not let_go.paused


def test_settings_of_an_agent_last_and_those_of_the_bus_change_no_agent() -> None:
    rows = folded(
        event("agent.hello", {"agent": AGENT}),
        event("setting.changed", {"key": "tag", "value": "api", "old": "", "agent": "luna"}, seq=2),
        event("setting.changed", {"key": "hints", "value": "brief", "old": "", "agent": "luna"}, seq=3),
        event("setting.changed", {"key": "hints", "value": "for all", "old": ""}, seq=4, sender="human"),
        event("agent.hello", {"agent": AGENT}, seq=5),
    )

    agent = read_agent(rows, "luna")
    assert agent is not None
    assert (agent.tag, agent.hints) == ("api", "brief")
    assert rows.get(SKIPPED, "setting.changed") is None


@pytest.mark.parametrize(("key", "value"), [("name", "nova"), ("tag", 7)])
def test_unknown_setting_of_an_agent_is_skipped(key: str, value: object) -> None:
    rows = folded(
        event("agent.hello", {"agent": AGENT}),
        event("setting.changed", {"key": key, "value": value, "old": "", "agent": "luna"}, seq=2),
    )

    agent = read_agent(rows, "luna")
    assert agent is not None
    assert (agent.name, agent.tag) == ("luna", "")
    assert rows.get(SKIPPED, "setting.changed") is not None


def test_level_of_a_channel_is_kept() -> None:
    setting: dict[str, object] = {"key": "irc_verbosity", "value": "full", "channel": "#general"}

    rows = folded(event("setting.changed", setting))

    assert read_irc_level(rows, "#general") == "full"
    assert read_irc_levels(rows) == {"#general": "full"}
    assert read_irc_level(rows, "#agent-luna") == "full"
    assert read_irc_level(rows, "#other") == "actions"
    assert read_irc_level(folded(), "#general") == "minimal"


def test_level_of_a_channel_is_found_in_any_case_of_ascii_letters() -> None:
    setting: dict[str, object] = {"key": "irc_verbosity", "value": "full", "channel": "#bär"}

    rows = folded(event("setting.changed", setting))

    assert read_irc_level(rows, "#BäR") == "full"
    assert read_irc_level(rows, "#BÄR") == "actions"


@pytest.mark.parametrize("wrong", [{"value": "loud"}, {"value": 7}, {"value": ["full"]}, {"channel": ""}])
def test_invalid_level_of_a_channel_is_skipped(wrong: dict[str, object]) -> None:
    setting: dict[str, object] = {"key": "irc_verbosity", "value": "full", "channel": "#general"}

    rows = folded(event("setting.changed", setting | wrong))

    assert read_irc_levels(rows) == {}
    assert rows.get(SKIPPED, "setting.changed") is not None


def test_topic_of_a_channel_is_kept_until_it_is_removed() -> None:
    setting: dict[str, object] = {"key": "topic", "value": "one", "channel": "#general"}
    first = event("setting.changed", setting, sender="irc/local/bob")

    rows = folded(first)

    assert read_irc_topic(rows, "#General") == IrcTopic(text="one", by="irc/local/bob", ts=first.ts)
    assert read_irc_topic(rows, "#other") is None
    later = event("setting.changed", setting | {"value": ""}, seq=2)
    assert read_irc_topic(folded(first, later), "#general") is None


@pytest.mark.parametrize("wrong", [{"value": 7}, {"value": None}, {"value": ["one"]}, {"channel": ""}])
def test_invalid_topic_of_a_channel_is_skipped(wrong: dict[str, object]) -> None:
    setting: dict[str, object] = {"key": "topic", "value": "one", "channel": "#general"}

    rows = folded(event("setting.changed", setting | wrong))

    assert read_irc_topic(rows, "#general") is None
    assert rows.get(SKIPPED, "setting.changed") is not None


def test_resumed_agent_is_replaced_and_other_actions_change_nothing() -> None:
    rows = folded(
        event("agent.hello", {"agent": AGENT}),
        event("life", {"action": "daemon_started"}, seq=2),
        event("life", {"action": "resumed", "agent": {**AGENT, "joined": 5, "session": ""}}, seq=3),
    )

    agent = read_agent(rows, "luna")
    assert agent is not None
    assert (agent.joined, agent.seq, agent.session) == (5, 3, "")


def test_agent_is_ready_from_its_ready_event_until_it_leaves() -> None:
    events = [
        event("agent.hello", {"agent": AGENT}),
        event("life", {"action": "started", "name": "luna"}, seq=2),
        event("life", {"action": "ready", "name": "luna"}, seq=3),
        event("agent.bye", {"reason": "done"}, seq=4),
    ]

    agents = [read_agent(folded(*events[:count]), "luna") for count in (1, 2, 3, 4)]

    assert [agent is not None and agent.ready for agent in agents] == [False, False, True, False]


def test_life_event_is_about_its_sender_unless_it_names_another() -> None:
    assert agent_of(event("agent.paused", {"agent": "nova"}, sender="human")) == "nova"
    assert agent_of(event("agent.hello", {"agent": AGENT})) == "luna"


# Live and rebuilt

callers = st.sampled_from(["luna", "nova", "api-luna", "human", "script"])
targets = st.lists(
    st.sampled_from(["@luna", "@nova", "api-luna", "@human", "@all", "@observers", "x/y"]), max_size=2
)
seqs = st.lists(st.integers(1, 40), min_size=1, max_size=3).map(tuple)
sessions = {"agent": st.sampled_from(NAMES), "session": st.sampled_from(["main", "mon"])}
batches = st.lists(
    st.builds(BatchMessage, seq=st.integers(1, 40), mailbox=st.sampled_from(MAILBOXES)), max_size=3
).map(tuple)
turns: st.SearchStrategy[Request] = st.one_of(
    st.builds(
        StartTurn,
        **sessions,
        batch=batches,
        triage=st.sampled_from(["", "accepted", "error"]),
    ),
    st.builds(FinishTurn, turn=st.integers(1, 60), text=st.just("ok")),
    st.builds(FailTurn, turn=st.integers(1, 60), error=st.just("x")),
    st.builds(SkipTurn, **sessions, batch=batches, reason=st.sampled_from(["triage", "reject list"])),
)
permissions: st.SearchStrategy[tuple[str, Request]] = st.tuples(
    st.just("[pal-events]"),
    st.one_of(
        st.builds(
            OpenPermission,
            name=st.sampled_from(NAMES),
            permission=st.sampled_from(["a1", "b2"]),
            tool=st.just("Bash"),
            text=st.just("Bash: make"),
            digest=st.just("d"),
            until=st.just(5),
        ),
        st.builds(
            ClosePermission,
            name=st.sampled_from(NAMES),
            permission=st.sampled_from(["a1", "b2"]),
            decision=st.just("deny"),
            reason=st.just("timeout"),
        ),
        st.builds(DaemonStarted, pid=st.just(1), version=st.just("1")),
    ),
)
steps: st.SearchStrategy[tuple[str, Request]] = st.one_of(
    st.tuples(
        callers,
        st.builds(
            Send,
            text=st.just("x"),
            to=targets.map(tuple),
            priority=st.sampled_from(["", *PRIORITY_WORDS]),
            expires_in_ms=st.sampled_from([0, 1000]),
            reply_to=st.sampled_from(["", "3", "5", "9"]),
            thread=st.sampled_from(["", "", "plan"]),
            intent=st.sampled_from(["", "request", "ack"]),
            expects_reply=st.booleans(),
            id=st.sampled_from(["", "01HF7YAT00ABCDEFGHJKMNPQRS"]),
        ),
    ),
    st.tuples(
        callers,
        st.builds(
            Acknowledge,
            messages=seqs,
            lane=st.just("sdk"),
            grade=st.just("acked"),
            session=st.sampled_from(["", "mon", "main"]),
            tips=st.sampled_from([(), ("request",), ("request", "thread")]),
        ),
    ),
    st.tuples(
        st.just("[pal-events]"),
        st.builds(
            ReportDelivery,
            report=st.builds(
                DeliveryReport,
                agent=st.sampled_from([*MAILBOXES, "human", "x/y"]),
                messages=seqs,
                state=st.sampled_from(["queued", "held", "submitted", "seen", "refused", "expired", "dead"]),
                unconfirmed=st.booleans(),
            ),
        ),
    ),
    st.tuples(
        callers,
        st.builds(
            lambda path, content: Send(text="", to=(path,), content=content),
            st.sampled_from(["/x/y", "/x/**", "/agent/luna", "/agent/nova", "/x"]),
            st.builds(Content, command=st.sampled_from(["message", "go"]), payload=st.sampled_from([1, []])),
        ),
    ),
    st.builds(
        lambda name, session, pattern: (name, SubscribePath(agent=name, session=session, pattern=pattern)),
        st.sampled_from(NAMES),
        st.sampled_from(["", "mon", "main"]),
        st.sampled_from(["x/y", "x/*"]),
    ),
    st.builds(
        lambda name, harness: (name, CreateSession(agent=name, session="mon", harness_session=harness)),
        st.sampled_from(NAMES),
        st.sampled_from(["", "s"]),
    ),
    st.builds(lambda name: (name, RemoveSession(agent=name, session="mon")), st.sampled_from(NAMES)),
    st.tuples(callers, st.builds(ClearDeadLetters)),
    st.tuples(
        st.just("human"),
        st.builds(
            SetAutoRun,
            agent=st.sampled_from(NAMES),
            session=st.sampled_from(["", "mon", "main"]),
            value=st.sampled_from([True, True, False, None, {"debounceMs": 5}]),
        ),
    ),
    st.tuples(st.just("[pal-events]"), turns),
    st.tuples(callers, st.builds(SetStatus, state=st.sampled_from(["idle", "active", "blocked", "exited"]))),
    permissions,
    st.tuples(callers, st.builds(Leave)),
    st.tuples(
        callers,
        st.builds(
            Join,
            name=st.sampled_from(["", "luna", "nova"]),
            tag=st.sampled_from(["", "api"]),
            seat=st.sampled_from([None, seat(1), seat(2)]),
            session=st.sampled_from(["", "s"]),
            has_link=st.booleans(),
            takes_over=st.booleans(),
        ),
    ),
    st.tuples(st.just("[pal-events]"), st.builds(Gone, name=st.sampled_from(NAMES), reason=st.just("-"))),
    st.tuples(
        st.just("[pal-events]"),
        st.builds(
            BeginSubagent,
            parent=st.sampled_from(NAMES),
            key=st.sampled_from(["a1", "a2"]),
            type=st.sampled_from(["", "x"]),
        ),
    ),
    st.tuples(st.just("human"), st.builds(Redeliver, message=st.sampled_from(["3", "5", "9"]))),
    st.tuples(st.just("human"), st.builds(Release, message=st.sampled_from(["3", "5", "9"]))),
    st.tuples(
        callers,
        st.builds(
            lambda type_, to, id_: Put(envelope=Draft(type=type_, id=id_, sender="luna", to=tuple(to))),
            st.sampled_from(["x", "agent.hello", "agent.bye", "task.create"]),
            st.lists(st.sampled_from(["nova", "@workers"]), max_size=2),
            st.sampled_from(["e1", "e2"]),
        ),
    ),
)


@pytest.mark.parametrize("open_log", [open_memory, open_sqlite], ids=["memory", "sqlite"])
@given(st.lists(steps, max_size=25))
def test_rebuilt_state_equals_live_state_and_no_ledger_entry_goes_down(
    open_log: OpenLog, requests: list[tuple[str, Request]]
) -> None:
    asyncio.run(_live_and_anew(open_log, requests))


async def _live_and_anew(open_log: OpenLog, requests: list[tuple[str, Request]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = await open_log(Path(directory))
        # The end of the block ends everything that delivery writes by itself.
        async with GuardedTasks() as tasks:
            bus = Bus(log, FakeClock(), tasks)
            await _play(bus, requests)
        bus.close()
        live, names = rows_of(log), {agent.name for agent in bus.broker.directory.all()}

        await log.rebuild()

        assert rows_of(log) == live
        assert {agent.name for agent in read_agents(log.rows)} == names
        check_counts(log.rows.scan)
        await check_lists(log)
        await log.close()


async def _play(bus: Bus, requests: list[tuple[str, Request]]) -> None:
    known = {"human": HUMAN, "script": SCRIPT, "[pal-events]": SYSTEM_CALLER}
    for name in ("luna", "nova"):
        known[name] = await bus.join(name)
    known["api-luna"] = await bus.join("luna", tag="api")
    lines: dict[tuple[int, str], str] = {}
    for name, request in requests:
        await _try(bus, known[name], request)
        _check_lines(bus, lines)


async def _try(bus: Bus, asking: Caller, request: Request) -> None:
    with suppress(RequestError):
        await bus.broker.submit(asking, request)


def _check_lines(bus: Bus, lines: dict[tuple[int, str], str]) -> None:
    """Check that each ledger entry stays, rises, or is queued again."""
    for key, _ in bus.log.rows.scan(LEDGER, "", limit=10_000):
        seq, _, agent = key.partition("/")
        line = read_line(bus.log.rows, int(seq), agent)
        assert line is not None
        old = lines.get((int(seq), agent), "queued")
        is_back = line.state == "queued" and old in ("submitted", "held")
        assert line.state == old or is_back or can_rise(old, line.state) or _by_two_steps(old, line.state)
        lines[int(seq), agent] = line.state


def _by_two_steps(old: str, new: str) -> bool:
    """Return whether delivery can have queued and raised an entry between two checks."""
    return old in ("submitted", "held") and can_rise("queued", new)


def test_sub_agent_is_found_by_its_key_and_its_number_is_not_reused() -> None:
    rows = MemoryRows()
    for index, number in enumerate((2, 1)):
        agent = {
            "name": f"luna_x_{number}",
            "base": f"luna_x_{number}",
            "parent": "luna",
            "session": f"a{number}",
            "harness": "claude",
        }
        rows.change(apply(rows, event("agent.hello", {"agent": agent}, seq=index + 1)))

    assert read_subagent(rows, "luna", "a1") == "luna_x_1"
    assert read_subagent(rows, "luna", "a3") is None
    assert (read_last_subagent(rows, "luna_x"), read_last_subagent(rows, "luna_y")) == (2, 0)
    assert read_session(rows, "claude", "a1") is None


def test_sub_agent_without_a_number_in_its_name_is_skipped_and_counted() -> None:
    rows = MemoryRows()
    agent = {"name": "luna_x", "base": "luna_x", "parent": "luna", "session": "a1"}

    changes = apply(rows, event("agent.hello", {"agent": agent}))

    assert [table for table, _, _ in changes] == [SKIPPED]


def test_imported_message_is_a_part_of_its_thread_and_of_no_conversation() -> None:
    payload: dict[str, object] = {
        "text": "x",
        "thread": "plan",
        "delivered_to": ["nova"],
        "scope": "mentions",
    }

    rows = folded(event("message", payload, imported=3), event("status", {"state": "idle"}, imported=4))

    assert [table for table in (*TABLES, THREADS) if rows.scan(table, "")] == [THREADS]


def test_key_of_an_expiry_time_can_be_read_back() -> None:
    assert parse_expiry_key(expiry_key(5, 42, "nova+mon")) == (5, 42, "nova+mon")
