"""One-time tips: shown when an agent first reads a request, broadcast, thread or task. Pure.

The shown tips are stored with its deliveries; nothing here remembers them.
"""

import shlex
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from palaver.model.envelope import Event
from palaver.model.message import BROADCAST, MESSAGE, REQUEST, SYSTEM
from palaver.model.task import TASK_CREATE

REQUEST_TIP: Final = "request"
BROADCAST_TIP: Final = "broadcast"
THREAD_TIP: Final = "thread"
TASK_TIP: Final = "task"
TIPS: Final = (REQUEST_TIP, BROADCAST_TIP, THREAD_TIP, TASK_TIP)


def tips_for(events: Sequence[Event], told: Collection[str]) -> dict[str, str]:
    """Return the tips for these messages that are not in `told`, each by its name."""
    found: dict[str, str] = {}
    for event in events:
        for name, sentence in _tips_of(event):
            if name not in told:
                found.setdefault(name, sentence)
    return found


def _tips_of(event: Event) -> Iterator[tuple[str, str]]:
    payload = event.payload
    if event.type == TASK_CREATE:
        steps = f"pal task update {event.seq} --status in_progress, then pal task complete {event.seq}"
        yield TASK_TIP, f"report the status: {steps}"
    if event.type != MESSAGE or payload.get("sender_kind") == SYSTEM:
        return
    answer = f"pal send --reply-to {event.seq} -- …"
    if payload.get("intent") == REQUEST:
        yield REQUEST_TIP, f"answer with: {answer}"
    if payload.get("scope") == BROADCAST:
        yield BROADCAST_TIP, f"this went to everyone; to answer only its sender: {answer}"
    if isinstance(thread := payload.get("thread"), str):
        yield THREAD_TIP, f"the whole thread: pal thread show {shlex.quote(thread)}"
