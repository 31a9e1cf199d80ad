"""Automatic turns: their configuration, their requests, and the jobs of the runner. Pure.

An automatic turn runs the harness of an agent for a batch of messages, without a person. The daemon decides
which batch is due. The runner, a client that a person starts, runs the triage and the turn.
"""

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from palaver.protocol.events import AutoTurnStarted
from palaver.protocol.paths import MAIN, PLUS, split_mailbox

AUTO_RUN: Final = "autoRun"
"""The key of the configuration, in `setting.changed` and in the files of the path broker."""
TURN_LANE: Final = "turn"
"""The lane of messages that an automatic turn carries."""
DEFAULT_MODEL: Final = "haiku"
"""The default model of the triage."""

TRIES: Final = 3
"""How often a batch is tried before it is held."""
LIMIT_OUTPUT: Final = 20_000
"""Characters of a reply that are stored with its turn."""


class TurnConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The configuration of the automatic turns of one session, with every default filled in."""

    enabled: bool = False
    triage_model: str = DEFAULT_MODEL
    debounce_ms: int = 3_000
    max_batch_size: int = 20
    triage_timeout_ms: int = 30_000
    execution_timeout_ms: int = 300_000
    accept: tuple[str, ...] = ()
    """Commands and sources that start a turn without a triage."""
    reject: tuple[str, ...] = ()
    """Commands and sources that start no turn."""


_HARNESS_SESSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,255}")


def is_harness_session(text: str) -> bool:
    """Return whether a text can be a harness's id of a session: an argument that is never an option."""
    return _HARNESS_SESSION.fullmatch(text) is not None


# --------------------
# Which sessions run, and whether their automatic turns are on.


def session_of_mailbox(mailbox: str) -> tuple[str, str]:
    """Return the agent and the session that run for a mailbox. An agent's own mailbox belongs to `main`."""
    agent, session = split_mailbox(mailbox)
    return agent, session or MAIN


def turn_targets(mailboxes: Sequence[str]) -> tuple[str, ...]:
    """Return the mailboxes of a message that start a turn: every session that received it.

    An agent's own mailbox starts one only if none of the agent's sessions received the message.
    """
    handled = {agent for agent, session in map(split_mailbox, mailboxes) if session}
    return tuple(one for one in mailboxes if PLUS in one or one not in handled)


def is_on(session_value: object, agent_value: object) -> bool:
    """Return whether automatic turns are on, from the stored values of a session and of its agent.

    A boolean decides, and so does an object or a list, which is on unless `enabled` is false. Any other value
    of a session means that the value of its agent decides; any other value of an agent means off.
    """
    for value in (session_value, agent_value):
        if isinstance(value, bool):
            return value
        if isinstance(value, dict):
            return value.get("enabled") is not False
        if isinstance(value, list):
            return True
    return False


# --------------------
# Requests.


class BatchMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a batch: its seq, and the mailbox whose copy it is."""

    seq: int
    mailbox: str


def batch_of_start(started: AutoTurnStarted) -> tuple[BatchMessage, ...]:
    """Return the messages of a turn from the event of its start."""
    # Lists of different lengths raise ValueError, and the fold skips the event: a cut list would lose
    # messages.
    copies = zip(started.messages, started.mailboxes, strict=True)
    return tuple(BatchMessage(seq=seq, mailbox=mailbox) for seq, mailbox in copies)


class SetAutoRun(msgspec.Struct, frozen=True, kw_only=True):
    """Change the configuration of an agent, or of one of its sessions. None removes it."""

    agent: str
    session: str = ""
    value: object = None


class StartTurn(msgspec.Struct, frozen=True, kw_only=True):
    """Start an automatic turn of a session that has no running one."""

    agent: str
    session: str
    batch: tuple[BatchMessage, ...]
    triage: str = ""
    """The outcome of the triage: `accepted` or `error`; empty without a triage."""
    text: str = ""
    """An additional text for the agent, from the caller of `pal turn run`."""
    started_by: str = ""
    """The caller of `pal turn run`; empty for a turn that messages started."""
    id: str = ""
    """The id of its event, derived from the request of a person; empty to draw one."""


class FinishTurn(msgspec.Struct, frozen=True, kw_only=True):
    """Store the result of a turn; its messages are seen."""

    turn: int
    """The seq of its start."""
    text: str = ""


class FailTurn(msgspec.Struct, frozen=True, kw_only=True):
    """Store that a turn ended without a result; its messages are queued again, or held after the last try."""

    turn: int
    error: str


class SkipTurn(msgspec.Struct, frozen=True, kw_only=True):
    """Store that a batch starts no turn. Its messages stay in their mailbox."""

    agent: str
    session: str
    batch: tuple[BatchMessage, ...]
    reason: str
    """`triage` or `reject list`."""
    output: str = ""
    """The output of the triage."""


TurnRequest: TypeAlias = SetAutoRun | StartTurn | FinishTurn | FailTurn | SkipTurn


# --------------------
# The jobs of the runner, as replies to its request `turn_next`.


class TriageJob(msgspec.Struct, frozen=True, kw_only=True, tag="triage", tag_field="kind"):
    """Ask a cheap model whether a batch deserves a turn. The prompt goes to the command's standard input."""

    job: int
    agent: str
    session: str
    command: tuple[str, ...]
    """The program and its arguments."""
    prompt: str
    timeout_ms: int
    cwd: str = ""


class TurnJob(msgspec.Struct, frozen=True, kw_only=True, tag="turn", tag_field="kind"):
    """Run one turn. The prompt goes to the standard input of the harness or of the configured command."""

    turn: int
    """The seq of its start."""
    agent: str
    session: str
    prompt: str
    timeout_ms: int
    harness: str = ""
    harness_session: str = ""
    """The session of the harness to resume; empty to begin a new one."""
    arguments: tuple[str, ...] = ()
    """The arguments that the agent's harness was started with before."""
    cwd: str = ""
    command: tuple[str, ...] = ()
    """A configured command that runs instead of the harness."""


class NoJob(msgspec.Struct, frozen=True, kw_only=True, tag="none", tag_field="kind"):
    """No job is due; ask again."""


RunnerJob: TypeAlias = TriageJob | TurnJob | NoJob


# --------------------
# The objects that commands show.


class TurnStats(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Counters of all automatic turns of a home, and how many sessions run or wait now."""

    triage_count: int = 0
    triage_accepted: int = 0
    triage_rejected: int = 0
    triage_errors: int = 0
    execution_count: int = 0
    execution_errors: int = 0
    messages_processed: int = 0
    active_turns: int = 0
    queued_sessions: int = 0
    pending_reruns: int = 0
