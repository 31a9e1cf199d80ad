"""Facts about agents besides the log: holders, sub-agents, transcripts, consumers, companions, raw keys.

Most end with the daemon or a connection. Only the cursors of consumers are stored, one small file each.
"""

import asyncio
import base64
import hashlib
import os
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final
from urllib.parse import quote

from msgspec import structs

from palaver.broker.broker import Broker
from palaver.broker.context import SYSTEM_CALLER, Joined
from palaver.errors import (
    BadName,
    BadRequest,
    DuplicateListener,
    NotFound,
    RequestError,
    StorageFailed,
    Unavailable,
)
from palaver.home import sync
from palaver.identity.process import Process, boot_id, is_alive
from palaver.log.api import Log
from palaver.log.storage import failure_from
from palaver.protocol.agents import Agent, BeginSubagent, Seat
from palaver.protocol.envelope import Event
from palaver.protocol.events import SEAT_TYPES
from palaver.protocol.lines import TellOp
from palaver.protocol.message import FlatMessage
from palaver.protocol.requests import RAW_EXPIRES_MS, Gone, Send, raw_to_text
from palaver.state.agents import read_subagent
from palaver.state.fold import agent_of

# --------------------
# A stored cursor: the seq up to which a consumer has read the log. One small file, outside the log.
#
# The file is created as a whole and synced, so that the first seq is never lost. After that the number in
# it is overwritten, in one write of fixed length. So storing a seq is cheap, and it survives the end of any
# process at any time. After a power failure the file may contain an older seq: then events are repeated,
# and none is skipped.

# A fixed length, so that each number overwrites the whole earlier one in one write.
_DIGITS: Final = 20
_WHOLE: Final = re.compile(rb"[0-9]{20}\n")


class Cursor:
    """The file of one consumer. Belongs to the reader of that consumer: two would overwrite each other."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def read(self) -> int | None:
        """Return the stored seq, None if there is no file. Raises StorageFailed if it cannot be read."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise failure_from(error) from error
        if _WHOLE.fullmatch(content) is None:
            raise StorageFailed(f"{self._path} does not contain a seq; continue with --after SEQ")
        return int(content)

    def begin(self, seq: int) -> None:
        """Store a seq durably, whatever was stored before, and prepare for `keep`. May wait for the disk."""
        try:
            # A sync can take long, so a seq that is stored already is not stored again.
            if not self._holds(seq):
                self._make(seq)
            # An open file may be the one that was replaced above: a seq written into it would be lost.
            self.close()
            self._file = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        except OSError as error:
            raise failure_from(error) from error

    def keep(self, seq: int) -> None:
        """Store a seq without a sync. Call it only after `begin`."""
        assert self._file is not None
        try:
            os.pwrite(self._file, _number(seq), 0)
        except OSError as error:
            raise failure_from(error) from error

    def close(self) -> None:
        """Close the file. Closing twice is harmless."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _holds(self, seq: int) -> bool:
        try:
            return self._path.read_bytes() == _number(seq)
        except FileNotFoundError:
            return False

    def _make(self, seq: int) -> None:
        folder = self._path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # No consumer can have this name: `_NAME` allows no tilde.
        made = folder / f"{self._path.name}~"
        file = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, _number(seq))
            # Before it gets its name: after a power failure the name must not lead to an empty file.
            os.fsync(file)
        finally:
            os.close(file)
        made.replace(self._path)
        for one in (folder, folder.parent):  # The directory entries must survive a power failure too.
            sync(one)


def _number(seq: int) -> bytes:
    return b"%0*d\n" % (_DIGITS, seq)


# --------------------
# Consumers in use, and the reader of each.

# It is the name of a file, so it has no slash and does not begin with a dot: `..` would be another folder.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

_STORE_AFTER_S: Final = 0.5
"""Seconds.

