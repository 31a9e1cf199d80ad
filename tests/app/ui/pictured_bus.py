"""The bus of the pictures: four agents and a person on a morning in March. Every time and number is fixed."""

import msgspec
from tests.app.ui.fake_bus import FakeBus
from tests.app.ui.fake_link import FakeLink

from palaver.app.ui.commands import Result
from palaver.protocol.views import (
    Action,
    AgentPage,
    AgentRow,
    AskAgent,
    AskLedger,
    AskLog,
    AskPast,
    AskPermission,
    Attention,
    Counts,
    EventRow,
    LedgerPage,
    LedgerStep,
    LogPage,
    Mark,
    PermissionPage,
    RoomHandoff,
    RoomMember,
    RoomNote,
    RoomTask,
    Snapshot,
    ViewValue,
    WaitingMessage,
    WaitReason,
)

NOW = 1_772_443_800_000
"""2026-03-02 09:30:00 UTC."""
SHOP = "#shop-x4kd"
KILO = "@human@kilo"
_MINUTE = 60_000

_NOT_FETCHED = WaitReason(
    code="not_fetched",
    text="kilo has not called 'pal recv', and nothing can wake it",
    moves="kilo calls 'pal recv'",
)
_UNREAD = WaitReason(code="unread", text="you have not read it", moves="you read it in pal ui or pal inbox")
_BRAKE = WaitReason(
    code="held",
    text="a brake holds it: more than 30 messages a minute from nova to one agent",
    moves="a person runs 'pal release 41'",
)
_BUSY = WaitReason(
    code="busy", text="mira works on something else", moves="mira finishes its turn, then it is delivered"
)
_SCREEN = """\
* Bash(make install)
  Install the package for all users

  Do you want to proceed?
  > 1. Yes
    2. No, and tell me what to do differently (esc)
"""


class PicturedBus(FakeBus):
    """Has something to show on each screen."""

    def __init__(self) -> None:
        super().__init__()
        self.last = 48
        self.agents = _AGENTS
        self.commands.result = Result(0, _SCREEN, "")
        _add_talks(self)
        _add_rooms(self)
        answers = self.link.answers
        answers[AskAgent] = self._agent  # type: ignore[assignment]
        answers[AskPermission] = lambda _: _PERMISSION
        answers[AskLog] = _log  # type: ignore[assignment]
        answers[AskPast] = lambda _: self._then()
        self._plain_ledger = answers[AskLedger]
        answers[AskLedger] = self._steps  # type: ignore[assignment]

    def now(self) -> Snapshot:
        """Return the bus as it is."""
        counts = Counts(agents={"blocked": 1, "active": 2, "idle": 1}, attention=len(_WAITING), unread=1)
        return msgspec.structs.replace(
            self.snapshot(*_WAITING), agents_total=len(_AGENTS), now=NOW, counts=counts
        )

    def _then(self) -> Snapshot:
        agents = tuple(msgspec.structs.replace(row, since=NOW - 31 * _MINUTE) for row in _AGENTS[:2])
        held = msgspec.structs.replace(_WAITING[0], since=NOW - 25 * _MINUTE)
        counts = Counts(agents={"blocked": 1, "idle": 1}, attention=1)
        return msgspec.structs.replace(
            self.snapshot(held),
            agents=agents,
            agents_total=len(agents),
            seq=30,
            now=NOW - 20 * _MINUTE,
            counts=counts,
        )

    def _agent(self, question: AskAgent) -> ViewValue:
        row = next(row for row in self.agents if row.name == question.name)
        queue = (
            WaitingMessage(
                seq=46,
                ts=NOW - 4 * _MINUTE,
                sender="kilo",
                text="please review the parser when you have a minute",
                state="queued",
                priority="normal",
                reason=_BUSY,
            ),
            WaitingMessage(
                seq=41,
                ts=NOW - 8 * _MINUTE,
                sender="nova",
                text="please rebase on main",
                state="held",
                priority="normal",
                reason=_BRAKE,
            ),
        )
        messages = (*self.talks["@human@mira"],)
        return AgentPage(seq=48, row=row, queue=queue, queue_total=2, messages=messages)

    def _steps(self, question: AskLedger) -> ViewValue:
        page = self._plain_ledger(question)
        assert isinstance(page, LedgerPage)
        sent, message = page.message.ts, page.message
        if message.seq in self.link.seen:
            marks = (Mark(name="human", state="seen"),)
            message = msgspec.structs.replace(message, is_unread=False, marks=marks)
        steps = (
            LedgerStep(seq=43, ts=sent, name="", state="queued", by="human"),
            LedgerStep(seq=44, ts=sent + 12, name="luna", state="submitted", lane="terminal"),
            LedgerStep(seq=45, ts=sent + 840, name="luna", state="seen", lane="terminal", grade="context"),
        )
        return msgspec.structs.replace(page, message=message, steps=steps)


