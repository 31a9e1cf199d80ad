"""How the thin client connects to a daemon, by the rules of its verb, or runs Python if it needs none.

Help never has an effect, `down` starts nothing, `up` starts a stopped bus, and both refuse invalid arguments
before they do anything. Knows nothing about the frames on the connection.

A separate module, as in the client in C: native/connect.c is the same there.
"""

from __future__ import annotations

import os
import signal
import time

from palaver.app.thin.call import write_all
from palaver.client import start
from palaver.client.start import NoHope, StartError
from palaver.version import __version__

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from typing import NoReturn

    from palaver.app.thin.call import ThinCall

_LONGEST_PAUSE_S = 2.0
_PROMPT_REPEATS = 5  # up to this many, reconnect to a listening daemon without a pause
_QUIET_FAILURES = 5  # failures of a patient command before it prints the reason
_NOT_FOUND = 127  # exit status of a child that could not run another program

_STOPPED_S = 2  # of silence; then it is checked whether a signal has stopped the daemon
_SILENT_S = 10  # of silence; then a notice is printed in any case


class DaemonReach:
    """The connection of one call to the daemon of a home."""

    def __init__(self, call: ThinCall, home: str) -> None:
        self._call = call
        self._home = home
        self._up = "pal up" if call.home is None else f"pal up --home {home}"
        self._has_spawned = False
        self._failures = 0

    def prepare(self) -> None:
        """Run the first steps of `up` and `down`; in the foreground `up` ends here.

        So does a repair: the daemon may be unable to start, and must not run.
        """
        if self._call.is_repair:
            self.run_python(b"palaver.app", self._call.arguments)
        if self._call.verb not in (b"up", b"down"):
            return
        if self._call.has_more_words():
            self._check_arguments()
        if self._call.verb == b"up" and self._call.is_foreground:
            own = [b"--home", os.fsencode(self._home), b"--foreground"]
            self.run_python(b"palaver.daemon", own + self._call.foreground_arguments())

    def open(self, repeats: int) -> start.Socket | None:
        """Connect by the rules of the verb; None if the daemon was lost again. `repeats` is 0 at first."""
        verb = self._call.verb
        if repeats > _PROMPT_REPEATS:  # even if a daemon listens: it may close every connection at once
            _pause_before_repeat(repeats)
        try:
            wire = start.reach(self._home)
        except StartError:
            if verb != b"help":  # help needs no daemon
                raise
            wire = None
        if wire is not None:
            return wire
        if verb == b"help":
            self.run_python(b"palaver.app", self._call.arguments)
        if verb == b"down":
            return self._reach_for_down()
        if 0 < repeats <= _PROMPT_REPEATS:  # another process may be starting it already
            _pause_before_repeat(repeats)
            if wire := start.reach(self._home):
                return wire
        if self._call.is_look and not repeats:
            self._end_look()
        if self._call.home is not None and verb != b"up":
            self._check_named_home()
        person: bool | None = None  # not known: `start` looks at the terminal
        if verb == b"up":
            person = True
        elif repeats:
            # A follower that was running when the bus was stopped must not start it again, whatever started
            # the follower.
            person = False
        return start.start(
            self._home, person=person, spawned=self._note_spawned, up=self._up, report=_report_start
        )

    def _check_named_home(self) -> None:
        """Refuse a missing folder, or one with other files and no bus: only `pal up` creates one there."""
        way = f"to create a bus there, run '{self._up}'"
        if not os.path.exists(self._home):  # noqa: PTH110 - pathlib is slow to import
            raise NoHope(f"{self._home} does not exist; {way}")
        try:
            names = set(os.listdir(self._home))  # noqa: PTH208 - as above
        except OSError:
            return  # no folder, or an unreadable one: the start says why it fails
        if names and names.isdisjoint(("start.lock", "log.sqlite")):
            raise NoHope(f"{self._home} is not the home of a bus; {way}")

    def _end_look(self) -> None:
        """End a command that only shows the bus, if the bus was stopped or never existed.

        After a crash or a restart of the machine it is started as by any other command.
        """
        is_stopped = os.path.lexists(f"{self._home}/down")
        if not is_stopped and os.path.exists(self._home):  # noqa: PTH110 - as above
            return
        if self._call.verb == b"doctor":
            self.run_python(b"palaver.app", self._call.arguments)
        if is_stopped:
            raise NoHope(start.stopped_text(self._up))
        if self._call.home is None:  # the refusal of a folder named with --home follows
            raise NoHope(f"the bus is not running, and {self._home} does not exist; 'pal up' creates it")

    def open_patiently(self, repeats: int) -> start.Socket | None:
        """Connect like `open`, but report only once that no daemon could be started, and return None then."""
        try:
            wire = self.open(repeats)
        except NoHope:
            raise
        except StartError as error:
            if self._failures == _QUIET_FAILURES:
                write_all(2, memoryview(f"pal: {error}; trying again\n".encode()))
            self._failures += 1
            return None
        self._failures = 0
        return wire

    def step_aside(self) -> None:
        """Handle a daemon that steps down for a newer one. If this client has started it, raise an error."""
        if self._has_spawned:
            raise StartError(
                f"this pal is {__version__}, and the package that {start.find_python()} starts is older: "
                "reinstall Palaver there, so that both have the same version"
            )

    def await_end(self) -> None:
        """Wait until a daemon that was ordered to stop has ended."""
        end_s = time.monotonic() + start.GONE_LIMIT_S
        while start.is_daemon_alive(self._home):
            if time.monotonic() > end_s:
                raise StartError(f"the daemon has not ended yet; see {self._home}/daemon.log")
            time.sleep(0.01)

    def run_python(self, module: bytes, arguments: list[bytes]) -> NoReturn:
        """Replace this process by Python: `-I` ignores the caller's directory and PYTHON variables."""
        python = start.find_python()
        os.environ["PALAVER_HOME"] = self._home
        signal.setitimer(signal.ITIMER_REAL, 0)  # it would survive the exec and kill it
        try:
            program = [os.fsencode(python), b"-I", b"-m", module, *arguments]
            os.execvp(python, program)  # noqa: S606 - no shell is involved
        except OSError as error:
            raise StartError(f"cannot run {python}: {error.strerror}") from error

    def _note_spawned(self) -> None:
        self._has_spawned = True

    def _check_arguments(self) -> None:
        """Check the arguments in Python, whose command table is slow to import; exit if they are invalid."""
        python = start.find_python()
        program = [os.fsencode(python), b"-I", b"-m", b"palaver.app", b"__check", *self._call.arguments]
        status = os.spawnvp(os.P_WAIT, python, program)  # noqa: S606 - no shell is involved
        if status == _NOT_FOUND:
            raise StartError(f"cannot run {python}: it does not exist")
        if status:
            os._exit(max(status, 1))

    def _reach_for_down(self) -> start.Socket:
        """Connect to a daemon that does not listen yet, or end it by its lock; or report that none runs."""
        if wire := start.await_listening(self._home):
            return wire
        pid = start.daemon_pid(self._home)
        if not start.is_daemon_alive(self._home):
            self._end_not_running()
        self._keep_down()
        if not pid:
            raise StartError(
                f"a daemon or 'pal doctor --repair' runs, but {self._home}/daemon.lock does not say which "
                "process it is: wait until the repair has ended"
            )
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            pass  # it has just ended
        except OSError as error:
            raise StartError(f"the daemon (process {pid}) cannot be ended: {error.strerror}") from error
        self.await_end()
        text = f"the bus is stopped; nothing is lost, '{self._up}' starts it again\n"
        if self._call.is_json:
            text = f'{{"pid":{pid},"stopped":true}}\n'
        write_all(1, memoryview(text.encode()))
        os._exit(0)

    def _end_not_running(self) -> NoReturn:
        self._keep_down()
        if self._call.is_json:
            write_all(1, memoryview(b'{"pid":null,"stopped":false}\n'))
        else:
            write_all(2, memoryview(b"pal: the bus is not running\n"))
        os._exit(0)

    def _keep_down(self) -> None:
        """Record that the bus should stay down."""
        try:
            os.close(os.open(f"{self._home}/down", os.O_WRONLY | os.O_CREAT, 0o600))
        except FileNotFoundError:
            pass  # without a home there is nothing to record
        except OSError as error:
            raise StartError(start.unusable_home(self._home, error)) from error


