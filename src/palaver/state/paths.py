"""Path subscriptions, sessions of agents, and dead letters, as rows of the fold. Pure.

path           when a mailbox was subscribed to a pattern; keys are `mailbox/pattern`
path_count     the number of path subscriptions of an agent, with those of its sessions
agent_session  sessions; the key is the mailbox
dead_cleared   the seq up to which the list of dead letters was cleared
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from palaver.protocol.envelope import Event, body_as
from palaver.protocol.events import (
    DeadLettersCleared,
    PathSubscribed,
    PathUnsubscribed,
    SessionCreated,
    SessionRemoved,
)
from palaver.protocol.paths import (
    LIMIT_SESSIONS,
    LIMIT_SUBSCRIPTIONS,
    MAIN,
    PLUS,
    PathSubscription,
    Session,
    mailbox_of,
)
from palaver.state.agents import read_agent
from palaver.state.rows import Change, Rows, decode_count, encode_row
from palaver.state.watches import walk

_PATHS: Final = "path"
_COUNTS: Final = "path_count"
_SESSIONS: Final = "agent_session"
_CLEARED: Final = "dead_cleared"
_AT_ONCE: Final = 1000


class _SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    title: str = ""
    created: int
    used: int
    harness_session: str = ""


_decode_session: Final = msgspec.json.Decoder(_SessionRow).decode


# --------------------
# Queries.


def read_path_subscriptions(rows: Rows, mailbox: str) -> tuple[PathSubscription, ...]:
    """Return the path subscriptions of an agent or session by the time at which they were added.

    Those of the same millisecond are in the order of their patterns.
    """
    found = rows.scan(_PATHS, f"{mailbox}/", limit=LIMIT_SUBSCRIPTIONS)
    made = (
        PathSubscription(pattern=key.removeprefix(f"{mailbox}/"), added_at=decode_count(value))
        for key, value in found
    )
    return tuple(sorted(made, key=lambda one: one.added_at))


def read_all_path_subscriptions(rows: Rows) -> Iterator[tuple[str, str]]:
    """Iterate over all path subscriptions: the mailbox and the pattern of each."""
    after = ""
    while page := rows.scan(_PATHS, "", after=after, limit=_AT_ONCE):
        for key, _ in page:
            # At the first slash: no mailbox has one, but most patterns do.
            mailbox, _, pattern = key.partition("/")
            yield mailbox, pattern
        after = page[-1][0]


def is_subscribed(rows: Rows, mailbox: str, pattern: str) -> bool:
    """Return whether a mailbox is subscribed to exactly this pattern."""
    return rows.get(_PATHS, f"{mailbox}/{pattern}") is not None


def count_path_subscriptions(rows: Rows, agent: str) -> int:
    """Return the number of path subscriptions of an agent, with those of its sessions."""
    value = rows.get(_COUNTS, agent)
    return 0 if value is None else decode_count(value)


def read_agent_sessions(rows: Rows, agent: str) -> tuple[Session, ...]:
    """Return the sessions of an agent, `main` first, the others by their id."""
    prefix = f"{agent}{PLUS}"
    # All of them: an older log, or one with imported sessions, may have more than the limit.
    ids = [key.removeprefix(prefix) for key, _ in walk(rows, _SESSIONS, prefix)]
    found = (read_agent_session(rows, agent, id_) for id_ in (MAIN, *(one for one in ids if one != MAIN)))
    return tuple(filter(None, found))


def has_most_sessions(rows: Rows, agent: str) -> bool:
    """Return whether an agent has as many sessions besides `main` as it may have."""
    found = rows.scan(_SESSIONS, f"{agent}{PLUS}", limit=LIMIT_SESSIONS + 1)
    return sum(key != mailbox_of(agent, MAIN) for key, _ in found) >= LIMIT_SESSIONS


def read_agent_session(rows: Rows, agent: str, session: str) -> Session | None:
    """Return one session of an agent, or None. `main` exists as soon as its agent does."""
    mailbox = mailbox_of(agent, session)
    value = rows.get(_SESSIONS, mailbox)
    if value is not None:
        row = _decode_session(value)
    elif session == MAIN:
        known = read_agent(rows, agent)
        joined = 0 if known is None else known.joined
        row = _SessionRow(created=joined, used=joined)
    else:
        return None
    return Session(
        id=session,
        title=row.title,
        is_default=session == MAIN,
        subscriptions=read_path_subscriptions(rows, mailbox),
        created_at=row.created,
        last_used_at=row.used,
        harness_session=row.harness_session or msgspec.UNSET,
    )


def session_of_harness(rows: Rows, agent: str, harness_session: str) -> str:
    """Return the session with a harness's own id: that is where its agent runs. `main` if none has it."""
    # An agent without such an id runs in `main`, whatever its sessions are.
    if harness_session:
        for session in read_agent_sessions(rows, agent):
            if session.harness_session == harness_session:
                return session.id
    return MAIN