class EmptyLink(FakeLink):
    """A bus that no agent has joined."""

    def __init__(self) -> None:
        super().__init__(
            Snapshot(
                epoch="one",
                seq=1,
                now=NOW,
                me="human",
                device="BOXE",
                version="0.1.0",
                counts=Counts(agents={}),
            )
        )


def _row(name: str, state: str, harness: str, minutes: int, **fields: object) -> AgentRow:
    base = {"name": name, "state": state, "harness": harness, "since": NOW - minutes * _MINUTE}
    rest = {"seq": 48, "is_present": True, "rooms": ["shop"], "folder": "/home/ada/shop", **fields}
    return msgspec.convert({**base, **rest}, AgentRow)


_AGENTS = (
    _row("kilo", "idle", "opencode", 3, unread=1, last="which branch do we release from?", last_seq=42),
    _row(
        "luna",
        "blocked",
        "claude",
        2,
        doing="Bash: make install",
        waits_for="your decision",
        last="the parser test is red on main",
        last_seq=36,
        has_terminal=True,
    ),
    _row(
        "mira",
        "active",
        "codex",
        11,
        role="worker",
        tag="backend",
        doing="Edit: src/parser.py",
        unread=2,
        last="I take the lexer; nova keeps the parser",
        last_seq=39,
        has_terminal=True,
    ),
    _row(
        "mira-tests",
        "active",
        "codex",
        1,
        parent="mira",
        doing="Bash: make test",
    ),
    _row("nova", "active", "gemini", 7, waits_for="the stick of shop", last="please rebase on main"),
)

_WAITING = (
    Attention(
        key="held/41",
        kind="held",
        who="nova",
        what="please rebase on main",
        since=NOW - 8 * _MINUTE,
        why="A brake holds it: more than 30 messages a minute from nova to one agent. "
        "Only a person can release it.",
        seq=41,
        to=("@mira",),
        actions=(
            Action(word="release", command=("pal", "release", "41")),
            Action(word="show", command=("pal", "show", "41")),
        ),
    ),
    Attention(
        key="request/42",
        kind="request",
        who="kilo",
        what="which branch do we release from?",
        since=NOW - 5 * _MINUTE,
        why="kilo asked you and has no reply yet.",
        seq=42,
        actions=(
            Action(word="reply", command=("pal", "send", "--reply-to", "42")),
            Action(word="show", command=("pal", "show", "42")),
        ),
    ),
    Attention(
        key="permission/3f9c2a1",
        kind="permission",
        who="luna",
        what="Bash: make install",
        since=NOW - 12_000,
        why="luna waits for your decision. If there is none in time, the request is denied.",
        id="3f9c2a1",
        actions=(
            Action(word="approve", command=("pal", "approve", "3f9c2a1")),
            Action(word="deny", command=("pal", "deny", "3f9c2a1")),
        ),
    ),
)

_PERMISSION = PermissionPage(
    seq=48,
    id="3f9c2a1",
    agent="luna",
    tool="Bash",
    text="Bash: make install",
    input='{\n  "command": "make install",\n  "description": "Install the package for all users"\n}',
    digest="9b1c44e07d",
    since=NOW - 12_000,
    until=NOW + 108_000,
)


