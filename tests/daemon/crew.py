"""Agents who share a workspace, as real processes: a shell each, and what listens beside it."""

import json
import shlex
from pathlib import Path

from tests.daemon.stage import Home, Job, JsonLine, Result, check_output, run_script_as_person, wait_until

HANDOFF = ("--status", "parser done", "--next", "review it")


class Crew:
    """A home and the folder in which everybody works."""

    def __init__(self, home: Home, folder: str = "shop") -> None:
        self.home = home
        self.folder = home.path.parent / folder
        self.folder.mkdir()
        (self.folder / "Makefile").touch()

    def agent(self, name: str, harness: str) -> "Agent":
        """An agent of the bus, not yet in the room."""
        return Agent(self.home, name, harness, self.folder)

    def member(self, name: str, harness: str) -> "Agent":
        """An agent in the room of the folder."""
        agent = self.agent(name, harness)
        agent.ok("room", "join")
        return agent

    def person(self, *words: str) -> Result:
        """The person, at a second terminal, in the same folder."""
        script = f"cd {shlex.quote(str(self.folder))} && pal {shlex.join(words)}"
        return check_output(run_script_as_person(self.home, script))

    def events(self, *types: str) -> list[JsonLine]:
        """What happened in the room of the folder, as programs read it."""
        return [event for event in self.home.events("--room", "shop") if not types or event["type"] in types]


class Stream:
    """A process that follows, as a harness or a person keeps one beside the work."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def next(self) -> JsonLine:
        """The next line, as soon as it is there."""
        line: JsonLine = json.loads(self._job.line())
        return line


class Agent:
    """A harness in the folder: one shell that is somebody, and the streams that it listens to."""

    def __init__(self, home: Home, name: str, harness: str, folder: Path) -> None:
        self.home = home
        self.name = name
        self.shell = home.shell()
        self.shell.begin_script(f"cd {shlex.quote(str(folder))}").end()
        self.shell.ok("join", "--name", name, "--harness", harness)

    def pal(self, *words: str) -> Result:
        return self.shell.pal(*words)

    def ok(self, *words: str) -> Result:
        return self.shell.ok(*words)

    def listen(self, *words: str) -> Stream:
        """Start something that goes on beside all the shell does."""
        return Stream(self.beside(*words))

    def beside(self, *words: str) -> Job:
        """Start a command beside all the shell does."""
        job = Job(self.home.spare_path())
        paths = {name: shlex.quote(str(path)) for name, path in job.paths.items()}
        line = f"(pal {shlex.join(words)} >{paths['out']} 2>{paths['err']}; echo $? >{paths['status']}) &\n"
        assert self.shell.process.stdin is not None
        self.shell.process.stdin.write(line.encode())
        self.shell.process.stdin.flush()
        return job

    def follow(self, *filters: str) -> Stream:
        """Follow the room from its first event on."""
        return self.listen("events", "--follow", "--room", "shop", "--all", "--json", *filters)

    def claim(self) -> JsonLine:
        """Take the stick, which must be free or reserved for this one."""
        turn = self.ok("stick", "claim", "--json").json
        assert turn["status"] == "your_turn"
        return turn

    def state(self) -> JsonLine:
        """The room as it is now."""
        return self.ok("room", "state", "--json").json

    def sees_waiting(self, name: str) -> None:
        """Look until the room shows that somebody waits for the stick."""
        wait_until(lambda: bool(self._member(name)["waiting"]))

    def sees_away(self, name: str) -> None:
        """Look until the room shows that somebody is there no more."""
        wait_until(lambda: not self._member(name)["present"])

    def _member(self, name: str) -> JsonLine:
        (found,) = [member for member in self.state()["members"] if member["agent_id"] == name]
        member: JsonLine = found
        return member
