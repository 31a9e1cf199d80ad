"""Details of an agent for its page: queue, gates and terminal. Changes nothing."""

from typing import Final

from palaver.doors.holds import STATUS
from palaver.doors.services import Services
from palaver.errors import NotFound, Unavailable
from palaver.log.api import Rows
from palaver.model.agent import Agent
from palaver.model.delivery import State
from palaver.model.mail import MAIL, decode_mail, mail_prefix, priority_of_key
from palaver.model.priority import Priority, format_priority
from palaver.model.terminal import GATE_ADVICE

_PAGE: Final = 1000
_ASK_S: Final = 1.0
_TOLD: Final = ("cols", "rows", "last_activity")


def queue_view(rows: Rows, name: str) -> dict[str, int]:
    """Count the waiting messages of an agent by priority, and the held ones."""
    counts = {format_priority(priority): 0 for priority in Priority} | {"held": 0}
    after = ""
    while page := rows.scan(MAIL, mail_prefix(name), after=after, limit=_PAGE):
        for key, value in page:
            state = decode_mail(value).state
            if state == State.HELD:
                counts["held"] += 1
            elif state == State.QUEUED:
                counts[format_priority(priority_of_key(key))] += 1
        after = page[-1][0]
    return counts


async def terminal_view(services: Services, agent: Agent) -> dict[str, object]:
    """Return the details of an agent's page. If its holder does not reply in time, its part is left out."""
    view: dict[str, object] = {
        "queue": queue_view(services.log.rows, agent.name),
        "paused": agent.paused,
        "last_activity": agent.since,
    }
    if levels := services.delivery.levels(agent.name):
        view["gates"] = [
            {"lane": lane, "open": level.is_open, "paused": level.is_paused, "reason": level.reason or None}
            for lane, level in levels
        ]
    hold = services.holds.get(agent.name)
    if hold is None:
        return view
    view |= {"cols": hold.cols, "rows": hold.rows, "holder": hold.holder.pid}
    try:
        told = await services.holds.ask_once(agent.name, STATUS, limit_s=_ASK_S)
    except (Unavailable, NotFound):
        return view
    return view | {key: told.ok[key] for key in _TOLD if isinstance(told.ok.get(key), int)}


def explain_gate(reason: str | None) -> str:
    """Return why a gate is closed and, where that is known, how to open it."""
    advice = GATE_ADVICE.get(reason or "")
    return f"{reason}: {advice}" if advice else reason or "no reason given"


def closed_gates(services: Services, name: str) -> str:
    """Return which lanes of an agent are closed, why, and how to open them; empty if all are open."""
    levels = services.delivery.levels(name)
    return "; ".join(
        f"{lane} lane closed ({explain_gate(level.reason)})" for lane, level in levels if not level.is_open
    )


def terminal_lines(view: dict[str, object]) -> list[str]:
    """Return the same details as lines for people."""
    lines: list[str] = []
    queue, gates = view["queue"], view.get("gates", [])
    assert isinstance(queue, dict)
    assert isinstance(gates, list)
    if any(queue.values()):
        lines.append("waiting: " + ", ".join(f"{count} {word}" for word, count in queue.items() if count))
    if view.get("asleep"):
        lines.append("asleep: nothing can wake it; what is held comes with its next prompt")
    if view["paused"]:
        lines.append("paused: only interrupts are brought to it")
    lines += [
        f"{gate['lane']} lane: " + ("paused" if gate["open"] else f"closed ({explain_gate(gate['reason'])})")
        for gate in gates
        if gate["paused"] or not gate["open"]
    ]
    if view.get("cols"):
        lines.append(f"terminal {view['cols']}x{view['rows']}, holder process {view['holder']}")
    return lines