def _report_start(text: str) -> None:
    """Report on standard error that the start of the daemon takes a while."""
    write_all(2, memoryview(f"pal: {text}\n".encode()))


class SlowDaemonNotice:
    """Reports once on standard error that the daemon does not respond. The wait continues."""

    def __init__(self) -> None:
        self.limit_s: float | None = _STOPPED_S
        """Seconds to wait for the first frame before `look`; None without a limit."""

    def look(self, home: str, *, is_quiet: bool) -> None:
        """Report a stopped daemon now, and a daemon that is only silent some seconds later."""
        pid = start.daemon_pid(home)
        is_first, self.limit_s = self.limit_s == _STOPPED_S, None
        if is_stopped(pid):
            text = f"pal: the daemon (process {pid}) is stopped and does not answer; still waiting."
            text += f" 'kill -CONT {pid}' continues it\n"
        elif is_first:
            self.limit_s = _SILENT_S - _STOPPED_S
            return
        else:
            text = f"pal: the daemon (process {pid}) has not answered for {_SILENT_S} s; still waiting\n"
        if not is_quiet:
            write_all(2, memoryview(text.encode()))


def _pause_before_repeat(repeats: int) -> None:
    time.sleep(min(0.01 * 2 ** min(repeats, 8), _LONGEST_PAUSE_S))


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal, if the system shows that."""
    try:
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return False
    try:
        return os.read(file, 512).rpartition(b") ")[2][:1] in (b"T", b"t")
    finally:
        os.close(file)


def hide_ticket(words: list[bytes]) -> list[bytes]:
    """Put a ticket into a pipe and pass its descriptor: every process of this user can read arguments."""
    options = words[: words.index(b"--")] if b"--" in words else words
    if b"--ticket" not in options[:-1]:
        return words
    at = options.index(b"--ticket")
    read, write = os.pipe()
    os.write(write, words[at + 1])
    os.close(write)
    read = start.above_stdio(read)
    os.set_inheritable(read, True)  # the program that replaces this process reads it
    return [*words[:at], b"--ticket-fd", str(read).encode(), *words[at + 2 :]]
