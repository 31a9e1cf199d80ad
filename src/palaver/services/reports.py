"""Read the last reports of holders that ended while no daemon was running.

A report is next to the agent's socket, `agents/<name>.report.json`. It is accepted only with the secret of
the agent, which only the agent's holder knows.
"""

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from palaver.errors import PalaverError, Unavailable
from palaver.protocol.agents import Agent, caller_for
from palaver.protocol.events import REPORT_END, ExitReport, Outcome
from palaver.protocol.lanes import Ability, LaneKind, OfferOutcome
from palaver.protocol.requests import Leave
from palaver.services.services import Services

_LIMIT_BYTES: Final = 1024 * 1024
_TERMINAL: Final = Ability(kind=LaneKind.TERMINAL, reaches_busy=True, wakes_idle=True)

_logger: Final = logging.getLogger("palaver.doors")


async def take_up_reports(services: Services) -> None:
    """Store the content of every report and remove its file. Keep a report that cannot be stored now."""
    for path in sorted((services.daemon.home / "agents").glob(f"*{REPORT_END}")):
        try:
            report = msgspec.json.decode(_read(path), type=ExitReport)
            await _take_up(services, report)
        except Unavailable:
            continue
        except (PalaverError, OSError, ValueError) as error:  # msgspec raises a ValueError
            _logger.info("the report %s is invalid: %s", path.name, error)
        path.unlink(missing_ok=True)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_LIMIT_BYTES)


async def _take_up(services: Services, report: ExitReport) -> None:
    agent = services.broker.directory.get(report.name)
    if agent is None or not _is_holder(agent, report.secret):
        return
    for name in sorted({outcome.name for outcome in report.outcomes}):
        whose = services.broker.directory.get(name) if name else agent
        if whose is not None and (whose is agent or _is_below(services, whose, agent)):
            await _recover(services, whose, [one for one in report.outcomes if one.name == name])
    if not agent.left:
        await services.broker.submit(caller_for(agent), Leave(reason=report.reason))


async def _recover(services: Services, agent: Agent, outcomes: Sequence[Outcome]) -> None:
    lane = services.delivery.open_lane(
        agent.name, _TERMINAL, lambda offer: None
    )  # it starts closed and stays closed, so nothing is offered on it
    try:
        for outcome in outcomes:
            await services.delivery.recover(
                lane, outcome.messages, OfferOutcome(outcome.answer), grade=outcome.grade
            )
    finally:
        await services.delivery.close_lane(lane)


def _is_below(services: Services, agent: Agent, above: Agent) -> bool:
    """Return whether one agent is a sub-agent of another, at any depth."""
    parent = services.broker.directory.get(agent.parent) if agent.parent else None
    return parent is not None and (parent.name == above.name or _is_below(services, parent, above))


def _is_holder(agent: Agent, secret: str) -> bool:
    return agent.holder == hashlib.sha256(secret.encode()).hexdigest()