A reader that is ending (killed, stopped, disconnected) is removed within this time; the next one waits.
"""


class Consumer:
    """One consumer that is in use. Always release it: until then no other caller gets it."""

    def __init__(self, consumers: "Consumers", owner: str, name: str, pid: int, cursor: Cursor) -> None:
        self.owner = owner
        self.name = name
        self.pid = pid
        self.released = asyncio.Event()
        self._consumers = consumers
        self._cursor = cursor

    def seq(self) -> int | None:
        """Return the stored seq, None if it never began. Raises StorageFailed if it cannot be read."""
        return self._cursor.read()

    async def begin(self, seq: int) -> None:
        """Start at a seq. Store it durably before anything is shown, so that no later event is skipped."""
        begun = asyncio.ensure_future(asyncio.to_thread(self._cursor.begin, seq))
        try:
            await asyncio.shield(begun)
        finally:
            # The thread uses the cursor until it is done, even if the caller is cancelled.
            await asyncio.wait([begun])

    def keep(self, seq: int) -> None:
        """Store the seq up to which everything was flushed. Raises StorageFailed or DiskFull."""
        self._cursor.keep(seq)

    def release(self) -> None:
        """Free the consumer for the next reader."""
        self._cursor.close()
        self._consumers.forget(self)
        self.released.set()


class Consumers:
    """The consumers of one home. Belongs to the loop's thread."""

    def __init__(self, folder: Path, *, grace_s: float = _STORE_AFTER_S) -> None:
        """`folder` is created when the first seq is stored."""
        self._folder = folder
        self._grace_s = grace_s
        self._held: dict[tuple[str, str], Consumer] = {}

    async def take(self, owner: str, name: str, *, pid: int) -> Consumer:
        """Take a consumer for a process. Raises DuplicateListener if another process keeps it."""
        if _NAME.fullmatch(name) is None:
            raise BadName(name, "a consumer name has up to 64 letters, digits, and the characters _ . -")
        try:
            async with asyncio.timeout(self._grace_s):
                # A loop, because another reader that waited too may have taken it first.
                while (held := self._held.get((owner, name))) is not None:
                    await held.released.wait()
        except TimeoutError:
            assert held is not None
            raise DuplicateListener(name, owner, held.pid) from None
        # Names of owners can contain a slash, which must not lead into another folder.
        path = self._folder / quote(owner, safe="") / name
        # Nothing has been awaited since the loop, so no other reader has taken it.
        taken = self._held[owner, name] = Consumer(self, owner, name, pid, Cursor(path))
        return taken

    def forget(self, consumer: Consumer) -> None:
        """Remove a consumer that was released."""
        del self._held[consumer.owner, consumer.name]


# --------------------
# The live sub-agents: the parent of each, and their end when the parent ends. Used by every door.
#
# The broker makes the durable decisions. This index of the log is in memory, so that a hook of a known
# sub-agent does not wait for the disk.

_LIMIT_CALLS: Final = 4096
"""Remembered tool calls. When full, the oldest is dropped and then counts as a call of the parent."""
TRY_AGAIN_S: Final = 5.0
"""Seconds to the next attempt to end a sub-agent after its parent, if the disk is full."""


