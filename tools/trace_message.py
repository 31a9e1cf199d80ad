"""Count the files of the daemon that one request passes, by tracing a real daemon.

    python tools/trace_message.py            # print the numbers
    python tools/trace_message.py --files    # also print the files, in the order of their first call

Three requests are traced: `pal send` to an agent in `pal recv --wait`, until the message was printed;
`pal stick wait` while another agent owns the stick; and `pal list`. The commands are the real ones. The
client is not traced, so none of its files is counted. The daemon checks its home once a second, whether there
is a request or not: files that it calls in two idle seconds, and that are not on the way of `pal list`, are
not counted.
"""

import argparse
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

PAL = Path(sys.executable).parent / "pal"
LIMIT_S = 20.0
SETTLE_S = 1.0
"""Time for a command that waits to reach the daemon: nothing outside the daemon shows that it waits."""
_SOURCE = f"{os.sep}palaver{os.sep}"


def trace_daemon(home: str, result: str) -> None:
    """Run a daemon that records its files between SIGUSR1 and SIGUSR2."""
    files: dict[str, None] = {}
    is_on = False

    def record(frame: FrameType, event: str, _argument: object) -> None:
        if is_on and event == "call" and _SOURCE in frame.f_code.co_filename:
            files.setdefault(frame.f_code.co_filename.rpartition(_SOURCE)[2])

    def start(_number: int, _frame: FrameType | None) -> None:
        nonlocal is_on
        files.clear()
        is_on = True

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal is_on
        is_on = False
        # Renamed when it is complete, because the other process reads it as soon as it exists.
        part = Path(f"{result}.part")
        part.write_text(json.dumps(list(files)))
        part.replace(result)

    signal.signal(signal.SIGUSR1, start)
    signal.signal(signal.SIGUSR2, stop)
    # Both, because each thread has its own profile function, and the writer of the log is a thread.
    threading.setprofile(record)
    sys.setprofile(record)
    sys.argv = ["palaver.daemon", "--home", home]
    runpy.run_module("palaver.daemon", run_name="__main__")


class Bus:
    """A traced daemon in a temporary home, and commands that use it."""

    def __init__(self, folder: Path) -> None:
        """Start the daemon; `folder` is empty."""
        self._home = folder / "home"
        self._result = folder / "files.json"
        self._work = folder / "work"
        self._work.mkdir()
        # Without our variables: the daemon must be the one of this folder, with its default settings.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PALAVER_")}
        self._environment = {**environment, "PALAVER_HOME": str(self._home)}
        command = [sys.executable, __file__, "--daemon", str(self._home), str(self._result)]
        self._daemon = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        _wait_until((self._home / "daemon.sock").exists)

    def close(self) -> None:
        """End the daemon."""
        self._daemon.terminate()
        self._daemon.wait(LIMIT_S)

    @contextmanager
    def agent(self, name: str, *commands: str) -> Iterator[subprocess.Popen[str]]:
        """Start a shell that joins as an agent and runs commands of `pal`.

        Before the last command it waits for a line on its input, and after it until the block ends.
        """
        *first, last = [f"{PAL} {command}" for command in (f"join --name {name}", *commands)]
        line = f"{' && '.join([*first, 'read go'])} && {last}; echo done; read end"
        with subprocess.Popen(
            ["/bin/sh", "-c", line],
            cwd=self._work,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as shell:
            yield shell
            # With its commands: a command that still waits would start the daemon again.
            os.killpg(shell.pid, signal.SIGKILL)

    def run(self, command: str) -> str:
        """Run one command of `pal` to its end and return its output."""
        done = subprocess.run(
            [PAL, *command.split()],
            cwd=self._work,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout

    @contextmanager
    def traced(self) -> Iterator[list[str]]:
        """Trace the daemon inside the block; the list is filled when the block ends."""
        files: list[str] = []
        self._daemon.send_signal(signal.SIGUSR1)
        yield files
        self._daemon.send_signal(signal.SIGUSR2)
        _wait_until(self._result.exists)
        files += json.loads(self._result.read_text())
        self._result.unlink()


def _wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not is_so():
        if time.monotonic() > end:
            sys.exit("the daemon did not do what was expected within 20 s")
        time.sleep(0.02)


def main() -> None:
    """Trace the three requests and print the numbers."""
    parser = argparse.ArgumentParser(description="Count the files that one request passes in the daemon.")
    parser.add_argument("--files", action="store_true", help="print the files")
    parser.add_argument("--daemon", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.daemon:
        trace_daemon(*options.daemon)
        return
    with tempfile.TemporaryDirectory(prefix="palaver-trace-") as folder:
        bus = Bus(Path(folder))
        try:
            found = trace_requests(bus)
        finally:
            bus.close()
    for title, files in found.items():
        packages = {Path(file).parts[0] for file in files if len(Path(file).parts) > 1}
        print(f"| {title} | {len(files)} files, {len(packages)} packages |")
        if options.files:
            print("".join(f"    {file}\n" for file in files), end="")


def trace_requests(bus: Bus) -> dict[str, list[str]]:
    """Return the files of each request."""
    found = {}
    with (
        bus.agent("nova", "recv --wait") as nova,
        bus.agent("kira", "room join", "stick wait") as kira,
        bus.agent("theo", "room join", "stick wait") as theo,
    ):
        _wait_until(lambda: "2/2" in bus.run("room list") and "nova" in bus.run("list"))
        _go(nova)
        _go(kira)
        _wait_until(lambda: "kira" in bus.run("room list"))
        time.sleep(SETTLE_S)
        with bus.traced() as files:
            bus.run("send @nova -- hello")
            assert nova.stdout is not None
            while nova.stdout.readline() != "done\n":
                pass
        found["pal send → waiting pal recv --wait"] = files
        time.sleep(
            SETTLE_S
        )  # The message is indexed in the first pause, and this must not count for the next request.
        with bus.traced() as idle:
            time.sleep(2 * SETTLE_S)
        with bus.traced() as files:
            _go(theo)
            time.sleep(SETTLE_S)
        found["pal stick wait, not your turn"] = files
        with bus.traced() as files:
            bus.run("list")
        found["pal list"] = files
    # Here `files` are those of `pal list`. A file that both use stays, because `pal list` needs it anyway.
    background = set(idle) - set(files)
    return {title: [file for file in some if file not in background] for title, some in found.items()}


def _go(shell: subprocess.Popen[str]) -> None:
    """Let an agent run its last command."""
    assert shell.stdin is not None
    shell.stdin.write("go\n")
    shell.stdin.flush()


if __name__ == "__main__":
    main()
