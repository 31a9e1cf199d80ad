"""Whose a harness's session is, and whether it is free: in one that somebody is in, one is somebody else."""

from collections.abc import Iterable

from palaver.doors.services import Services
from palaver.links.process import is_alive
from palaver.log.state import read_session
from palaver.model.agent import Agent


def free_session(services: Services, harness: str, session: str) -> str:
    """Give the session, or nothing while somebody is in it: one conversation may run in two processes."""
    holder = holder_of_session(services, harness, session)
    if holder is None or not services.presence.is_present(holder.name):
        return session
    # Its process can have ended just now, before anybody was told.
    return session if holder.seat is not None and not is_alive(holder.seat) else ""


def holder_of_session(services: Services, harness: str, session: str) -> Agent | None:
    """Give the agent whose session it is, away or not; None when it is nobody's, or its agent has another."""
    name = read_session(services.log.rows, harness, session) if session else None
    known = services.broker.directory.get(name or "")
    return known if known is not None and known.session == session else None


def only_session(services: Services, harness: str, among: Iterable[str]) -> str:
    """Give the session that an agent is in, or was, where of all these none was ever another's; else nothing.

    So whoever chooses from them goes on as that agent, whichever it is.
    """
    names = {name for session in among if (name := read_session(services.log.rows, harness, session))}
    known = services.broker.directory.get(next(iter(names))) if len(names) == 1 else None
    return known.session if known is not None else ""
