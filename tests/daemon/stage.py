"""A home with the real client and real daemons, and processes that can be agents."""

import contextlib
import json
import os
import pty
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO, Any

from tests.daemon_log import check_daemon_log
from tests.forked_daemons import fork_daemon
from tests.limits import LIMIT_S
from tests.processes import end_process, end_processes_of

NOBODY = 65534
PAL = str(Path(sys.executable).with_name("pal"))

JsonLine = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    """The exit status and output of a command."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> JsonLine:
        """The only object on standard output."""
        (line,) = self.lines
        return line

    @property
    def lines(self) -> list[JsonLine]:
        """Every object on standard output."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> JsonLine:
        """The error object on standard error."""
        refusal: JsonLine = json.loads(self.err)
        return refusal


def check_output(result: Result) -> Result:
    """Require that a command succeeded."""
    assert result.status == 0, result
    return result


class Home:
    """One home. Every process started in it ends with it."""

    expects_tracebacks = False
    """Set by a test that makes the daemon fail on purpose."""

    limit_s = LIMIT_S
    """Seconds that a command may take. A home in which something slow runs sets its own limit."""

    def __init__(self, path: Path, client: str = PAL) -> None:
        self.path = path
        self.client = client
        self._names = count()
        self._running: list[subprocess.Popen[bytes]] = []
        self._shells: list[Shell] = []

    @property
    def environment(self) -> dict[str, str]:
        """A minimal environment: the process that runs the tests must not pass on any mark."""
        environment = {
            "PATH": f"{Path(self.client).parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.path.parent),
            "PALAVER_HOME": str(self.path),
            "LANG": "C.UTF-8",
        }
        if self.client != PAL:
            environment["PALAVER_PYTHON"] = sys.executable
        return environment

    # Commands

    def start(
        self,
        *arguments: str | bytes,
        env: Mapping[str, str] | None = None,
        before: Sequence[str] = (),
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
        **options: Any,
    ) -> subprocess.Popen[bytes]:
        """Start the client. It is a script, because no process above it is an agent."""
        process = subprocess.Popen(
            [*before, self.client, *arguments],
            env={**self.environment, **(env or {})},
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            **options,
        )
        self._running.append(process)
        return process

    def pal(self, *arguments: str | bytes, content: bytes | None = None, **options: Any) -> Result:
        """Run the client until it exits."""
        stdin = subprocess.DEVNULL if content is None else subprocess.PIPE
        return finish(self.start(*arguments, stdin=stdin, **options), content, self.limit_s)

    def ok(self, *arguments: str | bytes, **options: Any) -> Result:
        """Run a command that must succeed."""
        return check_output(self.pal(*arguments, **options))

    def events(self, *filters: str) -> list[JsonLine]:
        """Return every event in the log, as parsed JSON."""
        return self.ok("events", "--all", "--json", *filters).lines

    def texts(self) -> list[str]:
        """Return the texts of all messages, in order."""
        return [event["payload"]["text"] for event in self.events("--type", "message")]

    # The daemon

    def start_daemon(self) -> None:
        """Start the daemon in much less time than `pal up`, which a test about the start itself uses."""
        fork_daemon(self.path, self.environment)

    @property
    def pid(self) -> int:
        """The process id of the running or most recent daemon."""
        return int((self.path / "daemon.lock").read_text())

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send the daemon a signal and wait until it has exited."""
        end_process(self.pid, number)

    def shell(self, env: Mapping[str, str] | None = None) -> "Shell":
        """Start a shell that stays and can join as an agent."""
        shell = Shell(self, env=env)
        self._shells.append(shell)
        return shell

    def spare_path(self) -> Path:
        """Return an unused path next to the home."""
        return self.path.parent / f"spare-{next(self._names)}"

    def close(self) -> None:
        """End every started process by its id. A process that restarts must find the bus stopped."""
        if self.path.exists():
            (self.path / "down").touch()
        for shell in self._shells:
            shell.close()
        for process in self._running:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        # Also holders, and a daemon that a killed client has just started.
        end_processes_of(self.path.parent)
        if not self.expects_tracebacks:
            check_daemon_log(self.path)


class Shell:
    """A bash fed by a pipe: the process that `pal join` finds above it, for as long as the test needs."""

    def __init__(self, home: Home, *, env: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            stdin=subprocess.PIPE,
            env={**home.environment, **(env or {})},
            cwd=home.path.parent,
            process_group=0,
        )

    def begin(self, *words: str, env: Mapping[str, str] | None = None) -> "Job":
        """Start a command of the client under this shell."""
        marks = "".join(f"{name}={shlex.quote(value)} " for name, value in (env or {}).items())
        return self.begin_script(f"{marks}pal {shlex.join(words)}")

    def begin_script(self, script: str) -> "Job":
        """Start a line of shell script under this shell."""
        job = Job(self.home.spare_path(), self.home.limit_s)
        paths = {name: shlex.quote(str(path)) for name, path in job.paths.items()}
        line = f"{{ {script}; }} >{paths['out']} 2>{paths['err']}; echo $? >{paths['status']}\n"
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode())
        self.process.stdin.flush()
        return job

    def pal(self, *words: str, env: Mapping[str, str] | None = None) -> Result:
        """Run a command of the client under this shell."""
        return self.begin(*words, env=env).end()

    def ok(self, *words: str) -> Result:
        """Run a command that must succeed."""
        return check_output(self.pal(*words))

    def close(self) -> None:
        """End the shell and everything that it started, and wait until it has ended."""
        assert self.process.stdin is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()


class Job:
    """A command under a shell. Its outputs are pipes, so that a read waits for data."""

    def __init__(self, folder: Path, limit_s: float = LIMIT_S) -> None:
        folder.mkdir()
        self._limit_s = limit_s
        self.paths = {name: folder / name for name in ("out", "err", "status")}
        self._files: dict[str, int] = {}
        self._rest: dict[str, bytes] = {}
        for name, path in self.paths.items():
            os.mkfifo(path)
            self._files[name] = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            self._rest[name] = b""
        self._ended: set[str] = set()
        # Held open for writing too: an empty pipe must not count as ended before the status arrives.
        self._status_writer = os.open(self.paths["status"], os.O_WRONLY)

    def line(self, name: str = "out") -> str:
        """Return the next line that it writes."""
        while b"\n" not in self._rest[name]:
            self._read(name)
        line, _, self._rest[name] = self._rest[name].partition(b"\n")
        return line.decode()

    def end(self) -> Result:
        """Wait until it ends, and return all output that was not read before."""
        status = int(self.line("status"))
        for name in ("out", "err"):
            while name not in self._ended:
                self._read(name)
        for file in (*self._files.values(), self._status_writer):
            os.close(file)
        return Result(status, self._rest["out"].decode(), self._rest["err"].decode())

    def _read(self, wanted: str) -> None:
        """Read the available data from all pipes: a full pipe would block the command."""
        assert wanted not in self._ended, f"{wanted} has ended; it said: {self._rest['err'].decode()}"
        names = {file: name for name, file in self._files.items() if name not in self._ended}
        ready, _, _ = select.select(list(names), [], [], self._limit_s)
        assert ready, f"nothing came on {wanted}"
        for file in ready:
            try:
                part = os.read(file, 1 << 20)
            except BlockingIOError:
                continue  # A writer opened the empty pipe during `select`, which can then call it readable.
            self._rest[names[file]] += part
            if not part:
                self._ended.add(names[file])


@contextlib.contextmanager
def terminal() -> Iterator[int]:
    """Open a terminal for one person and yield the end that the person's programs use."""
    master, slave = pty.openpty()
    try:
        yield slave
    finally:
        os.close(master)
        os.close(slave)


