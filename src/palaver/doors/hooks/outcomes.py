"""The outcome of hook replies after a crash of the daemon: written to the harness, or not.

A hook process leaves an empty file in `hooks/` of the home, named after its request key: `.said` once it has
written a reply with messages, `.lost` when it ends without one. The `submitted` event of the messages
contains the same key. So the next daemon knows for each message whether the harness has it.
"""

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from palaver.broker.broker import SYSTEM_CALLER, Broker
from palaver.delivery.lane import LaneKind
from palaver.doors.hooks.conversation import Conversation
from palaver.harness.hook_news import Step
from palaver.log.api import Log
from palaver.log.state import agents_with_carried, read_carried, read_entry, read_unsure
from palaver.model.delivery import State
from palaver.model.mail import DeliveryReport, deliverable
from palaver.model.priority import format_priority
from palaver.model.query import Query
from palaver.model.request import Report

FOLDER: Final = "hooks"
_LOST: Final = ".lost"
_SAID: Final = ".said"
_HOOK: Final = LaneKind.HOOK.name.lower()
_LIMIT_KEYS: Final = 1000
"""Messages whose request is remembered until they are proven. When full, the oldest is dropped."""
_LIMIT_REPORTS: Final = 1000
"""Newest delivery events of one agent that are searched for a request key."""
_KEPT_S: Final = 24 * 3600.0
"""Seconds that a file is kept if it belongs to no open message."""


@dataclass(frozen=True, slots=True)
class HookRequest:
    """One request of a hook process. A repeat has the same key: its reply was never written."""

    key: str = ""
    is_repeat: bool = False

    def at(self, step: Step) -> str:
        """Return the text that identifies this request in the `submitted` event."""
        return f"{step.value} {self.key}" if self.key else ""


class HookOutcomes:
    """The files of hook processes. Use it only on the event loop's thread."""

    def __init__(self, home: Path, log: Log, broker: Broker) -> None:
        self._folder = home / FOLDER
        self._log = log
        self._broker = broker
        self._keys: dict[tuple[str, int], str] = {}

    async def start(self, now_s: float) -> None:
        """Create the folder, remove old files, and queue the messages of replies that were never written."""
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            for path in self._folder.iterdir():
                if now_s - path.stat().st_mtime > _KEPT_S:
                    path.unlink()
        left = self._left()
        for agent in agents_with_carried(self._log.rows) if left else ():
            found = await self._requests(agent, read_carried(self._log.rows, agent))
            lost = {seq: key for seq, (_, key) in found.items() if left.get(key) == _LOST}
            await self._queue_again(agent, lost)

    async def recover(
        self, conversation: Conversation, request: HookRequest, *, is_first: bool, is_new: bool
    ) -> None:
        """Settle the messages of hooks that an earlier daemon served.

        Messages of a reply that was never written are queued again. Those of a written reply are proven by
        later hooks, unless a new session begins, whose context does not contain them.
        """
        left = self._left() if is_first or request.is_repeat else {}
        if not left and not request.is_repeat:
            return
        rows, agent = self._log.rows, conversation.agent
        in_hand = {seq for offer in conversation.lane.offers.values() for seq in offer.seqs}
        open_now = [
            seq for seq in (*read_carried(rows, agent), *read_unsure(rows, agent)) if seq not in in_hand
        ]
        found = await self._requests(agent, open_now)
        own = request.key if request.is_repeat else ""
        lost = {seq: key for seq, (_, key) in found.items() if key == own or left.get(key) == _LOST}
        await self._queue_again(agent, lost)
        said: defaultdict[tuple[Step, str], list[int]] = defaultdict(list)
        for seq, (step, key) in found.items():
            if not is_new and seq not in lost and left.get(key) == _SAID:
                said[step, key].append(seq)
        for (step, key), seqs in said.items():
            self.remember(agent, seqs, key)
            conversation.given_before(step, seqs)

    def remember(self, agent: str, seqs: Iterable[int], key: str) -> None:
        """Remember which request carried these messages, until they are proven."""
        for seq in seqs:
            self._keys[agent, seq] = key
        while len(self._keys) > _LIMIT_KEYS:
            self._remove(self._keys.pop(next(iter(self._keys))), _SAID)

    def forget(self, agent: str, seqs: Iterable[int]) -> None:
        """Remove the files of messages that are settled."""
        for key in {self._keys.pop((agent, seq), "") for seq in seqs}:
            self._remove(key, _SAID)

    def forget_lost(self, key: str) -> None:
        """Remove the file of a reply that was not written, because its messages are queued again."""
        self._remove(key, _LOST)

    def _remove(self, key: str, ending: str) -> None:
        if key:
            with suppress(OSError):
                (self._folder / f"{key}{ending}").unlink()

    def _left(self) -> dict[str, str]:
        """Return the files by request key. `.said` replaces `.lost`: a written reply was not lost."""
        try:
            names = sorted(path.name for path in self._folder.iterdir())
        except OSError:
            return {}
        return {name[: -len(_SAID)]: name[-len(_SAID) :] for name in names}

    async def _requests(self, agent: str, seqs: Iterable[int]) -> dict[int, tuple[Step, str]]:
        """Return step and request key of the messages whose last lane was a hook."""
        rows = self._log.rows
        entries = [(seq, read_entry(rows, seq, agent)) for seq in seqs]
        wanted = {seq for seq, entry in entries if entry and entry.lane == _HOOK}
        if not wanted:
            return {}
        query = Query(types=("delivery",), senders=(agent,), after=min(wanted), last=_LIMIT_REPORTS)
        taken: dict[int, str] = {}
        for event in await self._log.read(query):
            report = msgspec.convert(event.payload, DeliveryReport)
            if report.state == State.SUBMITTED and not report.unconfirmed:
                taken.update(dict.fromkeys(wanted.intersection(report.messages), report.request))
        named = {seq: request.split(" ") for seq, request in taken.items() if request}
        return {seq: (Step(step), key) for seq, (step, key) in named.items()}

    async def _queue_again(self, agent: str, lost: dict[int, str]) -> None:
        for seq in lost:
            event, entry = self._log.event(seq), read_entry(self._log.rows, seq, agent)
            assert event is not None
            assert entry is not None  # both were read to find the request
            again = DeliveryReport(
                agent=agent,
                messages=(seq,),
                state=State.QUEUED,
                lane=_HOOK,
                reason="the hook ended before it had the answer",
                priority=format_priority(deliverable(event).priority) if entry.unconfirmed else "",
            )
            await self._broker.submit(SYSTEM_CALLER, Report(report=again))
        for key in set(lost.values()):
            self._remove(key, _LOST)