class Subagents:
    """The index of live sub-agents; it also begins and ends them. Use it only on the event loop's thread."""

    def __init__(self, log: Log, broker: Broker, tasks: asyncio.TaskGroup) -> None:
        """Ends of sub-agents that follow from their parent's end are stored in `tasks`."""
        self._log = log
        self._broker = broker
        self._tasks = tasks
        self._living: dict[str, dict[str, str]] = {}
        self._calls: dict[str, str] = {}
        self._unsubscribe = log.subscribe(self._follow, SEAT_TYPES)

    def start(self) -> None:
        """Load the stored sub-agents, and end those whose parent ended while no daemon was running."""
        for agent in list(self._broker.directory.all()):
            if agent.parent:
                self._put(agent)

    def close(self) -> None:
        """Stop reading the log."""
        self._unsubscribe()

    def find(self, parent: str, key: str) -> Agent | None:
        """Return a live sub-agent by the id that its harness uses for it."""
        name = self._living.get(parent, {}).get(key)
        return None if name is None else self._broker.directory.get(name)

    def was_here(self, parent: str, key: str) -> bool:
        """Return whether a sub-agent has ever begun, live or not."""
        return read_subagent(self._log.rows, parent, key) is not None

    def of(self, parent: str) -> list[Agent]:
        """Return the live sub-agents of an agent, oldest first."""
        found = map(self._broker.directory.get, self._living.get(parent, {}).values())
        return [agent for agent in found if agent is not None]

    async def begun(self, parent: str, key: str, type: str = "") -> Agent | None:
        """Return a sub-agent as `begin` does, or None if it is refused."""
        try:
            return await self.begin(parent, key, type)
        except RequestError:
            return None

    async def begin(self, parent: str, key: str, type: str = "") -> Agent:
        """Return a sub-agent with its former name or a new one. When this returns, the name is durable.

        For a live sub-agent nothing is stored. Raises RequestError if the parent is not there or no name can
        be made.
        """
        if (known := self.find(parent, key)) is not None:
            return known
        request = BeginSubagent(parent=parent, key=key, type=type)
        joined = await self._broker.submit(SYSTEM_CALLER, request)
        assert isinstance(joined, Joined)
        return joined.agent

    async def ended(self, parent: str, key: str, reason: str = "ended") -> None:
        """Store that a sub-agent has ended. Repeats and unknown keys have no effect."""
        if (agent := self.find(parent, key)) is not None:
            await self._end(agent, reason)

    async def left(self, name: str, reason: str) -> None:
        """Store that a sub-agent has ended, by its name. Other names have no effect."""
        agent = self._broker.directory.get(name)
        if agent is not None and agent.parent and not agent.left:
            await self._end(agent, reason)

    # Tool calls, by the id that the harness uses for each

    def calls(self, call: str, key: str) -> None:
        """Record that a sub-agent makes a tool call. A caller with the id of that call is this sub-agent."""
        # Removed first, so that a repeated call becomes the newest one.
        self._calls.pop(call, None)
        self._calls[call] = key
        if len(self._calls) > _LIMIT_CALLS:
            del self._calls[next(iter(self._calls))]

    def caller_of(self, call: str) -> str:
        """Return the key of the sub-agent that made a call; empty if no sub-agent did."""
        return self._calls.get(call, "")

    # Following the log

    def _follow(self, events: Sequence[Event]) -> None:
        for event in events:
            agent = self._broker.directory.get(agent_of(event)) if event.type in SEAT_TYPES else None
            if agent is None:
                continue
            if agent.parent:
                self._put(agent)
            for child in self.of(agent.name):
                self._look_at(child, agent)

    def _put(self, agent: Agent) -> None:
        here = self._living.setdefault(agent.parent, {})
        if not agent.left:
            here[agent.session] = agent.name
            self._look_at(agent, self._broker.directory.get(agent.parent))
        elif here.get(agent.session) == agent.name:
            del here[agent.session]
        if not here:
            del self._living[agent.parent]

    def _look_at(self, agent: Agent, parent: Agent | None) -> None:
        """End a sub-agent whose parent has ended, or now runs in another process than when it began."""
        if parent is None or parent.left:
            why = f": {parent.detail}" if parent is not None and parent.detail else ""
            self._tasks.create_task(self._end_after(agent, f"{agent.parent} has ended{why}"))
        elif _process_of(parent.seat) != _process_of(agent.seat):
            self._tasks.create_task(self._end_after(agent, f"{agent.parent} is now another process"))

    async def _end_after(self, agent: Agent, reason: str) -> None:
        """Store that a sub-agent has ended after its parent. If the disk is full, look again later."""
        try:
            await self._end(agent, reason)
        except Unavailable:
            # By time, because a parent that has ended causes no other event.
            await asyncio.sleep(TRY_AGAIN_S)
            for child in self.of(agent.parent):
                if child.name == agent.name:
                    self._look_at(child, self._broker.directory.get(child.parent))

    async def _end(self, agent: Agent, reason: str) -> None:
        await self._broker.submit(SYSTEM_CALLER, Gone(name=agent.name, reason=reason, seat=agent.seat))


def _process_of(seat: Seat | None) -> tuple[int, int, str] | None:
    return None if seat is None else (seat.pid, seat.start, seat.boot)


# --------------------
# The transcript file of each agent, as reported by its hooks. In memory: the next hook reports it again.

LIMIT_TOLD: Final = 10_000
"""Agents whose transcripts are remembered. When full, the one reported longest ago is dropped."""
_LIMIT_PATH: Final = 4096


