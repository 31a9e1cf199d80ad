"""Prepare a Codex session: start its app-server, find its address and its last session."""

import ctypes
import json
import os
import secrets
import select
import shutil
import signal
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from palaver.harness.base import NATIVE_FOLDER, instructions
from palaver.harness.codex.hooks import hook_settings
from palaver.harness.codex.launch import (
    Kind,
    instructions_in,
    launch_settings,
    plan_launch,
    read_arguments,
    shell_tip,
)
from palaver.home import connect_socket, find_pal, is_address

# --------------------
# The address of a Codex app-server, and the last Codex session in a directory.

PREFIX: Final = "codex-"
"""The prefix of a server's directory; the rest is random."""

_LIMIT_SESSIONS: Final = 200
"""Newest session files to read, of all directories: `resume --last` waits for this search."""
_LIMIT_LINE_BYTES: Final = 1024 * 1024


def codex_address(home: str) -> str:
    """Return a new socket path for a server: in the Palaver home, or under /tmp if that path is too long."""
    name = f"{PREFIX}{secrets.token_hex(6)}"
    path = f"{home}/{NATIVE_FOLDER}/{name}/server.sock"
    # Codex uses the path as it is; only our own connections can use a short link to a long path.
    if is_address(Path(path)):
        return path
    return f"/tmp/palaver-{os.getuid()}/{name}/server.sock"  # noqa: S108 - `check_server_folder` checks it


def last_codex_session(environment: Mapping[str, str], cwd: str) -> str:
    """Return the session that Codex would resume in a directory; empty if there is no session."""
    folder = environment.get("CODEX_HOME") or f"{environment.get('HOME', '')}/.codex"
    files = sorted(_rollouts(Path(folder) / "sessions"), reverse=True)
    for _, path in files[:_LIMIT_SESSIONS]:
        session, where = _head(path)
        if where == cwd:
            return session
    return ""


def _rollouts(folder: Path) -> Iterator[tuple[float, Path]]:
    for path in folder.glob("*/*/*/rollout-*.jsonl"):
        try:
            yield path.stat().st_mtime, path
        except OSError:
            continue  # It was removed meanwhile.


def _head(path: Path) -> tuple[str, str]:
    """Read the session id and the start directory from a session file; both empty if it is unreadable."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.readline(_LIMIT_LINE_BYTES))["payload"]
            return str(found["id"]), str(found["cwd"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return "", ""


# --------------------
# Start and supervise a Codex app-server: it ends together with the terminal UI that uses it.
#
# When asked to end, an app-server first waits for its turns, and a turn that waits for the user never ends.
# So a supervisor process runs between the terminal UI and the server: it briefly outlives the UI, ends the
# server and removes its directory, whichever process was killed first.

START_LIMIT_S: Final = 20.0
LOG: Final = "server.log"

_PAUSE_S: Final = 0.01
_STALE_S: Final = 60.0
"""Seconds. A younger directory may belong to a server that does not listen yet."""
_END_LIMIT_S: Final = 3.0
"""Seconds from the first SIGTERM to SIGKILL."""
_CHECK_UI_S: Final = 60.0 if sys.platform == "linux" else 2.0
"""Seconds between checks whether the terminal UI runs. Linux also sends a signal when it ends."""
_CANNOT_RUN: Final = 126
"""The exit status with which a shell reports a program that cannot be run."""
_SET_PARENT_DEATH_SIGNAL: Final = 1
"""PR_SET_PDEATHSIG."""
_HANDLED_SIGNALS: Final = (signal.SIGTERM, signal.SIGCHLD)


def start_server(words: list[str], path: Path) -> bool:
    """Start a server and wait until it listens; return False if it does not start. Raises OSError.

    Call this in the process that becomes the terminal UI, before any thread starts.
    """
    make_server_folder(path)
    log = os.open(path.with_name(LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    ui = os.getpid()
    supervisor = os.fork()
    if supervisor == 0:
        try:
            _supervise(words, log, ui, path)
        finally:
            # Never return: this copy of the process would become a second terminal UI.
            os._exit(_CANNOT_RUN)
    os.close(log)
    limit = time.monotonic() + START_LIMIT_S
    while not listens(path):
        ended, _ = os.waitpid(supervisor, os.WNOHANG)
        if ended:
            return False
        if time.monotonic() > limit:
            # Its end takes the server and the directory with it, so that Codex alone starts cleanly.
            os.kill(supervisor, signal.SIGTERM)
            os.waitpid(supervisor, 0)
            return False
        time.sleep(_PAUSE_S)
    return True


def make_server_folder(path: Path) -> None:
    """Create the server's directory, and remove those of servers that no longer run."""
    folder = path.parent
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Before anything is created in it: another user may have created it.
    check_server_folder(path)
    folder.mkdir(mode=0o700, exist_ok=True)
    check_server_folder(path)
    for other in folder.parent.iterdir():
        with suppress(OSError):
            # If the supervisor and the holder were killed, the directory stays until now.
            is_old = time.time() - other.stat().st_mtime > _STALE_S
            if is_old and other.name.startswith(PREFIX) and not listens(other / path.name):
                shutil.rmtree(other, ignore_errors=True)