def _add_talks(bus: FakeBus) -> None:
    """Add what was said: in the room, between agents, and with the person."""

    def say(key: str, title: str, seq: int, minutes: int, sender: str, text: str, **fields: object) -> None:
        bus.say(key, seq, text, sender=sender, ts=NOW - minutes * _MINUTE, **fields)
        row = bus.rows[key]
        bus.rows[key] = msgspec.structs.replace(row, title=title, ts=NOW - minutes * _MINUTE)

    def marks(*found: Mark) -> object:
        return msgspec.to_builtins(found)

    seen = Mark(name="luna", state="seen")
    say(
        SHOP,
        "shop",
        36,
        14,
        "luna",
        "the parser test is red on main",
        room="shop-x4kd",
        marks=marks(Mark(name="mira", state="seen"), Mark(name="nova", state="answered")),
    )
    say(
        "@human@mira",
        "mira",
        38,
        12,
        "human",
        "who takes the lexer?",
        to=["@mira"],
        intent="request",
        marks=marks(Mark(name="mira", state="answered")),
    )
    say(
        "@human@mira",
        "mira",
        39,
        11,
        "mira",
        "I take the lexer; nova keeps the parser",
        to=["@human"],
        reply_to=38,
        quote="who takes the lexer?",
        marks=marks(Mark(name="human", state="seen")),
    )
    say(
        "@mira@nova",
        "mira and nova",
        41,
        8,
        "nova",
        "please rebase on main",
        to=["@mira"],
        marks=marks(Mark(name="mira", state="held", reason=_BRAKE)),
    )
    say(
        KILO,
        "kilo",
        42,
        5,
        "kilo",
        "which branch do we release from?",
        to=["@human"],
        intent="request",
        is_unread=True,
        marks=marks(Mark(name="human", state="queued", reason=_UNREAD)),
    )
    say(
        KILO,
        "kilo",
        43,
        4,
        "human",
        "From release-2. Tell luna when the tag is there: the tests of the parser must be green first.",
        to=["@kilo", "@luna"],
        thread="release",
        marks=marks(seen, Mark(name="kilo", state="queued", reason=_NOT_FETCHED)),
    )


def _add_rooms(bus: FakeBus) -> None:
    """Add a room with everything, and one that is quiet."""
    bus.room("shop", "luna", "mira", "nova", stick="owned", owner="mira", lease_until=NOW + 272_000)
    bus.room("docs", "kilo")
    members = (
        RoomMember(name="luna", state="blocked", is_present=True, last_turn=11),
        RoomMember(name="mira", state="active", is_present=True, is_owner=True, last_turn=12),
        RoomMember(name="nova", state="active", is_present=True, rank=1),
    )
    handoff = {"status": "the lexer is done", "next": ["make the parser test green"], "files": ["lexer.py"]}
    bus.rooms["shop"] = msgspec.structs.replace(
        bus.rooms["shop"],
        turn=12,
        members=members,
        handoffs=(RoomHandoff(seq=40, ts=NOW - 9 * _MINUTE, sender="luna", to="mira", handoff=handoff),),
        notes=(RoomNote(id="n1", ts=NOW - 30 * _MINUTE, sender="luna", text="CI has no libpq"),),
        tasks=(RoomTask(id="t1", number=3, title="make the parser test green", status="open"),),
    )


_LOG = (
    (29, "status", "luna", (), "luna is active: Read src/parser.py"),
    (30, "join", "mira", (), "mira joined as worker in /home/ada/shop"),
    (36, "message", "luna", (SHOP,), "the parser test is red on main"),
    (37, "claim", "mira", (), "mira has the stick of shop"),
    (38, "message", "human", ("@mira",), "who takes the lexer?"),
    (39, "message", "mira", ("@human",), "I take the lexer; nova keeps the parser"),
    (40, "handoff", "luna", ("@mira",), "status: the lexer is done; next: make the parser test green"),
    (41, "message", "nova", ("@mira",), "please rebase on main"),
    (42, "message", "kilo", ("@human",), "which branch do we release from?"),
    (43, "message", "human", ("@kilo", "@luna"), "From release-2. Tell luna when the tag is there."),
    (44, "delivery", "palaver", ("@luna",), "#43 was submitted to luna by the terminal lane"),
    (45, "delivery", "palaver", ("@luna",), "#43 was seen by luna"),
    (46, "message", "kilo", ("@mira",), "please review the parser when you have a minute"),
    (47, "status", "luna", (), "luna is blocked: Bash: make install"),
    (48, "permission.asked", "luna", ("@human",), "luna asks: Bash: make install"),
)


def _log(question: AskLog) -> ViewValue:
    last = question.at or 48
    rows = tuple(
        _event(*row, search=question.search)
        for row in _LOG
        if row[0] <= last and question.search in row[4] and (not question.before or row[0] < question.before)
    )
    return LogPage(seq=last, first=29, rows=rows)


def _event(
    seq: int, type_: str, sender: str, to: tuple[str, ...], text: str, *, search: str = ""
) -> EventRow:
    at = text.find(search) if search else -1
    hits = ((at, at + len(search)),) if at >= 0 else ()
    ts = NOW - (48 - seq) * _MINUTE
    return EventRow(seq=seq, ts=ts, type=type_, sender=sender, to=to, text=text, hits=hits)
