"""Run one command of the thin client: reach a daemon, send the request, read input, write output."""

from __future__ import annotations

import _socket
import errno
import os
import select
import signal
import stat
import sys
import time

from palaver.app.thin.call import (
    PIECE_BYTES,
    MalformedFrameError,
    ThinCall,
    ThinFrameReader,
    ThinUsageError,
    complain,
    die_of,
    find_home,
    frame,
    parse_limit,
    parse_output,
    request,
    request_fields,
    with_ui,
    working_directory,
    write_all,
    write_out,
)
from palaver.client import start
from palaver.client.start import CAUGHT_SIGNALS, NoHope, StartError, above_stdio
from palaver.version import __version__

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import NoReturn

# --------------------
# How the thin client connects to a daemon, by the rules of its verb, or runs Python if it needs none.
#
# Help never has an effect, `down` starts nothing, `up` starts a stopped bus, and both refuse invalid
# arguments before they do anything. Knows nothing about the frames on the connection.
# native/connect.c is the same in C.

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
            # Only then, because importing the command table takes far longer than all the rest.
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
            # A mistyped --home would otherwise make a second, empty bus.
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
        # Before the signal: a client that waits for a daemon would otherwise start the next one.
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
        # The name of a program may contain a parenthesis, so the state comes after the last one.
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
    # A ticket fits into the buffer of a pipe, so this write does not wait for a reader.
    os.write(write, words[at + 1])
    os.close(write)
    read = start.above_stdio(read)
    os.set_inheritable(read, True)  # the program that replaces this process reads it
    return [*words[:at], b"--ticket-fd", str(read).encode(), *words[at + 2 :]]


# --------------------
# Input that the thin client reads for the daemon: standard input, or a file with the caller's rights.
#
# Nothing is read before the daemon asks for it. One source is read at a time; the caller waits until it is
# readable.


class Input:
    """Reads piece by piece and sends each piece.

    Standard input is kept as far as it was read: after a crash the repeated request asks for it again, and
    then it is sent from its start. A file is read again.
    """

    def __init__(self, send: Callable[[bytes], bool]) -> None:
        """`send` puts a frame on the wire and returns whether there is a connection."""
        self._send = send
        self._kept = bytearray()
        self._has_ended = False  # a terminal must not be read again after its end
        self._left: int | None = None
        self.fd: int | None = None
        """The descriptor to wait for before `pump`; None if nothing is to be read."""

    def begin_stdin(self, limit_bytes: int | None) -> None:
        """Send the input that was kept; the rest is sent by `pump`."""
        self.fd, self._left = 0, limit_bytes
        replay = memoryview(bytes(self._kept[:limit_bytes]))
        for at in range(0, len(replay), PIECE_BYTES):
            self._send_piece(replay[at : at + PIECE_BYTES])
        if self.fd is not None and self._has_ended:
            self._finish(frame(b"Z"))

    def begin_file(self, limit_bytes: int | None, path: bytes) -> None:
        """Open a file; its content is sent by `pump`. A failure to open is reported at once."""
        self._left = limit_bytes
        try:
            # Opening a named pipe would wait for a writer. A pipe of the shell, /dev/fd/63, is a link.
            if stat.S_ISFIFO(os.lstat(path).st_mode):
                self._send(_unreadable_pipe())
                return
            # O_NOCTTY: a process that leads a session without a terminal would get the opened one, and its
            # signals.
            self.fd = above_stdio(os.open(path, os.O_RDONLY | os.O_NOCTTY))
        except OSError as error:
            self._send(_unreadable(error.errno or 0))
        except ValueError:  # a name with NUL is never a file
            self._send(_unreadable(errno.EINVAL))

    def pump(self) -> None:
        """Read one piece and send it."""
        assert self.fd is not None
        try:
            data = os.read(self.fd, PIECE_BYTES if self._left is None else min(self._left, PIECE_BYTES))
        except BlockingIOError:
            return
        except OSError as error:
            self._finish(_unreadable(error.errno or 0))
            return
        if self.fd == 0:
            self._kept += data
            self._has_ended = not data
        if data:
            self._send_piece(data)
        else:
            self._finish(frame(b"Z"))

    def stop(self) -> None:
        """Stop reading. Kept input stays kept."""
        if self.fd:
            os.close(self.fd)
        self.fd = None

    def _send_piece(self, data: bytes | memoryview) -> None:
        if not self._send(frame(b"D", data)):
            self.stop()  # the connection is lost
        elif self._left is not None:
            self._left -= len(data)
            if self._left == 0:
                self._finish(frame(b"Z"))

    def _finish(self, last: bytes) -> None:
        self.stop()
        self._send(last)