def run_as_person(
    home: Home, *arguments: str, client: str = "pal", env: Mapping[str, str] | None = None
) -> Result:
    """Run the client in the foreground of a terminal, with only the first process above it."""
    return run_script_as_person(home, f"{shlex.quote(client)} {shlex.join(arguments)}", env=env)


def run_script_as_person(home: Home, script: str, *, env: Mapping[str, str] | None = None) -> Result:
    """Run lines of shell in the foreground of a terminal, with only the first process above them."""
    job = Job(home.spare_path(), home.limit_s)
    paths = {name: shlex.quote(str(path)) for name, path in job.paths.items()}
    script = f"{{ {script}; }} >{paths['out']} 2>{paths['err']}; echo $? >{paths['status']}"
    with terminal() as slave:
        command = ["bash", "--norc", "--noprofile", "-c", script]
        start_at_terminal(slave, command, env={**home.environment, **(env or {})}, limit_s=home.limit_s)
        return job.end()


def start_at_terminal(slave: int, command: Sequence[str], *, env: Mapping[str, str], limit_s: float) -> None:
    """Start a program in the foreground of a terminal, with only the first process above it.

    The program begins when its starter has exited: before that, the tests would be above it too.
    """
    begins, may_begin = os.pipe()
    try:
        wait = f'read -r <&{begins}; exec {begins}<&-; exec "$@"'
        starter = subprocess.Popen(
            ["setsid", "--fork", "--ctty", "bash", "--norc", "--noprofile", "-c", wait, "bash", *command],
            stdin=slave,
            env=env,
            pass_fds=[begins],
        )
        assert starter.wait(limit_s) == 0
    finally:
        os.close(begins)
        os.close(may_begin)


def finish(
    process: subprocess.Popen[bytes], content: bytes | None = None, limit_s: float = LIMIT_S
) -> Result:
    """Wait until a client exits, and return its result."""
    out, err = process.communicate(content, timeout=limit_s)
    return Result(process.returncode, (out or b"").decode(), (err or b"").decode())


def set_approvals(home: Home, *, wait_s: int = 600, is_on: bool = True) -> None:
    """Write a person's setting: from the next daemon start, agents wait for a person's approval."""
    home.path.mkdir(mode=0o700, exist_ok=True)
    (home.path / "config.toml").write_text(f"approvals = {int(is_on)}\napprovals_wait_s = {wait_s}\n")


def write_settings(home: Home, **values: str | int) -> None:
    """Write a person's settings file for the next start of the bus."""
    home.path.mkdir(mode=0o700, exist_ok=True)
    (home.path / "config.toml").write_text("".join(f"{k} = {json.dumps(v)}\n" for k, v in values.items()))


def wait_until(is_so: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """Poll until a condition holds, for facts that only the system shows. Sleep between checks."""
    end = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < end, "it never came to be so"
        time.sleep(0.005)


def is_connected(pid: int) -> bool:
    """Tell whether a process has a connected socket. A client has no other than the one to the daemon."""
    own: set[str] = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            link = os.readlink(path)
            own |= {link[len("socket:[") : -1]} if link.startswith("socket:[") else set()
    rows = [row.split() for row in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return any(row[6] in own and row[5] == "03" for row in rows)


@contextlib.contextmanager
def new_home(client: str = PAL) -> Iterator[Home]:
    """Create a home in its own directory, under a short path that another user may enter."""
    directory = Path(tempfile.mkdtemp(prefix="pal-daemon-"))
    directory.chmod(0o755)
    home = Home(directory / "home", client)
    try:
        yield home
    finally:
        try:
            home.close()
        finally:
            shutil.rmtree(directory, ignore_errors=True)  # a process may still write there
