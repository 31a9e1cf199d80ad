"""The holders that are connected now: the agent of each, and the open requests to it. In memory only.

A request goes out as a `control` push, and the reply comes back as a `tell` on the same connection. If the
connection ends first, the caller gets Unavailable.
"""

import asyncio
import base64
import hashlib
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from msgspec import structs

from palaver.errors import BadRequest, NotFound, Unavailable
from palaver.identity.process import Process, boot_id, is_alive
from palaver.protocol.agents import Seat
from palaver.protocol.lines import TellOp
from palaver.protocol.message import FlatMessage
from palaver.protocol.requests import RAW_EXPIRES_MS, Send, raw_to_text

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
        self._numbers = count(1)
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
        if self._holds.get(hold.name) is hold:
            del self._holds[hold.name]
        for answers in hold.questions.values():
            answers.put_nowait(None)

    def told(self, hold: Hold, reply: TellOp) -> None:
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
        self._beside: dict[tuple[str, str], Seat] = {}

    def take(self, harness: str, session: str, process: Process) -> None:
        """Register the companion of a session. Refuse it while another lives; repeats have no effect."""
        seat = Seat(pid=process.pid, start=process.start, boot=boot_id())
        known = self._beside.get((harness, session))
        if known not in (None, seat) and is_alive(known):
            raise BadRequest(f"the session {session} already has a companion: process {known.pid}")
        self._beside = {key: one for key, one in self._beside.items() if is_alive(one)}
        self._beside[harness, session] = seat


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
    digest = await asyncio.to_thread(secret_hash, request.raw)
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
    salt = secrets.token_bytes(16)
    return _format(salt, hashlib.scrypt(data, salt=salt, **_COST))


def _format(salt: bytes, digest: bytes) -> str:
    words: Mapping[str, int] = _COST
    numbers = f"{words['n']}${words['r']}${words['p']}"
    return f"scrypt${numbers}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"