def check_server_folder(path: Path) -> None:
    """Raise PermissionError if another user may control the directory of a server's socket.

    Do nothing in a home, whose rights are checked elsewhere.
    """
    with suppress(FileNotFoundError):
        # Only where every user can write, as in /tmp, can another user create the directory first.
        if not path.parent.parent.parent.stat().st_mode & stat.S_IWOTH:
            return
        for folder in (path.parent.parent, path.parent):
            # Not followed: the owner of a link can let it point to another directory at any time.
            found = folder.lstat()
            is_private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o700
            if not is_private or found.st_uid != os.geteuid():
                raise PermissionError(
                    f"{folder} is not a private directory of this user: remove it, or choose a shorter path "
                    "with PALAVER_HOME"
                )


def listens(path: Path) -> bool:
    """Return whether a process accepts connections on a socket."""
    try:
        connect_socket(path, can_wait=False).close()
    except BlockingIOError:  # Its queue of connections is full, so a process has it open.
        return True
    except OSError:
        return False
    return True


def _supervise(words: list[str], log: int, ui: int, path: Path) -> None:
    """Run the server until it or the terminal UI ends. It has its own group, so keys do not signal it."""
    os.setpgid(0, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGTERM), 0, 0, 0)
    # A signal between the conditions of the loop and `select` would not end the `select`: its byte does.
    wake_read, wake_write = os.pipe()
    for descriptor in (wake_read, wake_write):
        os.set_blocking(descriptor, False)
    # A full pipe ends the `select` too, so it needs no warning.
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    must_end = False

    def on_signal(number: int, frame: object) -> None:
        nonlocal must_end
        must_end = must_end or number == signal.SIGTERM

    # SIGCHLD too: a signal without a handler writes no byte into the pipe.
    for number in _HANDLED_SIGNALS:
        signal.signal(number, on_signal)
    # A closing terminal must not end the supervisor, because no other process would end the server.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    server = os.fork()
    if server == 0:
        _become_server(words, log)
    # The server does this too. Whichever comes first: `_end` must find the group, or the server stays.
    with suppress(OSError):
        os.setpgid(server, server)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)  # Do not keep the terminal open.
    # The UI may have ended before `prctl`: then no signal comes, but the parent is another process.
    while not must_end and os.getppid() == ui:
        if os.waitpid(server, os.WNOHANG)[0]:
            _forget(path)
            return  # The directory stays: if this was during the start, the UI reads the reason from the log.
        select.select([wake_read], [], [], _CHECK_UI_S)
        # Emptied, or the next `select` would return at once.
        with suppress(BlockingIOError):
            os.read(wake_read, 4096)
    _end(server)
    _forget(path)
    shutil.rmtree(path.parent, ignore_errors=True)


def _forget(path: Path) -> None:
    """Remove the leftovers of a killed server: it listens elsewhere, and `path` is a link to that socket."""
    with suppress(OSError):
        target = path.readlink()
        if target.parent.name == f"codex-daemon-{os.getuid()}":
            target.with_name(f"{target.name}.lock").unlink(missing_ok=True)
            target.unlink(missing_ok=True)


def _end(server: int) -> None:
    """End the whole process group, first with repeated SIGTERM, then with SIGKILL.

    A second SIGTERM makes the server stop waiting for its turns.
    """
    # A server that was not reaped stays in its group; its tools are in the group too, and may end later.
    limit = time.monotonic() + _END_LIMIT_S
    number = signal.SIGTERM
    while True:
        with suppress(ProcessLookupError):
            os.killpg(server, number)
        pause = time.monotonic() + _END_LIMIT_S / 6
        while time.monotonic() < pause:
            with suppress(ChildProcessError):
                if os.waitpid(server, os.WNOHANG)[0] and not _is_group(server):
                    return
            if not _is_group(server):
                return
            time.sleep(_PAUSE_S)
        # No signal ends a process that survives this one.
        if number is signal.SIGKILL:
            return
        if time.monotonic() > limit:
            number = signal.SIGKILL