def read_cleared(rows: Rows) -> int:
    """Return the seq up to which the list of dead letters was cleared; 0 for never."""
    value = rows.get(_CLEARED, "")
    return 0 if value is None else decode_count(value)


# --------------------
# The fold.


def fold_path_subscribed(rows: Rows, event: Event) -> list[Change]:
    """Return the changes of a new path subscription; it creates a missing session."""
    body = body_as(event, PathSubscribed)
    mailbox = mailbox_of(body.agent, body.session)
    added = body.added or event.ts
    changes = _used(rows, mailbox, added, is_created=True) if body.session else []
    # A repeat must not count twice.
    if is_subscribed(rows, mailbox, body.pattern):
        return changes
    changes.append((_PATHS, f"{mailbox}/{body.pattern}", encode_row(added)))
    return [*changes, _counted(rows, body.agent, 1)]


def fold_path_unsubscribed(rows: Rows, event: Event) -> list[Change]:
    """Return the changes of the end of a path subscription."""
    body = body_as(event, PathUnsubscribed)
    mailbox = mailbox_of(body.agent, body.session)
    if not is_subscribed(rows, mailbox, body.pattern):
        return []
    return [(_PATHS, f"{mailbox}/{body.pattern}", None), _counted(rows, body.agent, -1)]


def fold_session_created(rows: Rows, event: Event) -> list[Change]:
    """Return the changes of a new or changed session."""
    body = body_as(event, SessionCreated)
    mailbox = mailbox_of(body.agent, body.session)
    value = rows.get(_SESSIONS, mailbox)
    created = (body.created or event.ts) if value is None else _decode_session(value).created
    used = body.used or event.ts
    row = _SessionRow(title=body.title, created=created, used=used, harness_session=body.harness_session)
    return [(_SESSIONS, mailbox, encode_row(row))]


def fold_session_removed(rows: Rows, event: Event) -> list[Change]:
    """Return the changes of the end of a session: it and its subscriptions are removed."""
    body = body_as(event, SessionRemoved)
    mailbox = mailbox_of(body.agent, body.session)
    found = rows.scan(_PATHS, f"{mailbox}/", limit=LIMIT_SUBSCRIPTIONS)
    return [
        (_SESSIONS, mailbox, None),
        *((_PATHS, key, None) for key, _ in found),
        _counted(rows, body.agent, -len(found)),
    ]


def fold_dead_cleared(rows: Rows, event: Event) -> list[Change]:
    """Return the changes of a cleared list of dead letters."""
    up_to = body_as(event, DeadLettersCleared).up_to
    # Two callers may clear at the same time. The list must not grow again.
    return [(_CLEARED, "", encode_row(max(up_to, read_cleared(rows))))]


def session_used(rows: Rows, mailbox: str, ts: int) -> list[Change]:
    """Return the changes of a session that took messages; none for the mailbox of an agent."""
    return _used(rows, mailbox, ts, is_created=False)


def _used(rows: Rows, mailbox: str, ts: int, *, is_created: bool) -> list[Change]:
    value = rows.get(_SESSIONS, mailbox)
    if value is None:
        row = _SessionRow(created=ts, used=ts)
        return [(_SESSIONS, mailbox, encode_row(row))] if is_created else []
    known = _decode_session(value)
    # An imported subscription has the time of its source, which can be before the last use here.
    return [(_SESSIONS, mailbox, encode_row(msgspec.structs.replace(known, used=max(ts, known.used))))]


def _counted(rows: Rows, agent: str, step: int) -> Change:
    count = count_path_subscriptions(rows, agent) + step
    return (_COUNTS, agent, encode_row(count) if count else None)
