"""Why a message is not seen yet: a fixed code, a sentence, and what would deliver it. Pure.

`docs/receipts.md` has the table of codes, and a test compares it with `WAIT_CODES`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from palaver.protocol.agents import Agent
from palaver.protocol.display import ago
from palaver.protocol.events import AgentState, State
from palaver.protocol.message import HUMAN, LOST, Priority, format_priority
from palaver.protocol.paths import readable_mailbox, split_mailbox
from palaver.protocol.requests import USAGE_LIMIT
from palaver.protocol.turns import TURN_LANE
from palaver.protocol.views import WaitReason
from palaver.state.agents import find_mail, read_agent, read_entry
from palaver.state.paths import session_of_harness
from palaver.state.rows import LedgerEntry, MailKind, OpenMessage, Rows, kind_of_key, priority_of_key
from palaver.state.turns import is_queued_for_turn

# --------------------
# Reasons that other packages write into the ledger or into the state of an agent.

# The ledger contains these words, so changed ones would not be recognised in older entries.
USED_UP: Final = "usage limit"
"""How a detail, and the reason of held messages, begins when a usage limit is reached."""
USED_UP_ASKED: Final = f"{USED_UP}: "
"""How a detail begins when a person is asked what to do about a usage limit."""
ASLEEP: Final = "asleep"
"""The reason of messages for an idle agent that no lane can wake."""
COMPACTING: Final = "compacting"
"""The detail of an agent that compacts its context."""
TURN_FAILED: Final = "the automatic turn failed"
"""How the reason of messages begins that are held after the last try of their automatic turn."""

# --------------------
# The codes.

WAIT_CODES: Final = {
    "person": "The message is for the person, who has not read it.",
    "not_fetched": "The agent has not called 'pal recv', and nothing can wake it.",
    "asleep": "The agent is idle, and none of its lanes can wake it.",
    "working": "The agent is working, and its lanes reach it only when it is idle.",
    "busy": "The message has an idle priority, and the agent is not idle.",
    "blocked": "The agent waits for an answer in its own terminal.",
    "compacting": "The agent is compacting its context.",
    "paused": "A person has paused the agent.",
    "keyboard": "A person types in the agent's terminal, or its program does not read: only interrupts go.",
    "left": "The agent has left the bus.",
    "exited": "The agent has reported that it exited.",
    "away": "The agent's process has ended, or its connection is closed.",
    "client_away": "The client of the agent is not connected: a program, an IRC client or a bridge.",
    "client_busy": "The client of the agent is connected and has not taken the message yet.",
    "unknown": "No agent with this name has joined.",
    "no_subscription": "No subscription matches the path. The bus records the message as dead next.",
    "not_stored": "The bus could not read the message completely, so no mailbox has it.",
    "session": "The message is for a session in which the agent is not running now.",
    "handled": "Sessions of the agent have a copy; this one is only for 'pal recv'.",
    "quiet": "The message wakes no agent. It arrives with the next one that does.",
    "keys": "The message is keys for a terminal, which has not taken them yet.",
    "turn_queue": "The message waits for an automatic turn of the agent.",
    "turn_running": "An automatic turn of the agent works on the message.",
    "turn_failed": "The automatic turns with the message have failed, and a person must release it.",
    "not_recorded": "In a view of the past: the log has no lanes and connections of that time.",
    "in_line": "A lane is open, and the message goes out next or with the next step of the agent.",
    "submitted": "A lane carries the message, and there is no evidence yet that it was read.",
    "unconfirmed": "A lane carried the message and ended without evidence that it was read.",
    "brake": "A brake holds the message until a person releases it.",
    "usage_limit": "The agent has reached its usage limit.",
    "content_lost": "The content of the message is lost.",
    "gate_dialog": "A dialog is open in the agent's terminal.",
    "gate_draft": "Text that was not sent is in the agent's composer.",
    "gate_human": "A person has just pressed a key in the agent's terminal.",
    "gate_passthrough": "A person has the keyboard of the agent's terminal.",
    "gate_composer": "No composer can be seen on the screen of the agent's program.",
    "gate_prompt": "The agent's program shows no known prompt.",
    "gate_tool": "A process that the agent's program started reads the terminal.",
    "gate_secret": "The agent's terminal asks for a password or another secret.",
    "gate_shell": "A shell, or a program that passes keys on, is in the foreground of the terminal.",
    "gate_foreground": "Another program than the agent's is in the foreground of the terminal.",
    "gate_unreadable": "The screen of the agent's terminal cannot be read.",
    "gate_deaf": "No process waits for input in the agent's terminal.",
    "gate_starting": "The agent's program is starting.",
    "gate_native": "The agent's native lane is connecting.",
    "gate_paced": "A rate limit of the harness is in force.",
    "gate_gone": "No process reads the agent's terminal.",
    "gate_exited": "The agent's program, or its session, has ended.",
    "gate_closed": "The agent's lane accepts no messages now, for another reason.",
}
"""Every code, with its meaning."""

_GATE_OPENS: Final = "it goes out when that is over"
_GATES: Final = {
    "dialog": ("a dialog is open in the terminal of {name}", "an answer to the dialog: 'pal attach {name}'"),
    "draft": (
        "text that was not sent is in the composer of {name}",
        "sending or deleting that text: 'pal attach {name}'",
    ),
    "human": ("a person has just pressed a key in the terminal of {name}", _GATE_OPENS),
    "passthrough": (
        "a person has the keyboard of {name}",
        "the end of that: Ctrl-\\ d in 'pal attach {name}'",
    ),
    "composer": ("no composer can be seen on the screen of {name}", "a look at it: 'pal attach {name}'"),
    "prompt": (
        "the program of {name} shows no known prompt",
        "a description of the prompt, with 'pal run --prompt REGEX' or in a profile file",
    ),
    "tool": (
        "a process that the program of {name} started reads the terminal",
        "an answer to it: 'pal attach {name}'",
    ),
    "secret": (
        "the terminal of {name} asks for a password or another secret",
        "an answer to it: 'pal attach {name}'",
    ),
    "shell": (
        "a shell, or a program that passes keys on, is in the foreground of the terminal of {name}",
        "the end of that program: 'pal attach {name}'",
    ),
    "foreground": (
        "another program is in the foreground of the terminal of {name}",
        "the end of that program: 'pal attach {name}'",
    ),
    "unreadable": ("the screen of {name} cannot be read", "a look at it: 'pal attach {name}'"),
    "deaf": ("no process waits for input in the terminal of {name}", "the end of what its program does now"),
    "starting": ("the program of {name} is starting", "the first prompt of its program"),
    "native": ("the native lane of {name} is connecting", "that lane, or the terminal after a few seconds"),
    "hook": (
        "the bus was restarted, and no hook of {name} has reported since",
        "its next hook, or the terminal after a few seconds",
    ),
    "paced": ("a rate limit of the harness of {name} is in force", _GATE_OPENS),
    "gone": ("no process reads the terminal of {name}", "a new start of its program: 'pal resume {name}'"),
    "exited": (
        "the program of {name}, or its session, has ended",
        "a new start of its program: 'pal resume {name}'",
    ),
}
"""For each reason of a closed gate: the sentence, and what would open it."""


# --------------------
# The reason of one copy.


@dataclass(frozen=True, slots=True)
class LaneFact:
    """A lane of an agent now."""

    kind: str
    """native, hook or terminal"""
    is_open: bool = True
    is_paused: bool = False
    """It takes only interrupts."""
    reason: str = ""
    """Why it is closed or paused: one word."""
    wakes_idle: bool = False
    reaches_busy: bool = False


class WaitFacts(Protocol):
    """Facts about recipients that are not in the rows."""

    @property
    def now_ms(self) -> int:
        """The time, in Unix milliseconds."""
        ...

    def is_present(self, name: str) -> bool:
        """Return whether an agent can be reached now."""
        ...

    def lanes(self, name: str) -> Sequence[LaneFact] | None:
        """Return the lanes of an agent, the best one first; None if they are not known, as in the past."""
        ...


def read_wait(
    rows: Rows, seq: int, mailbox: str, facts: WaitFacts, *, is_path: bool = False
) -> WaitReason | None:
    """Return why one copy of a message is not seen yet; None only if its state is final.

    `mailbox` is an agent, the person, or a session as `agent+session`; with `is_path` a path without a
    subscription.
    """
    entry, found = read_entry(rows, seq, mailbox), None if is_path else find_mail(rows, mailbox, seq)
    if entry is None and found is None:
        return _no_copy(mailbox, is_path=is_path)
    name, session = split_mailbox(mailbox)
    agent = read_agent(rows, name)
    key, mail = (None, None) if found is None else found
    running = "" if agent is None or not session else session_of_harness(rows, name, agent.session)
    return explain_wait(
        seq,
        mailbox,
        entry=entry,
        mail=mail,
        agent=agent,
        priority=Priority.NORMAL if key is None else priority_of_key(key),
        lanes=facts.lanes(name),
        is_present=facts.is_present(name),
        now_ms=facts.now_ms,
        kind=MailKind.WAKING if key is None else kind_of_key(key),
        is_for_turn=is_queued_for_turn(rows, mailbox, seq),
        is_in_session=session == running,
    )


def _no_copy(mailbox: str, *, is_path: bool) -> WaitReason:
    """Explain a message that is in no mailbox, and of which the ledger has no line yet."""
    if is_path:
        return WaitReason(
            code="no_subscription",
            text=f"no agent is subscribed to {mailbox}",
            moves="the bus records it as dead next, and 'pal dead' lists it",
        )
    name = readable_mailbox(mailbox)
    return WaitReason(
        code="not_stored",
        text=f"a part of the message could not be read, so it is not in the mailbox of {name}",
        moves="the sender sends it again; 'pal doctor' counts such events",
    )


def explain_wait(
    seq: int,
    mailbox: str,
    *,
    entry: LedgerEntry | None,
    mail: OpenMessage | None,
    agent: Agent | None,
    priority: Priority,
    lanes: Sequence[LaneFact] | None,
    is_present: bool,
    now_ms: int,
    kind: MailKind = MailKind.WAKING,
    is_for_turn: bool = False,
    is_in_session: bool = True,
) -> WaitReason | None:
    """Return why one copy of a message is not seen yet; None if its state is final.

    `entry` is None while it is queued; `is_for_turn`: an automatic turn takes it; `is_in_session`: the agent
    runs in the session that it is for.
    """
    copy = _Copy(seq, mailbox, mail, agent, priority, lanes, now_ms)
    state = State.QUEUED if entry is None else entry.state
    if state == State.SUBMITTED and entry is not None:
        return copy.submitted(entry)
    if state == State.HELD and entry is not None:
        return copy.held(entry)
    if state != State.QUEUED:
        return None
    # Each step assumes that the ones before it found nothing, for example that there is an agent.
    return (
        copy.kept_apart(kind, is_for_turn=is_for_turn, is_in_session=is_in_session)
        or copy.unreachable(is_present=is_present)
        or copy.not_now(kind)
        or copy.on_lanes(kind)
    )


@dataclass(frozen=True, slots=True)
class _Copy:
    """One copy of a message, with everything that decides about it."""

    seq: int
    mailbox: str
    mail: OpenMessage | None
    agent: Agent | None
    priority: Priority
    lanes: Sequence[LaneFact] | None
    now_ms: int

    @property
    def name(self) -> str:
        return split_mailbox(self.mailbox)[0]

    def submitted(self, entry: LedgerEntry) -> WaitReason:
        """Explain a message on a lane."""
        name = readable_mailbox(self.mailbox)
        if entry.lane == TURN_LANE:
            return self._because(
                "turn_running", f"an automatic turn of {name} works on it", "the end of that turn"
            )
        lane = f"the {entry.lane} lane" if entry.lane else "a lane"
        if entry.unconfirmed:
            return self._because(
                "unconfirmed",
                f"{lane} carried it to {name}, and nothing proves that {name} has read it",
                f"a person sends it again with 'pal redeliver {self.seq}', and it may then arrive twice",
            )
        since = ago(max(0, self.now_ms - entry.submitted))
        return self._because(
            "submitted",
            f"{lane} has carried it to {name} for {since}, without evidence yet that {name} has read it",
            f"evidence of that lane, for example the next step of {name}",
        )

    def held(self, entry: LedgerEntry) -> WaitReason:
        """Explain a held message: by the gate of a lane, by a usage limit, or until a person releases it."""
        if self.mail is not None and self.mail.is_gated:
            return self._asleep() if entry.reason == ASLEEP else self._gate(entry.reason)
        release = f"a person releases it with 'pal release {self.seq}'"
        if entry.reason.startswith(USED_UP):
            return self._limited(entry.reason)
        if entry.reason == LOST:
            moves = f"its file in blobs/, which 'pal doctor' names; then {release}"
            return self._because("content_lost", LOST, moves)
        if entry.reason.startswith(TURN_FAILED):
            return self._because("turn_failed", entry.reason, release)
        return self._because("brake", f"a brake holds it: {entry.reason or 'no reason is known'}", release)

    def kept_apart(self, kind: MailKind, *, is_for_turn: bool, is_in_session: bool) -> WaitReason | None:
        """Explain a message that no lane carries, whatever its agent does."""
        name = self.name
        if name == HUMAN:
            return self._because("person", "the person has not read it", "'pal ui', 'pal chat' or 'pal recv'")
        if kind is MailKind.HANDLED:
            text = f"sessions of {name} have a copy of it, and this one is only for 'pal recv'"
            return self._because("handled", text, f"{name} calls 'pal recv'")
        if is_for_turn:
            return self._because(
                "turn_queue",
                f"it waits for an automatic turn of {readable_mailbox(self.mailbox)}",
                "the runner of turns: 'pal turn start'",
            )
        if self.agent is None:
            return self._because(
                "unknown", f"no agent with the name {name} has joined", f"an agent joins as {name}"
            )
        if not is_in_session:
            session = split_mailbox(self.mailbox)[1]
            text = f"it is for the session {session} of {name}, which is in another session now"
            return self._because("session", text, f"{name} continues in the session {session}")
        return None

    def unreachable(self, *, is_present: bool) -> WaitReason | None:
        """Explain a message for an agent that is not there."""
        agent, name = self.agent, self.name
        assert agent is not None  # `kept_apart` has explained the others
        again = (
            f"'pal resume {name}', or an agent that joins as {name}" if agent.argv else f"{name} joins again"
        )
        if agent.left:
            why = f" ({agent.detail})" if agent.detail not in ("", "left") else ""
            return self._because("left", f"{name} has left the bus{why}", again)
        if agent.link:
            moves = f"the client of {name} connects and takes it"
            if not is_present:
                return self._because("client_away", f"the client of {name} is not connected", moves)
            return None
        if agent.state == AgentState.EXITED:
            return self._because("exited", f"{name} has reported that it exited", again)
        if not is_present:
            text = f"the process of {name} has ended, or its connection is closed"
            return self._because("away", text, again)
        return None

    def not_now(self, kind: MailKind) -> WaitReason | None:
        """Explain a message that the state of its agent stops."""
        agent, name = self.agent, self.name
        assert agent is not None
        if agent.state == AgentState.BLOCKED and agent.detail.startswith(USED_UP):
            return self._limited(agent.detail)
        # An interrupt is stopped by a usage limit, but by no other state of its agent.
        if self.priority is Priority.INTERRUPT:
            return None
        if agent.paused:
            return self._because("paused", f"{name} is paused", f"'pal unpause {name}'")
        if agent.state == AgentState.BLOCKED:
            why = f": {agent.detail}" if agent.detail else ""
            moves = f"an answer in the terminal of {name}"
            moves += f": 'pal attach {name}'" if agent.holder else ""
            return self._because("blocked", f"{name} is blocked{why}", moves)
        if agent.state == AgentState.ACTIVE and agent.detail == COMPACTING:
            return self._because("compacting", f"{name} is compacting its context", "the end of that")
        if self.priority is not Priority.NORMAL and agent.state in (AgentState.ACTIVE, AgentState.STARTING):
            word = format_priority(self.priority)
            text = f"{name} is {agent.state}, and the message has the priority {word}"
            return self._because("busy", text, f"{name} goes idle")
        if kind is MailKind.QUIET:
            text = f"it was sent to the room and wakes no member, so it waits for the next message to {name}"
            return self._because("quiet", text, f"another message that wakes {name}, or its own 'pal recv'")
        return None

    def on_lanes(self, kind: MailKind) -> WaitReason:
        """Explain a message that could go now, as far as its agent is concerned."""
        agent, name = self.agent, self.name
        assert agent is not None
        if self.mail is not None and self.mail.raw:
            text = f"the terminal of {name} has not taken the keys yet"
            return self._because(
                "keys", text, "the terminal; keys that it does not take in 10 seconds are dropped"
            )
        if self.lanes is None:
            text = f"{name} had not taken it yet; the log has no lanes and connections of that time"
            return self._because("not_recorded", text, f"the next step of {name}")
        if agent.link:
            text = f"the client of {name} is connected and has not taken it yet"
            return self._because("client_busy", text, f"the client of {name} takes it")
        if not self.lanes:
            text = f"{name} has not called 'pal recv', and nothing can wake it"
            return self._because("not_fetched", text, f"{name} calls 'pal recv'")
        idle = agent.state == AgentState.IDLE
        able = [lane for lane in self.lanes if (lane.wakes_idle if idle else lane.reaches_busy)]
        if not able and idle:
            return self._asleep()
        if not able:
            text = f"{name} is working, and its lanes reach it only when it is idle"
            return self._because("working", text, f"{name} goes idle, or calls 'pal recv'")
        best = able[0]
        if not best.is_open:
            return self._gate(best.reason)
        if best.is_paused and self.priority is not Priority.INTERRUPT:
            text = f"a person has the keyboard of {name}, or its program does not read: only interrupts go"
            return self._because("keyboard", text, "the end of that")
        return self._because(
            "in_line",
            f"the {best.kind} lane of {name} is open, and it goes out after the messages before it",
            f"the next step of {name}",
        )

    def _asleep(self) -> WaitReason:
        text = f"{self.name} is idle, and nothing can wake it"
        return self._because("asleep", text, f"the next prompt of {self.name}, or its own 'pal recv'")

    def _limited(self, reason: str) -> WaitReason:
        rest = reason.removeprefix(USED_UP).lstrip(":, ")
        when = f" ({rest})" if rest else ""
        return self._because(
            "usage_limit", f"{self.name} has reached its usage limit{when}", "the end of that limit"
        )

    def _gate(self, reason: str) -> WaitReason:
        name = self.name
        if reason == COMPACTING:
            return self._because("compacting", f"{name} is compacting its context", "the end of that")
        if reason == USAGE_LIMIT:
            return self._limited(USED_UP)
        # A holder reports the reason as a word. It outlives the daemon, so it may be of another version.
        known = _GATES.get(reason)
        if known is None:
            text = f"the lane of {name} accepts no messages now ({reason or 'no reason is known'})"
            return self._because("gate_closed", text, _GATE_OPENS)
        return self._because(f"gate_{reason}", known[0].format(name=name), known[1].format(name=name))

    def _because(self, code: str, text: str, moves: str) -> WaitReason:
        """Return a reason, with the time that is left if the message expires."""
        expires = 0 if self.mail is None else self.mail.expires
        if expires:
            text += f"; it expires in {ago(max(0, expires - self.now_ms))}"
        return WaitReason(code=code, text=text, moves=moves)