def _is_group(number: int) -> bool:
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _become_server(words: list[str], log: int) -> NoReturn:
    try:
        os.setpgid(0, 0)
        # The pipe belongs to the supervisor: a signal to the server must not wake it.
        signal.set_wakeup_fd(-1)
        # The supervisor ignores some of these, and the server would inherit that.
        for number in (*_HANDLED_SIGNALS, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, null), (1, log), (2, log)):
            os.dup2(source, target)
        os.execvp(words[0], words)  # noqa: S606 - no shell is involved
    except OSError as error:
        os.write(log, f"{words[0]} cannot be run: {error.strerror}\n".encode())
    finally:
        os._exit(_CANNOT_RUN)


# --------------------
# Start Codex in its terminal: first its own app-server, then its terminal UI in this same process.
#
#     python -I -m palaver.holder.codex_start ADDRESS [--hooks] [--uses-bus] -- codex ARGUMENTS...
#
# The server is a child of the terminal UI, so all its processes belong to the agent, and it ends with the UI.
# If the server cannot start, Codex runs without it, and messages are typed. Two options need the user's
# consent: `--hooks` adds hooks for this session, and with `--uses-bus` it calls our tools without a dialog.

MODULE: Final = "palaver.holder.codex_start"
HOOKS: Final = "--hooks"
USES_BUS: Final = "--uses-bus"

_ASK_LIMIT_S: Final = 2.0
_LIMIT_REASON_BYTES: Final = 500
"""The end of the server's log that is shown on the terminal."""


def main(words: list[str]) -> NoReturn:
    """Replace this process with Codex."""
    address, options = words[0], words[1 : words.index("--")]
    command = words[words.index("--") + 1 :]
    home = os.environ["PALAVER_HOME"]  # `pal` sets it for every agent.
    is_woken = read_arguments(command[1:]).kind is not Kind.HEADLESS
    text = f"{instructions(_own_name(home), is_woken=is_woken)}\n{shell_tip(find_pal())}"
    # An option on the command line replaces the user's setting, so ours must contain it.
    if users_own := _users_instructions():
        text = f"{users_own}\n\n{text}"
    settings = launch_settings(find_pal(), home, may_use_bus=USES_BUS in options)
    if HOOKS in options:
        settings = (*settings, *hook_settings(find_pal(), home))
    launch = plan_launch(command[1:], address=address, settings=settings, instructions=text)
    if launch.server and not _has_server(command[0], launch.server, Path(address)):
        launch = plan_launch(command[1:], address="", settings=settings, instructions=text)
    try:
        # The screen keeps the pid of this process, and with it the seat. The supervisor stays its child.
        os.execvp(command[0], [command[0], *launch.arguments])  # noqa: S606 - no shell is involved
    except OSError as error:
        sys.stderr.write(f"pal: {command[0]} cannot be run: {error.strerror}\n")
        sys.exit(_CANNOT_RUN)


def _own_name(home: str) -> str:
    """Ask the daemon for our name: this process already has its seat."""
    try:
        with connect_socket(Path(home) / "daemon.sock") as daemon, daemon.makefile("rb") as replies:
            daemon.settimeout(_ASK_LIMIT_S)
            daemon.sendall(b'{"req":1,"op":"whoami"}\n')
            return str(json.loads(replies.readline())["ok"]["name"])
    except (OSError, ValueError, LookupError, TypeError):
        return "an agent"


def _users_instructions() -> str:
    """Return the instructions from the user's own settings; ours are appended to them."""
    folder = os.environ.get("CODEX_HOME") or f"{os.environ.get('HOME', '')}/.codex"
    try:
        return instructions_in(Path(folder, "config.toml").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return ""


def _has_server(program: str, arguments: tuple[str, ...], path: Path) -> bool:
    """Start the server; print the error on the terminal if that fails."""
    try:
        if start_server([program, *arguments], path):
            return True
        reason = path.with_name(LOG).read_bytes()[-_LIMIT_REASON_BYTES:].decode("utf-8", "replace").strip()
    except OSError as error:
        reason = str(error)
    sys.stderr.write(f"pal: Codex runs without its own server, so messages are typed: {reason}\n")
    return False


if __name__ == "__main__":
    main(sys.argv[1:])
