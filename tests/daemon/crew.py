"""Agents that share a workspace, as real processes: a shell each, and commands that follow in parallel."""

import json
import shlex
from pathlib import Path

from tests.daemon.stage import Home, Job, JsonLine, Result, check_output, run_script_as_person, wait_until

HANDOFF = ("--status", "parser done", "--next", "review it")


class Crew:
    """A home and the workspace folder that all agents share."""

    def __init__(self, home: Home, folder: str = "shop") -> None:
        self.home = home
        self.folder = home.path.parent / folder
        self.folder.mkdir()
        (self.folder / "Makefile").touch()

    def agent(self, name: str, harness: str) -> "Agent":
        """Return a joined agent that is not in the room yet."""
        return Agent(self.home, name, harness, self.folder)

    def member(self, name: str, harness: str) -> "Agent":
        """Return an agent that is a member of the folder's room."""
        agent = self.agent(name, harness)
        agent.ok("room", "join")
        return agent

    def person(self, *words: str) -> Result:
        """Run a command as the person, at a second terminal in the same folder."""
        script = f"cd {shlex.quote(str(self.folder))} && pal {shlex.join(words)}"
        return check_output(run_script_as_person(self.home, script))

    def events(self, *types: str) -> list[JsonLine]:
        """Return the events of the folder's room, as parsed JSON."""
        return [event for event in self.home.events("--room", "shop") if not types or event["type"] in types]


class Stream:
    """A follow process that a harness or a person keeps running during the work."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def next(self) -> JsonLine:
        """Wait for the next line and return it."""
        line: JsonLine = json.loads(self._job.line())
        return line


class Agent:
    """A harness in the folder: one shell with a joined agent, and the streams that it listens to."""

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
        """Start a follow command in the background of the shell."""
        return Stream(self.run_in_background(*words))

    def run_in_background(self, *words: str) -> Job:
        """Start a command in the background of the shell."""
        job = Job(self.home.spare_path())
        paths = {name: shlex.quote(str(path)) for name, path in job.paths.items()}
        line = f"(pal {shlex.join(words)} >{paths['out']} 2>{paths['err']}; echo $? >{paths['status']}) &\n"
        assert self.shell.process.stdin is not None
        self.shell.process.stdin.write(line.encode())
        self.shell.process.stdin.flush()
        return job

    def follow(self, *filters: str) -> Stream:
        """Follow the room from its first event."""
        return self.listen("events", "--follow", "--room", "shop", "--all", "--json", *filters)

    def claim(self) -> JsonLine:
        """Claim the stick, which must be free or reserved for this agent."""
        turn = self.ok("stick", "claim", "--json").json
        assert turn["status"] == "your_turn"
        return turn

    def state(self) -> JsonLine:
        """Return the current state of the room."""
        return self.ok("room", "state", "--json").json

    def sees_waiting(self, name: str) -> None:
        """Wait until the room shows that the member waits for the stick."""
        wait_until(lambda: bool(self._member(name)["waiting"]))

    def sees_away(self, name: str) -> None:
        """Wait until the room shows that the member is not present."""
        wait_until(lambda: not self._member(name)["present"])

    def _member(self, name: str) -> JsonLine:
        (found,) = [member for member in self.state()["members"] if member["agent_id"] == name]
        member: JsonLine = found
        return member