def _unreadable_pipe() -> bytes:
    return frame(b"X", f"{errno.EINVAL} it is a named pipe; pipe its content in with --stdin".encode())


def _unreadable(number: int) -> bytes:
    return frame(b"X", f"{number} {os.strerror(number)}".encode())


# --------------------
# The thin client in Python: `pal` if no C compiler was available. native/pal.c is the same in C.
#
# It passes its call to the daemon and carries out the daemon's frames: read standard input or a file, write
# output, run a verb in Python, exit. It parses no result, and reads nothing that the daemon did not ask for.


_REPEATS = 5
_END_LIMIT_S = 2  # to write out what the daemon sent before a signal, if no process reads it
_RECEIVE_BYTES = 262144
_UNDIVIDED_BYTES = 4096  # a socket takes this much as a whole or not at all
_END_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
# `main` restores SIGPIPE for the output, and a lost daemon must not end this process by it.
_NO_SIGNAL = getattr(_socket, "MSG_NOSIGNAL", 0)  # macOS has a socket option instead


class _Client:
    """One call and its connection.

    A repeated request has the same key and continues after the flushed output.
    """

    def __init__(self, call: ThinCall) -> None:
        directory = working_directory()
        self._call = call
        self._home = find_home(call, directory)
        self._reach = DaemonReach(call, self._home)
        self._fields = request_fields(call, directory)
        self._token = b""
        self._wire: start.Socket | None = None
        self._can_speak = False  # no frame of ours is half sent
        self._has_heard = False  # the current connection has carried a frame
        self._has_written = False  # to standard output
        self._is_patient = False  # it waits for something, and survives any number of lost daemons
        self._is_follower = False  # a daemon has sent G
        self._begin = b""  # the seqs at which a follower began
        # the daemon wants to be notified of SIGTERM and SIGHUP, and then sends the end
        self._is_gentle = False
        self._ending = 0  # the signal that the daemon was, or will be, notified of
        self._has_reported = False  # the daemon was notified of a signal
        self._woken: int | None = None  # readable after a signal
        self._is_monitor = call.verb in (b"monitor", b"rewake")
        self._harness: int | None = None  # readable after the process that keeps a monitor running has ended
        self._input = Input(self._send)
        self._silence = SlowDaemonNotice()

    def for_hook(self) -> tuple[str, list[tuple[bytes, bytes]]]:
        """Return what a hook needs: it has its own connection."""
        return self._home, self._fields

    def run(self) -> NoReturn:
        """Make the request, repeatedly if needed, until the daemon sends the exit status."""
        self._reach.prepare()
        if self._call.verb == b"rewake":
            from palaver.app.thin.hook import rewake_fields  # only here: few commands need it

            self._fields = [*self._fields, *rewake_fields()]
        self._catch_signals()
        if self._call.verb == b"mcp":
            self._run_pump()
        if self._is_monitor:
            from palaver.app.thin.hook import run_monitor  # only here: few commands need it

            run_monitor(self._home, self._watch)
        repeats = 0
        while repeats <= _REPEATS or self._is_patient:
            self._wire = (self._reach.open_patiently if self._is_patient else self._reach.open)(repeats)
            repeats += 1
            if self._wire is not None:
                self._serve_and_close(self._wire)
                self._wire = None
                if self._ending:  # the daemon was lost before it could send the end
                    self._end_follower(self._ending)
                if self._has_heard:
                    repeats = 1
        raise StartError("the connection to the daemon was lost")

    def _run_pump(self) -> NoReturn:
        from palaver.app.thin.pump import FOR_A_HARNESS, McpPump  # only here: no other command needs it

        if os.isatty(0):
            raise StartError(FOR_A_HARNESS)
        pump = McpPump(self._home, self._fields, write_out, self._use_wire, self._obey)
        pump.run(self._reach.open(0))

    def _watch(self, wire: start.Socket, harness: int | None) -> bool:
        """Serve a daemon until it is lost, in a monitor; return whether it sent anything."""
        self._wire, self._harness = wire, harness
        self._serve_and_close(wire)
        if self._ending:  # the daemon was lost before it could send the end
            die_of(self._ending)
        return self._has_heard

    def _use_wire(self, wire: start.Socket | None) -> None:
        self._wire = wire
        self._can_speak = False

    def _serve_and_close(self, wire: start.Socket) -> None:
        self._serve(wire)
        self._can_speak = self._is_gentle = False
        wire.close()

    def _serve(self, wire: start.Socket) -> None:
        """Carry out the daemon's frames until the connection ends. Q and V end the process."""
        frames = ThinFrameReader()
        is_stepping_down = self._has_heard = False
        self._send(request([*self._fields, (b"r", self._token)] if self._token else self._fields))
        while True:
            if self._is_monitor and self._is_output_lost(wire):
                os._exit(0)
            limit_s = None if self._has_heard else self._silence.limit_s
            ready = _wait_for(limit_s, wire.fileno(), self._woken, self._input.fd)
            if not ready:
                self._silence.look(self._home, is_quiet=self._is_monitor)
                continue
            # The daemon first: its frame may say that the input is not needed any more.
            if wire.fileno() not in ready:
                if self._woken in ready:  # a signal came just before the wait, and was handled just now
                    os.read(self._woken, _RECEIVE_BYTES)
                else:
                    self._input.pump()
                continue
            try:
                data = wire.recv(_RECEIVE_BYTES)
            # A daemon that ends before it has read everything resets the connection: this is its end too.
            except ConnectionError:
                data = b""
            if not data:
                break
            if is_stepping_down:  # only the end matters now
                continue
            frames.feed(data)
            while not is_stepping_down and (taken := frames.take()):
                is_stepping_down = not self._obey(*taken)
        if self._call.is_waiting and not is_stepping_down:
            self._is_patient = True  # The daemon may have died before it could send W or G.
        self._input.stop()

    def _is_output_lost(self, wire: start.Socket) -> bool:
        from palaver.app.thin.hook import is_output_lost  # only a monitor needs it

        # While a file is read for the daemon, do not wait here.
        return is_output_lost(wire.fileno(), self._harness, None if self._input.fd is None else 0)

    def _obey(self, kind: bytes, payload: bytes) -> bool:
        """Carry out one frame. False: the daemon is stepping down."""
        if kind == b"N":
            self._reach.step_aside()
            self._input.stop()
            return False
        # Not for N: a client and a daemon that each find the other too old must not repeat this indefinitely.
        self._has_heard = True
        if kind == b"O":
            self._write_output(payload)
        elif kind == b"E":
            write_all(2, memoryview(b"" if self._call.verb == b"rewake" else payload))
        elif kind == b"I" and len(payload) == 4 and self._input.fd is None:
            self._input.begin_stdin(parse_limit(payload)[0])
        elif kind == b"F" and self._input.fd is None:
            self._input.begin_file(*parse_limit(payload))
        elif kind == b"V":
            assert self._wire is not None
            self._wire.close()
            self._reach.run_python(b"palaver.app", hide_ticket(payload.split(b"\0") if payload else []))
        elif kind == b"Q" and len(payload) == 1:
            self._end(payload[0])
        elif kind == b"G":
            signal.signal(signal.SIGALRM, self._on_end_limit)
            self._begin = payload or self._begin
            self._is_gentle = self._is_follower = self._is_patient = True
        elif kind == b"W":
            self._is_patient = True
        else:
            raise MalformedFrameError
        return True

    def _write_output(self, payload: bytes) -> None:
        number, token, data = parse_output(payload)
        write_out(data)
        self._has_written = self._has_written or bool(data)
        # Before the A: once the daemon counts the frame as flushed, a repeat must start after it.
        self._token = token or self._token
        self._send(frame(b"A", number))

    def _send(self, data: bytes) -> bool:
        """Send all of it. A lost connection is noticed by reading, after the last frames of the daemon."""
        assert self._wire is not None
        # A signal may come in the middle of a large frame, when no other frame may be sent.
        if len(data) > _UNDIVIDED_BYTES:
            self._can_speak = False
        try:
            self._wire.sendall(data, _NO_SIGNAL)
        except OSError:
            self._can_speak = False
            return False
        self._can_speak = True
        if self._ending and not self._has_reported:  # the signal came while the frame was sent
            self._tell(self._wire, self._ending)
        return True

    def _tell(self, wire: start.Socket, number: int) -> None:
        """Notify the daemon of a signal, without waiting for it."""
        self._has_reported = True
        try:
            # Called in a signal handler, which must not block on a daemon that does not read.
            wire.send(frame(b"S", bytes([number])), _NO_SIGNAL | _socket.MSG_DONTWAIT)
        except OSError:
            self._can_speak = False  # the connection is lost: the closed socket must be enough

    def _end(self, status: int) -> NoReturn:
        self._can_speak = False
        if self._wire is not None:
            self._wire.close()
        if self._call.verb == b"down" and status == 0:
            self._reach.await_end()
        # An error message must not wake the session.
        os._exit(0 if self._call.verb == b"rewake" and not self._has_written else status)

    def _catch_signals(self) -> None:
        # Without it a signal just before a wait would be handled only after that wait.
        self._woken, waking = map(start.above_stdio, os.pipe())
        os.set_blocking(waking, False)
        signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
        for number in CAUGHT_SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup, or a background job: it stays ignored
                signal.signal(number, self._on_signal)

    def _end_follower(self, number: int) -> NoReturn:
        """End a follower without a daemon that could send the cursor: nothing is left to write out."""
        token = bytes(byte if 48 <= byte <= 57 else 32 for byte in self._token)  # only its digits
        seqs = [int(seq) for seq in (*token.split(), *self._begin.split())]
        if not seqs:
            die_of(number)
        write_all(2, memoryview(f"cursor_event_seq={max(seqs)}\n".encode()))
        os._exit(0)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self._is_follower and not self._is_gentle and number in _END_SIGNALS:
            self._end_follower(number)
        is_end = self._is_gentle and not self._ending and number in _END_SIGNALS
        if is_end:
            self._ending = number
            # Do not wait for a reader that never reads, or for a daemon that hangs.
            signal.setitimer(signal.ITIMER_REAL, _END_LIMIT_S)
        # Inside another frame, S would be read as its content; then the closed socket must be enough.
        if self._can_speak and self._wire is not None and not self._has_reported:
            self._tell(self._wire, number)
        if not is_end:
            die_of(number)

    def _on_end_limit(self, _: int, __: FrameType | None) -> None:
        die_of(self._ending)