@dataclass(slots=True)
class TranscriptBook:
    """The paths that hooks have reported. They are never opened or checked here."""

    _paths: dict[str, str] = field(default_factory=dict)

    def tell(self, name: str, path: str) -> None:
        """Remember the transcript of an agent. A path that is not absolute or is too long is ignored."""
        if not path.startswith("/") or "\0" in path or len(path) > _LIMIT_PATH:
            return
        # Removed first, so that a transcript that is reported again becomes the newest one.
        self._paths.pop(name, None)
        self._paths[name] = path
        if len(self._paths) > LIMIT_TOLD:
            del self._paths[next(iter(self._paths))]

    def path_of(self, name: str) -> str:
        """Return the path that was reported last, or ""."""
        return self._paths.get(name, "")


# --------------------
# The holders that are connected now: the agent of each, and the open requests to it.
#
# A request goes out as a `control` push, and the reply comes back as a `tell` on the same connection. If the
# connection ends first, the caller gets Unavailable.

PEEK: Final = "peek"
STATUS: Final = "status"
STOP: Final = "stop"
KILL: Final = "kill"
"""The requests that a holder serves."""

Push = Callable[[Mapping[str, object]], None]
"""Sends one `control` push without waiting."""


@dataclass(slots=True, eq=False)
class Hold:
    """One agent and the connected holder that has it."""

    name: str
    holder: Process
    push: Push
    cols: int = 0
    rows: int = 0
    questions: dict[int, asyncio.Queue[TellOp | None]] = field(default_factory=dict)


