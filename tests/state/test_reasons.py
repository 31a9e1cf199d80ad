"""Why a message waits: every code has a case, a sentence and what would deliver the message."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.state.test_conversations import folded, message, other, report

from palaver.log.memory import MemoryRows
from palaver.protocol.agents import Agent
from palaver.protocol.message import LOST, Priority
from palaver.protocol.turns import TURN_LANE
from palaver.protocol.views import WaitReason
from palaver.state.fold import apply
from palaver.state.reasons import WAIT_CODES, LaneFact, explain_wait, read_wait
from palaver.state.rows import LedgerEntry, MailKind, OpenMessage
from palaver.terminal.gates import REASONS

NOW_MS = 100_000
NATIVE = LaneFact("native", wakes_idle=True, reaches_busy=True)
HOOK = LaneFact("hook", reaches_busy=True)


@dataclass
class Case:
    """One copy of a message for nova, which is idle and present unless a test says otherwise."""

    entry: LedgerEntry | None = None
    agent: Agent | None = field(default_factory=lambda: Agent(name="nova", base="nova"))
    mailbox: str = "nova"
    mail: OpenMessage | None = field(default_factory=lambda: OpenMessage(seq=42, state="queued"))
    priority: Priority = Priority.NORMAL
    lanes: Sequence[LaneFact] | None = ()
    is_present: bool = True
    kind: MailKind = MailKind.WAKING
    is_for_turn: bool = False
    is_in_session: bool = True

    def reason(self) -> WaitReason | None:
        return explain_wait(
            42,
            self.mailbox,
            entry=self.entry,
            mail=self.mail,
            agent=self.agent,
            priority=self.priority,
            lanes=self.lanes,
            is_present=self.is_present,
            now_ms=NOW_MS,
            kind=self.kind,
            is_for_turn=self.is_for_turn,
            is_in_session=self.is_in_session,
        )


def nova(**fields: object) -> Agent:
    return Agent(name="nova", base="nova", **fields)  # type: ignore[arg-type]  # fields of an agent


def held(reason: str, *, is_gated: bool = False) -> dict[str, object]:
    mail = OpenMessage(seq=42, state="held", is_gated=is_gated)
    return {"entry": LedgerEntry(state="held", ts=1, reason=reason), "mail": mail}


def on_lane(**fields: object) -> dict[str, object]:
    return {"entry": LedgerEntry(state="submitted", ts=1, submitted=40_000, **fields), "mail": None}  # type: ignore[arg-type]  # its fields


def closed(reason: str) -> LaneFact:
    return LaneFact("terminal", is_open=False, reason=reason, wakes_idle=True, reaches_busy=True)


CASES: list[tuple[Case, str, str, str]] = [
    (
        Case(mailbox="human", agent=None),
        "person",
        "the person has not read it",
        "'pal ui', 'pal chat' or 'pal recv'",
    ),
    (
        Case(),
        "not_fetched",
        "nova has not called 'pal recv', and nothing can wake it",
        "nova calls 'pal recv'",
    ),
    (
        Case(lanes=[HOOK]),
        "asleep",
        "nova is idle, and nothing can wake it",
        "the next prompt of nova, or its own 'pal recv'",
    ),
    (
        Case(**held("asleep", is_gated=True)),  # type: ignore[arg-type]  # fields of a case
        "asleep",
        "nova is idle, and nothing can wake it",
        "the next prompt of nova, or its own 'pal recv'",
    ),
    (
        Case(agent=nova(state="active"), lanes=[LaneFact("native", wakes_idle=True)]),
        "working",
        "nova is working, and its lanes reach it only when it is idle",
        "nova goes idle, or calls 'pal recv'",
    ),
    (
        Case(agent=nova(state="active"), priority=Priority.IDLE_FIRST, lanes=[NATIVE]),
        "busy",
        "nova is active, and the message has the priority idle-first",
        "nova goes idle",
    ),
    (
        Case(agent=nova(state="blocked", detail="permission: Bash", holder="h"), lanes=[NATIVE]),
        "blocked",
        "nova is blocked: permission: Bash",
        "an answer in the terminal of nova: 'pal attach nova'",
    ),
    (
        Case(agent=nova(state="blocked")),
        "blocked",
        "nova is blocked",
        "an answer in the terminal of nova",
    ),
    (
        Case(agent=nova(state="active", detail="compacting"), lanes=[NATIVE]),
        "compacting",
        "nova is compacting its context",
        "the end of that",
    ),
    (
        Case(lanes=[closed("compacting")]),
        "compacting",
        "nova is compacting its context",
        "the end of that",
    ),
    (Case(agent=nova(paused=True)), "paused", "nova is paused", "'pal unpause nova'"),
    (
        Case(lanes=[LaneFact("terminal", is_paused=True, wakes_idle=True)]),
        "keyboard",
        "a person has the keyboard of nova, or its program does not read: only interrupts go",
        "the end of that",
    ),
    (
        Case(agent=nova(left=True, state="exited", detail="exited with 0", argv=("claude",))),
        "left",
        "nova has left the bus (exited with 0)",
        "'pal resume nova', or an agent that joins as nova",
    ),
    (
        Case(agent=nova(left=True, state="exited"), is_present=False),
        "left",
        "nova has left the bus",
        "nova joins again",
    ),
    (
        Case(agent=nova(state="exited")),
        "exited",
        "nova has reported that it exited",
        "nova joins again",
    ),
    (
        Case(is_present=False),
        "away",
        "the process of nova has ended, or its connection is closed",
        "nova joins again",
    ),
    (
        Case(agent=nova(link=True), is_present=False),
        "client_away",
        "the client of nova is not connected",
        "the client of nova connects and takes it",
    ),
    (
        Case(agent=nova(link=True)),
        "client_busy",
        "the client of nova is connected and has not taken it yet",
        "the client of nova takes it",
    ),
    (
        Case(agent=None),
        "unknown",
        "no agent with the name nova has joined",
        "an agent joins as nova",
    ),
    (
        Case(mailbox="nova+mon", is_in_session=False, lanes=[NATIVE]),
        "session",
        "it is for the session mon of nova, which is in another session now",
        "nova continues in the session mon",
    ),
    (
        Case(kind=MailKind.HANDLED, lanes=[NATIVE]),
        "handled",
        "sessions of nova have a copy of it, and this one is only for 'pal recv'",
        "nova calls 'pal recv'",
    ),
    (
        Case(kind=MailKind.QUIET, lanes=[NATIVE]),
        "quiet",
        "it was sent to the room and wakes no member, so it waits for the next message to nova",
        "another message that wakes nova, or its own 'pal recv'",
    ),
    (
        Case(mail=OpenMessage(seq=42, state="queued", raw=True), priority=Priority.INTERRUPT),
        "keys",
        "the terminal of nova has not taken the keys yet",
        "the terminal; keys that it does not take in 10 seconds are dropped",
    ),
    (
        Case(is_for_turn=True),
        "turn_queue",
        "it waits for an automatic turn of nova",
        "the runner of turns: 'pal turn start'",
    ),
    (
        Case(**on_lane(lane=TURN_LANE)),  # type: ignore[arg-type]
        "turn_running",
        "an automatic turn of nova works on it",
        "the end of that turn",
    ),
    (
        Case(**held("the automatic turn failed 3 times, last as #7: no model")),  # type: ignore[arg-type]
        "turn_failed",
        "the automatic turn failed 3 times, last as #7: no model",
        "a person releases it with 'pal release 42'",
    ),
    (
        Case(lanes=None),
        "not_recorded",
        "nova had not taken it yet; the log has no lanes and connections of that time",
        "the next step of nova",
    ),
    (
        Case(lanes=[NATIVE]),
        "in_line",
        "the native lane of nova is open, and it goes out after the messages before it",
        "the next step of nova",
    ),
    (
        Case(**on_lane(lane="hook")),  # type: ignore[arg-type]
        "submitted",
        "the hook lane has carried it to nova for 1m, without evidence yet that nova has read it",
        "evidence of that lane, for example the next step of nova",
    ),
    (
        Case(**on_lane(lane="terminal", unconfirmed=True)),  # type: ignore[arg-type]
        "unconfirmed",
        "the terminal lane carried it to nova, and nothing proves that nova has read it",
        "a person sends it again with 'pal redeliver 42', and it may then arrive twice",
    ),
    (
        Case(**on_lane(unconfirmed=True)),  # type: ignore[arg-type]
        "unconfirmed",
        "a lane carried it to nova, and nothing proves that nova has read it",
        "a person sends it again with 'pal redeliver 42', and it may then arrive twice",
    ),
    (
        Case(**held("7 replies between agents without a person in between")),  # type: ignore[arg-type]
        "brake",
        "a brake holds it: 7 replies between agents without a person in between",
        "a person releases it with 'pal release 42'",
    ),
    (
        Case(**held("")),  # type: ignore[arg-type]
        "brake",
        "a brake holds it: no reason is known",
        "a person releases it with 'pal release 42'",
    ),
    (
        Case(**held("usage limit until 2026-01-02 10:00 UTC")),  # type: ignore[arg-type]
        "usage_limit",
        "nova has reached its usage limit (until 2026-01-02 10:00 UTC)",
        "the end of that limit",
    ),
    (
        Case(agent=nova(state="blocked", detail="usage limit"), priority=Priority.INTERRUPT),
        "usage_limit",
        "nova has reached its usage limit",
        "the end of that limit",
    ),
    (
        Case(lanes=[closed("usage_limit")]),
        "usage_limit",
        "nova has reached its usage limit",
        "the end of that limit",
    ),
    (
        Case(**held(LOST)),  # type: ignore[arg-type]
        "content_lost",
        "its content is lost",
        "its file in blobs/, which 'pal doctor' names; then a person releases it with 'pal release 42'",
    ),
    (
        Case(**held("dialog", is_gated=True)),  # type: ignore[arg-type]
        "gate_dialog",
        "a dialog is open in the terminal of nova",
        "an answer to the dialog: 'pal attach nova'",
    ),
    (
        Case(lanes=[closed("tool"), NATIVE]),
        "gate_tool",
        "a process that the program of nova started reads the terminal",
        "an answer to it: 'pal attach nova'",
    ),
    (
        Case(lanes=[closed("new word")]),
        "gate_closed",
        "the lane of nova accepts no messages now (new word)",
        "it goes out when that is over",
    ),
    (
        Case(lanes=[closed("")]),
        "gate_closed",
        "the lane of nova accepts no messages now (no reason is known)",
        "it goes out when that is over",
    ),
]


@pytest.mark.parametrize(
    ("case", "code", "text", "moves"), CASES, ids=[f"{one[1]}-{n}" for n, one in enumerate(CASES)]
)
def test_waiting_message_is_explained(case: Case, code: str, text: str, moves: str) -> None:
    assert case.reason() == WaitReason(code=code, text=text, moves=moves)


@pytest.mark.parametrize("reason", [*REASONS, "native", "paced"])
def test_each_reason_of_a_closed_gate_has_a_code(reason: str) -> None:
    found = Case(lanes=[closed(reason)]).reason()

    assert found is not None
    assert found.code == ("compacting" if reason == "compacting" else f"gate_{reason}")
    assert "nova" in found.text


def test_every_code_has_a_case() -> None:
    gates = {f"gate_{reason}" for reason in (*REASONS, "native", "paced") if reason != "compacting"}

    without_copy = {"no_subscription", "not_stored"}
    assert {code for _, code, _, _ in CASES} | gates | without_copy == set(WAIT_CODES)


@pytest.mark.parametrize("state", ["seen", "answered", "refused", "expired", "dead"])
def test_final_state_has_no_reason(state: str) -> None:
    assert Case(entry=LedgerEntry(state=state, ts=1)).reason() is None


def test_message_that_is_queued_again_is_explained_like_a_new_one() -> None:
    found = Case(entry=LedgerEntry(state="queued", ts=1, reason="redelivered by human")).reason()

    assert found is not None
    assert found.code == "not_fetched"


@pytest.mark.parametrize(
    "agent", [nova(paused=True), nova(state="blocked", detail="question"), nova(state="active")]
)
def test_interrupt_passes_every_state_of_an_agent(agent: Agent) -> None:
    paused = LaneFact("terminal", is_paused=True, wakes_idle=True, reaches_busy=True)

    found = Case(agent=agent, priority=Priority.INTERRUPT, lanes=[paused]).reason()

    assert found is not None
    assert found.code == "in_line"


def test_message_with_a_time_limit_says_when_it_expires() -> None:
    found = Case(mail=OpenMessage(seq=42, state="queued", expires=NOW_MS + 120_000)).reason()

    assert found is not None
    assert found.text == "nova has not called 'pal recv', and nothing can wake it; it expires in 2m"


# Read from the rows


class Facts:
    """Agents that are all present, without lanes unless a test adds some."""

    now_ms = NOW_MS

    def __init__(self, *lanes: LaneFact) -> None:
        self._lanes = lanes

    def is_present(self, name: str) -> bool:
        return True

    def lanes(self, name: str) -> Sequence[LaneFact]:
        return self._lanes


def joined(rows: MemoryRows, **fields: object) -> None:
    agent = {"name": "nova", "base": "nova", **fields}
    rows.change(apply(rows, other(90, "agent.hello", "nova", payload={"agent": agent})))


def code(rows: MemoryRows, seq: int, mailbox: str, *lanes: LaneFact) -> str | None:
    found = read_wait(rows, seq, mailbox, Facts(*lanes))
    return None if found is None else found.code


def test_reason_is_read_from_mail_ledger_and_agent() -> None:
    rows = folded(
        message(1, "luna", "nova", priority="idle"),
        message(2, "luna", "nova", wakes=[]),
        message(3, "luna", "nova"),
        report(4, "nova", "seen", 3),
    )
    joined(rows, state="active")

    assert [code(rows, seq, "nova", NATIVE) for seq in (1, 2, 3)] == ["busy", "quiet", None]


def test_copy_that_is_in_no_mailbox_is_explained() -> None:
    rows = folded(message(1, "luna", "nova"), report(2, "a/dead/path", "dead", 1))

    unread, path = read_wait(rows, 9, "nova", Facts()), read_wait(rows, 9, "a/b", Facts(), is_path=True)

    assert unread is not None
    assert path is not None
    assert (unread.code, path.code) == ("not_stored", "no_subscription")
    assert read_wait(rows, 1, "a/dead/path", Facts(), is_path=True) is None


def test_unconfirmed_message_is_explained_without_its_mail() -> None:
    rows = folded(
        message(1, "luna", "nova"),
        report(2, "nova", "submitted", 1, lane="hook"),
        report(3, "nova", "submitted", 1, unconfirmed=True),
    )

    assert code(rows, 1, "nova") == "unconfirmed"


def test_message_for_a_session_waits_until_the_agent_runs_in_it() -> None:
    rows = folded(message(1, "luna", "nova+mon"))
    assert code(rows, 1, "nova+mon", NATIVE) == "unknown"
    created = {"agent": "nova", "session": "mon", "harness_session": "s1"}
    rows.change(apply(rows, other(2, "session.created", "nova", payload=created)))

    joined(rows, harness="claude", session="s0")
    assert code(rows, 1, "nova+mon", NATIVE) == "session"
    joined(rows, harness="claude", session="s1")

    assert code(rows, 1, "nova+mon", NATIVE) == "in_line"


def test_message_that_starts_a_turn_waits_for_it() -> None:
    setting = {"key": "autoRun", "value": True, "old": None, "agent": "nova"}
    rows = folded(
        other(1, "setting.changed", "human", payload=setting),
        message(2, "luna", "nova"),
        message(3, "luna", "nova"),
        other(
            4,
            "turn.skipped",
            payload={"agent": "nova", "session": "main", "messages": [3], "reason": "triage"},
        ),
    )
    joined(rows)

    assert (code(rows, 2, "nova"), code(rows, 3, "nova")) == ("turn_queue", "not_fetched")


# The page


def test_page_about_receipts_has_every_code() -> None:
    page = Path("docs/receipts.md").read_text(encoding="utf-8")
    section = page.partition("## Why a message waits")[2].partition("\n## ")[0]

    rows = re.findall(r"^\| `([a-z_]+)` \| (.*) \|$", section, re.MULTILINE)

    assert dict(rows) == {code: re.sub(r"'(pal [^']+)'", r"`\1`", text) for code, text in WAIT_CODES.items()}