def main() -> NoReturn:
    """Run the client on the arguments of the process, and exit without the interpreter's slow cleanup."""
    # Python ignores it. A command whose reader has closed the pipe ends silently, as any other program.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    call = ThinCall(with_ui([os.fsencode(argument) for argument in sys.argv[1:]]))
    try:
        if call.is_version:
            line = f'{{"version":"{__version__}"}}\n' if call.is_json else f"pal {__version__}\n"
            if error := write_all(1, memoryview(line.encode())):
                raise StartError(f"standard output: {error.strerror}")
            os._exit(0)
        if call.verb == b"hook":
            from palaver.app.thin.hook import HookTimeLimit, run_hook

            limit = HookTimeLimit(call.arguments[call.verb_at or 0 :])
            run_hook(*_Client(call).for_hook(), limit)
        _Client(call).run()
    except (StartError, ThinUsageError, MalformedFrameError) as error:
        # A hook must never disturb its harness: it ends silently with status 0.
        if call.verb in (b"hook", b"rewake"):
            os._exit(0)
        is_usage = isinstance(error, ThinUsageError)
        complain(error, is_json=call.is_json, code="usage" if is_usage else "unavailable")
        os._exit(2 if is_usage else 1)


def _wait_for(limit_s: float | None, *sources: int | None) -> list[int]:
    """Wait until one of these is readable, and return those that are; empty after a timeout."""
    waiting = select.poll()
    for source in sources:
        if source is not None:
            waiting.register(source, select.POLLIN)
    return [fd for fd, _ in waiting.poll(None if limit_s is None else limit_s * 1000)]


if __name__ == "__main__":
    main()