class HeldAgents:
    """All agents that have a connected holder. Use it only on the event loop's thread."""

    def __init__(self, meet: Callable[[Process], None] = lambda _: None) -> None:
        """`meet` is called with every process that starts to hold an agent."""
        self._meet = meet
        self._holds: dict[str, Hold] = {}
        # Random, so that a late reply to the daemon before answers no request of this one.
        self._numbers = count(secrets.randbelow(2**31) + 1)
        self._watching: list[Callable[[], None]] = []
        self.hidden: dict[str, bytes] = {}
        """Raw keys for hidden prompts, by their hash in the log. They are never written to a file."""

    def get(self, name: str) -> Hold | None:
        """Return the hold on an agent, or None if no connected holder has it."""
        return self._holds.get(name)

    def open(self, hold: Hold) -> None:
        """Register the holder of an agent. An earlier holder of that agent loses it."""
        if (before := self._holds.get(hold.name)) is not None:
            self.close(before)
        self._holds[hold.name] = hold
        self._meet(hold.holder)
        for tell in self._watching:
            tell()

    def watch(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Call `tell` each time a holder registers an agent. Return a function that ends this."""
        self._watching.append(tell)
        return lambda: self._watching.remove(tell)

    def close(self, hold: Hold) -> None:
        """Remove a holder and end its open requests without a reply. Repeats have no effect."""
        # A newer holder may have the agent by now, and keeps it.
        if self._holds.get(hold.name) is hold:
            del self._holds[hold.name]
        # Without this, `ask` would wait indefinitely for a holder that is no longer connected.
        for answers in hold.questions.values():
            answers.put_nowait(None)

    def take_reply(self, hold: Hold, reply: TellOp) -> None:
        """Pass a holder's reply to its request. Ignore a reply to a request that has ended."""
        if (answers := hold.questions.get(reply.ask)) is not None:
            answers.put_nowait(reply)

    async def ask(self, name: str, verb: str, **fields: object) -> AsyncGenerator[TellOp, None]:
        """Send a request to the holder of an agent and yield its replies in order; the last one is `done`.

        Raises NotFound if the agent has no connected holder, and Unavailable if the holder disconnects first.
        """
        hold = self._holds.get(name)
        if hold is None:
            raise NotFound(
                f"holder of {name}", "it does not run in a terminal of Palaver, or its holder is reconnecting"
            )
        number = next(self._numbers)
        answers = hold.questions[number] = asyncio.Queue()
        try:
            # Registered before it is sent, so that no reply comes to an unknown number.
            hold.push({"ask": number, "name": name, "verb": verb, **fields})
            while (reply := await answers.get()) is not None:
                yield reply
                if reply.done:
                    return
            raise Unavailable(f"the holder of {name} exited before it replied")
        finally:
            del hold.questions[number]

    async def ask_once(self, name: str, verb: str, *, limit_s: float, **fields: object) -> TellOp:
        """Send a request and return the last reply. Raise Unavailable if it is not complete in `limit_s`."""
        try:
            async with asyncio.timeout(limit_s), aclosing(self.ask(name, verb, **fields)) as words:
                reply = await anext(words)
                while not reply.done:
                    reply = await anext(words)
                return reply
        except TimeoutError:
            raise Unavailable(f"the holder of {name} did not reply within {limit_s:g} seconds") from None


# --------------------
# The companion process of each session: at most one live process per session. In memory only.


class CompanionBook:
    """The companions that this daemon knows. Use it only on the event loop's thread."""

    def __init__(self) -> None:
        self._seats: dict[tuple[str, str], Seat] = {}

    def take(self, harness: str, session: str, process: Process) -> None:
        """Register the companion of a session. Refuse it while another lives; repeats have no effect."""
        seat = Seat(pid=process.pid, start=process.start, boot=boot_id())
        known = self._seats.get((harness, session))
        if known not in (None, seat) and is_alive(known):
            raise BadRequest(f"the session {session} already has a companion: process {known.pid}")
        # No end of a companion is reported, so the ended ones are forgotten here.
        self._seats = {key: one for key, one in self._seats.items() if is_alive(one)}
        self._seats[harness, session] = seat


# --------------------
# Raw keys for a prompt that asks for a secret: the log keeps a length and a hash, and memory the keys.
#
# The holder is asked first whether the program hides what is typed. The keys wait here until they are typed
# or expire. They are lost with the daemon: then the holder refuses the message.

_ASK_HOLDER_S: Final = 1.0
_GRACE_S: Final = 10.0
"""How long the keys are kept after they have expired: an offer may be on its way."""
_COST: Final = {"n": 2**14, "r": 8, "p": 1, "dklen": 32}
"""Cost of scrypt: about 50 ms for one guess, because a password is short."""


async def hide_keys(holds: HeldAgents, request: Send) -> Send:
    """Replace raw keys by a hash where their terminal asks for a secret; return any other request unchanged.

    Without a holder's reply it is not known that the keys will be shown, so they are hidden too. The broker
    refuses keys for an agent that has no holder.
    """
    if not request.raw or request.is_dry_run:
        return request
    try:
        reply = await holds.ask_once(request.recipient, STATUS, limit_s=_ASK_HOLDER_S)
        is_hidden = reply.ok.get("secret") is True
    except (NotFound, Unavailable):
        is_hidden = True
    if not is_hidden:
        return request
    raw_to_text(request.raw)  # It refuses keys that are empty or too large.
    # In a thread, because the hash is slow on purpose.
    digest = await asyncio.to_thread(secret_hash, request.raw)
    # Kept before the message is stored, because a lane may offer it at once.
    holds.hidden[digest] = request.raw
    kept_s = (request.expires_in_ms or RAW_EXPIRES_MS) / 1000 + _GRACE_S
    asyncio.get_running_loop().call_later(kept_s, holds.hidden.pop, digest, None)
    return structs.replace(request, raw_hash=digest)


def with_hidden_keys(holds: HeldAgents, message: FlatMessage) -> FlatMessage:
    """Return a message with its hidden keys, for the holder that types them; they are not in the log."""
    keys = holds.hidden.get(message.hash or "")
    return message if keys is None else structs.replace(message, raw=base64.b64encode(keys).decode())


def secret_hash(data: bytes) -> str:
    """Return a salted hash that is slow to guess: `scrypt$16384$8$1$SALT$HASH`, in base64."""
    # A new salt each time: equal secrets must not have equal hashes in the log.
    salt = secrets.token_bytes(16)
    return _format_hash(salt, hashlib.scrypt(data, salt=salt, **_COST))


def _format_hash(salt: bytes, digest: bytes) -> str:
    words: Mapping[str, int] = _COST
    numbers = f"{words['n']}${words['r']}${words['p']}"
    return f"scrypt${numbers}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"
