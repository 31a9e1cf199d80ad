"""The agent of a harness session, and whether the session is free for a new process."""

from collections.abc import Iterable

from palaver.doors.services import Services
from palaver.links.process import is_alive
from palaver.log.state import read_session
from palaver.model.agent import Agent


def free_session(services: Services, harness: str, session: str) -> str:
    """Return the session, or "" while a present agent is in it: two processes may share a conversation."""
    holder = holder_of_session(services, harness, session)
    if holder is None or not services.presence.is_present(holder.name):
        return session
    # Its process may have ended just now, before presence was updated.
    return session if holder.seat is not None and not is_alive(holder.seat) else ""


def holder_of_session(services: Services, harness: str, session: str) -> Agent | None:
    """Return the agent whose current session this is, present or not; None if there is no such agent."""
    name = read_session(services.log.rows, harness, session) if session else None
    known = services.broker.directory.get(name or "")
    return known if known is not None and known.session == session else None


def only_session(services: Services, harness: str, among: Iterable[str]) -> str:
    """Return the current session of the only agent that ever had one of these sessions; else "".

    Then the result does not depend on which of them the user chooses.
    """
    names = {name for session in among if (name := read_session(services.log.rows, harness, session))}
    known = services.broker.directory.get(next(iter(names))) if len(names) == 1 else None
    return known.session if known is not None else ""
