"""The process of a daemon: the options, lock, log file and signals of one `Daemon`.

python -I -m palaver.daemon --home DIR [--ready-fd N | --foreground] [options of pal up]
"""

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from palaver.client.start import unusable_home
from palaver.clock import SystemClock
from palaver.config import LoadedSettings, load
from palaver.daemon.daemon import Daemon
from palaver.doors.cli.bus import wanted_settings
from palaver.doors.cli.run import TABLE
from palaver.doors.cli.spec import parse
from palaver.errors import PalaverError, UsageError
from palaver.home import StartReport, allow_many_files, connect_socket, lock_home, log_to, prepare_home
from palaver.protocol.settings_file import check_settings

_NO_DESCRIPTORS: Final = "socket.accept() out of system resource"
"""The message of the event loop when it cannot accept a connection; it tries again a second later."""
_FULL_PAUSE_S: Final = 60.0
"""Seconds between two log lines about missing descriptors."""
_OBJECTS_BEFORE_COLLECTION: Final = 100_000
"""New objects before garbage in cycles is collected. Python's 700 is less than the open requests of one busy
connection, so that every collection would examine all of them and free nothing."""

_logger: Final = logging.getLogger("palaver")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon; return its exit status."""
    # Otherwise an option of `pal up` that is the beginning of one of these would be taken for it.
    parser = argparse.ArgumentParser(prog="palaver.daemon", allow_abbrev=False)
    parser.add_argument("--home", required=True, type=Path)
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("--foreground", action="store_true")
    options, others = parser.parse_known_args(argv)
    ready = StartReport(options.ready_fd, is_foreground=options.foreground)
    try:
        # Only `pal up --foreground` passes options. In the background the command `up` applies them once the
        # daemon listens.
        wanted = wanted_settings(parse(TABLE, ["up", *others]))
        return _run(options.home, ready, wanted, is_foreground=options.foreground)
    except UsageError as error:
        ready.say(str(error))
        return 2
    except (PalaverError, OSError) as error:
        if not options.foreground:  # a person sees it below
            _logger.error("did not start: %s", error)
        ready.say(str(error))
    except Exception as error:
        _logger.exception("stopped by an internal error")
        ready.say(f"{type(error).__name__}: {error}")
    return 1


def _run(home: Path, ready: StartReport, wanted: Mapping[str, str | int], *, is_foreground: bool) -> int:
    # First, so that every file in the home belongs only to its owner from its first byte.
    os.umask(0o077)
    with _usable(home):
        home = prepare_home(home)
    loaded = load(home, os.environ)
    check_settings(loaded.settings)
    with _usable(home):
        lock = lock_home(home, lambda: _is_listening(home))
    if lock is None:
        if not is_foreground and _is_listening(home):
            ready.say("ok")  # another process has started one at the same time, so the caller has its daemon
            return 0
        ready.say(
            "the bus is already running" if is_foreground else f"another daemon holds {home / 'daemon.lock'}"
        )
        return 1
    with lock:
        allow_many_files()
        log_to(home, loaded.settings, is_foreground=is_foreground)
        # Modules live as long as the process. Otherwise each full collection checks all of them again,
        # and the event loop waits for that.
        gc.freeze()
        gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
        asyncio.run(_serve(home, loaded, ready, wanted))
    return 0


@contextmanager
def _usable(home: Path) -> Iterator[None]:
    """Replace an OSError about a home by a sentence that says what to do, as a client would."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # it is a sentence already
            raise
        raise OSError(unusable_home(str(home), error)) from error


async def _serve(
    home: Path, loaded: LoadedSettings, ready: StartReport, wanted: Mapping[str, str | int]
) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_LoopErrors().write_down)
    is_again = True
    while is_again:
        daemon = Daemon(home, loaded, SystemClock(), wanted)
        for number in (signal.SIGTERM, signal.SIGINT):
            # Replaces the handler of the previous daemon. There is no await in between, so no signal reaches
            # a daemon that has ended.
            loop.add_signal_handler(number, daemon.stop, number.name)
        is_again = await daemon.run(ready)


class _LoopErrors:
    """Writes the errors of the event loop to the log, those about missing descriptors once a minute."""

    def __init__(self) -> None:
        self._full_s = float("-inf")

    def write_down(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        if context["message"] != _NO_DESCRIPTORS:
            _logger.error("%s", context["message"], exc_info=context.get("exception"))
        elif loop.time() - self._full_s >= _FULL_PAUSE_S:  # The loop reports it once a second.
            self._full_s = loop.time()
            _logger.error("no file descriptors are left: new callers wait until some are free")


def _is_listening(home: Path) -> bool:
    try:
        connect_socket(home / "daemon.sock").close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
