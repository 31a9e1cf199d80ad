"""A stand-in for Python where a client runs it: notes its call, then acts as daemon or command.

The note goes to PALAVER_TEST_NOTES, one JSON object per line. PALAVER_TEST_DAEMON selects the daemon's
behaviour: `serve` (the default), `silent` (exits without output), `broken` (exits with lines on standard
error), `older` (calls every client too new), `upgrade` (upgrades its log until there is a file `go`),
`slow` (reports nothing until there is a file `go`) or a text that it reports instead of starting.
"""

import contextlib
import fcntl
import json
import os
import socket
import sys
import time


def main() -> None:
    """Note the call; a daemon serves, anything else prints a line and exits with 7.

    A check of the arguments refuses only `--bogus`, with 2.
    """
    _note()
    if "__check" in sys.argv:
        sys.exit(2 if "--bogus" in sys.argv else 0)
    if "palaver.daemon" in sys.argv and "--ready-fd" in sys.argv:
        _play_daemon(sys.argv[sys.argv.index("--home") + 1])
    else:
        sys.stdout.write("in python\n")
        sys.exit(7)


def _note() -> None:
    mask = os.umask(0o077)
    os.umask(mask)
    note = {
        "argv": [os.fsencode(argument).decode("latin-1") for argument in sys.argv[1:]],
        "environment": dict(os.environ),
        "cwd": os.getcwd(),
        "umask": mask,
        "pid": os.getpid(),
        "parent": os.getppid(),
        "group": os.getsid(0),
        "fds": sorted(int(name) for name in os.listdir("/proc/self/fd")),
        "ticket": _ticket(),
        "files": [os.readlink(f"/proc/self/fd/{fd}") for fd in range(3)],
    }
    with open(os.environ["PALAVER_TEST_NOTES"], "a", encoding="utf-8") as notes:
        notes.write(json.dumps(note) + "\n")


def _ticket() -> str:
    """Read the ticket that the client left in a pipe for this program."""
    if "--ticket-fd" not in sys.argv:
        return ""
    with open(int(sys.argv[sys.argv.index("--ticket-fd") + 1]), encoding="utf-8") as pipe:
        return pipe.read()


def _play_daemon(home: str) -> None:
    part = os.environ.get("PALAVER_TEST_DAEMON", "serve")
    if part == "silent":
        return
    if part == "broken":
        sys.exit("Traceback ...\nNo module named palaver")
    if part not in ("serve", "older", "upgrade", "slow"):
        os.write(3, part.encode())
        return
    lock = os.open(f"{home}/daemon.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.write(3, b"another daemon is running")
        return
    if part == "upgrade":
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        with open(f"{home}/upgrading", "w", encoding="ascii") as mark:
            mark.write(f"{os.getpid()} 50 100\n")
    if part in ("upgrade", "slow"):
        while not os.path.exists(f"{home}/go"):
            time.sleep(0.01)
    listener = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{home}/daemon.sock")
    os.chdir(home)  # the path may be too long for an address
    listener.bind("daemon.sock")
    listener.listen(64)
    os.write(3, b"ok\n")
    os.close(3)
    listener.settimeout(120)  # a forgotten one ends by itself
    with contextlib.suppress(TimeoutError):
        while True:
            _answer(listener.accept()[0], is_older=part == "older")


def _answer(wire: socket.socket, *, is_older: bool) -> None:
    """Send the same reply to any request. A caller that only probed has already disconnected."""
    with wire, wire.makefile("rb") as reader, contextlib.suppress(OSError):
        head = reader.read(9)
        reader.read(int.from_bytes(head[5:], "big"))
        if is_older:
            wire.sendall(_frame(b"N", b""))
            return
        wire.sendall(_frame(b"O", b"\0\0\0\1\0\0served\n") + _frame(b"Q", b"\0"))
        reader.read()


def _frame(kind: bytes, payload: bytes) -> bytes:
    return kind + len(payload).to_bytes(4, "big") + payload


main()
