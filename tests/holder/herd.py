"""Many agents in terminals at once, with a real daemon and real holders, and a record of each agent's input.

The programs are `moods.py`. Each one records every byte it reads together with its mood, so that forbidden
input is found afterwards, in whatever order things happened.
"""

import json
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.app.person import Person, persons
from tests.daemon.stage import Home, finish, new_home
from tests.holder.stage import PROGRAMS
from tests.limits import LIMIT_S

LOOKS = ("framed", "plain")
HARNESSES = {"framed": "claude", "plain": "generic", "mute": "generic", "stubborn": "generic"}
HEAD = "[pal message from: script] "
"""The head of each message, without its number and `URGENT`: `plain_head` removes both."""
_NUMBERED = re.compile(rb"\[(?:URGENT )?pal message #\d+ from: ")
INLINE_LIMIT = 300
START_LIMIT_S = 60.0
_INTERRUPTS = b"\x03\x1b"
_PERSON = frozenset(b"~\x15\x7f")


def plain_head(typed: bytes) -> bytes:
    """Return typed text with the number, and `URGENT`, removed from each head."""
    return _NUMBERED.sub(b"[pal message from: ", typed)


def until(is_so: Callable[[], object], *, limit_s: float = LIMIT_S) -> None:
    """Poll until a condition is true; sleep between the polls to leave the processors to the agents."""
    end = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < end, "it never came to be so"
        time.sleep(0.01)


@dataclass(frozen=True, slots=True)
class Scripted:
    """One scripted agent, with the file that records its input and the pipe that takes its orders."""

    name: str
    look: str
    folder: Path

    @property
    def record(self) -> Path:
        return self.folder / f"{self.name}.record"

    @property
    def orders(self) -> Path:
        return self.folder / f"{self.name}.orders"

    @property
    def command(self) -> list[str]:
        program = str(PROGRAMS / "moods.py")
        return [sys.executable, "-ISE", program, str(self.record), str(self.orders), self.look]

    def order(self, *orders: str) -> None:
        """Send orders, such as a mood to change to."""
        pipe = os.open(self.orders, os.O_WRONLY)
        try:
            os.write(pipe, "".join(f"{order}\n" for order in orders).encode())
        finally:
            os.close(pipe)

    def lines(self) -> list[tuple[str, str]]:
        """Return the complete lines of the record, as pairs."""
        text = self.record.read_text() if self.record.exists() else ""
        whole, _, _ = text.rpartition("\n")
        return [(line.split(" ")[0], line.split(" ")[1]) for line in whole.splitlines()]

    def sent(self) -> list[str]:
        """Return the content of the composer at each Enter."""
        return [plain_head(bytes.fromhex(value)).decode() for word, value in self.lines() if word == "sent"]

    def keys(self, *words: str) -> bytes:
        """Return all input, or the input read in these moods, without the keys of the person."""
        wanted = {f"read:{word}" for word in words}
        typed = b"".join(
            key
            for word, value in self.lines()
            if (word in wanted if wanted else word.startswith("read:"))
            and not set(key := bytes.fromhex(value)) <= _PERSON
        )
        return plain_head(typed)

    def begun(self) -> list[tuple[str, str]]:
        """Return each submitted line, with the mood in which its first key was read."""
        found, mood = [], ""
        for word, value in self.lines():
            if word == "sent":
                found.append((plain_head(bytes.fromhex(value)).decode(), mood))
                mood = ""
            elif word.startswith("read:") and not mood and bytes.fromhex(value)[0] not in _INTERRUPTS:
                mood = "" if set(bytes.fromhex(value)) <= _PERSON else word.removeprefix("read:")
        return found

    def drafts_disturbed(self) -> list[str]:
        """Return the input that arrived while the composer contained a person's draft."""
        return [value for word, value in self.lines() if word == "draft"]

    def be(self, mood: str) -> None:
        """Order a mood, and wait until the program has recorded it."""
        before = self.lines().count(("mood", mood))
        self.order(mood)
        until(lambda: self.lines().count(("mood", mood)) > before)

    def hook(self, home: Home, event: str, **payload: object) -> None:
        """Have the agent send a hook event to its holder, and wait until the holder has received it."""
        request = {"type": "hook_event", "event_name": event, "payload": payload}
        path = home.path / "agents" / f"{self.name}.sock"
        before = self.count("hooked")
        self.order(f"hook {path} {json.dumps(request)}")
        until(lambda: self.count("hooked") > before)
        answer = [value for word, value in self.lines() if word == "hooked"][-1]
        assert json.loads(bytes.fromhex(answer))["ok"] is True, answer

    def run(self, command: str) -> None:
        """Have the agent run a command under its own identity, and wait until it ends."""
        before = self.count("ran")
        self.order(f"run {command}")
        until(lambda: self.count("ran") > before)
        assert self.lines()[-1] == ("ran", "0"), self.lines()[-1]

    def count(self, word: str) -> int:
        return sum(1 for known, _ in self.lines() if known == word)

    def calm(self) -> None:
        """Keep the agent idle from now on, and wait until it has recorded that."""
        self.order("calm")
        until(lambda: ("mood", "calm") in self.lines())

    def until_sent(self, count: int, *, limit_s: float = LIMIT_S) -> list[str]:
        """Wait until `count` messages have arrived and return them."""
        until(lambda: self.count("sent") >= count, limit_s=limit_s)
        return self.sent()


@dataclass(slots=True)
class Herd:
    """A home, its agents, and the person at their terminals."""

    home: Home
    folder: Path
    person: Person
    agents: list[Scripted] = field(default_factory=list)

    def start(self, look: str = "framed", name: str = "") -> Scripted:
        """Start one agent with its own holder."""
        agent = Scripted(name or f"a{len(self.agents)}", look, self.folder)
        os.mkfifo(agent.orders)
        options = ["--detach", "--name", agent.name, "--harness", HARNESSES[look]]
        started = finish(self.home.start("run", *options, "--", *agent.command), limit_s=START_LIMIT_S)
        assert started.status == 0, started
        self.agents.append(agent)
        until(lambda: ("mood", "starting") in agent.lines())
        return agent

    def begin_drafts(self, agents: Sequence[Scripted]) -> None:
        """Let the person begin and delete drafts at these terminals, repeatedly."""
        words = [sys.executable, "-I", str(PROGRAMS / "drafts.py"), str(self.home.path), "7"]
        self.person.run(shlex.join([*words, *(agent.name for agent in agents)]))
        self.person.until(b"sitting")

    def end_drafts(self) -> None:
        self.person.press(b"\x03")
        self.person.until(b"status 0")


@contextmanager
def herds(folder: Path) -> Iterator[Herd]:
    """Yield a herd without agents; end all its processes with the block."""
    with new_home() as home:
        home.start_daemon()
        with persons(home) as here:
            here.append(Person(home))
            yield Herd(home, folder, here[0])
