"""Start the process of a holder before its program is known, so that it loads in the meantime.

The start of a harness waits for this module, so it must import little.
"""

# Not `socket`, which loads several more modules at the start of each harness.
import _socket
import fcntl
import os
import signal
import sys

from palaver.client.start import find_python

MODULE = "palaver.holder.main"

_KEPT_NAMES = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "XDG_RUNTIME_DIR")
_START_FD = 3
_READY_FD = 4
_NO_SIGNAL = _socket.MSG_NOSIGNAL if sys.platform == "linux" else 0
_SO_NOSIGPIPE = 0x1022
"""The same on macOS, as an option of the socket. Python has no name for it."""


class HolderProcess:
    """A holder that loads and waits for its orders.

    It ends if they never come, or if its caller is killed.
    """

    def __init__(self, home: str) -> None:
        # Not a pipe: only a socket can be written to without a SIGPIPE.
        orders, self._orders = _socket.socketpair()
        self.ready, report = os.pipe()
        """The pipe on which the holder reports that its agent runs, or the error. The caller closes it."""
        waits, self._release = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            self._orders.close()
            os.close(self._release)
            _detach(home, orders.detach(), report, waits)
        orders.close()
        os.close(report)
        os.close(waits)

    def order(self, content: bytes) -> None:
        """Send the orders. If the holder was lost, do nothing: `ready` ends without a report."""
        try:
            if sys.platform == "darwin":
                self._orders.setsockopt(_socket.SOL_SOCKET, _SO_NOSIGPIPE, 1)
            # SIGPIPE would end the client without an error message.
            self._orders.sendall(content, _NO_SIGNAL)
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            self._orders.close()

    def release(self) -> None:
        """Release the holder after its report: it continues without this process."""
        os.close(self._release)
        os.waitpid(self._child, 0)

    def discard(self) -> None:
        """End the holder without orders."""
        self._orders.close()
        os.close(self.ready)
        self.release()


def _detach(home: str, orders: int, report: int, waits: int) -> None:
    """In the child: become the holder in a grandchild, so that no process must wait for it. Never returns.

    The child stays until the caller has the holder's report: the ticket is valid only for descendants of the
    process that requested it.
    """
    try:
        # The hangup of the caller's terminal must not reach the holder. The grandchild does not lead this
        # session, so it cannot get a controlling terminal by opening one.
        os.setsid()
        if os.fork():
            os.dup2(waits, 0)
            os.closerange(1, os.sysconf("SC_OPEN_MAX"))  # orders of another holder must not stay open here
            os.read(0, 1)  # Nothing is written: the read ends when the caller closes its end.
            os._exit(0)
        _shed(home, orders, report)
        report = _READY_FD
        words = [find_python(), "-I", "-m", MODULE]
        words += ["--start-fd", str(_START_FD), "--ready-fd", str(_READY_FD)]
        os.execvpe(words[0], words, _environment(home))  # noqa: S606 - no shell is involved
    except OSError as error:
        import json  # needed only here

        sentence = f"the holder of the terminal cannot be started: {error.strerror}"
        os.write(report, json.dumps({"error": "unavailable", "message": sentence}).encode())
    finally:
        os._exit(1)  # Never return: this fork would continue with the caller's own work.


def _shed(home: str, orders: int, report: int) -> None:
    """Drop everything of the caller except the two descriptors."""
    # First above the numbers that they get below: `dup2` closes what has that number, maybe one of these.
    orders = fcntl.fcntl(orders, fcntl.F_DUPFD, _READY_FD + 1)
    report = fcntl.fcntl(report, fcntl.F_DUPFD, _READY_FD + 1)
    folder = f"{home}/agents"
    os.umask(0o077)
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103 - pathlib is slow to import
    null = fcntl.fcntl(os.open(os.devnull, os.O_RDWR), fcntl.F_DUPFD, _READY_FD + 1)
    log = os.open(f"{folder}/holder.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    log = fcntl.fcntl(log, fcntl.F_DUPFD, _READY_FD + 1)
    for fd, source in ((0, null), (1, null), (2, log), (_START_FD, orders), (_READY_FD, report)):
        os.dup2(source, fd)
    os.closerange(_READY_FD + 1, os.sysconf("SC_OPEN_MAX"))
    # A new program inherits ignored and blocked signals, also those that the caller got from its parent.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # Do not keep the caller's directory in use.
    os.chdir("/")


def _environment(home: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in _KEPT_NAMES}
    if python := os.environ.get("PALAVER_PYTHON"):
        kept["PALAVER_PYTHON"] = python
    return {**kept, "PALAVER_HOME": home}
