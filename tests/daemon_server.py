"""A process that has loaded the code of the daemon and forks daemons for tests.

A daemon loads code for a third of a second, which is more than most tests need for everything else. A forked
daemon has the state that a client prepares for a new program: two null streams, its log, the pipe on which it
reports that it listens, default signals, its own session, and no other descriptor. The test in
`tests/daemon/test_forked.py` compares both kinds.
"""

import ctypes
import fcntl
import gc
import importlib
import json
import os
import signal
import sys
from collections.abc import Iterable
from typing import Final

READY_FD: Final = 3
REQUEST_BYTES: Final = 1 << 16

_DAEMON: Final = ("palaver.daemon.__main__",)
_LATE_PARTS: Final = (
    "mcp.server.lowlevel.server",
    "mcp.server.streamable_http_manager",
    "starlette.applications",
    "uvicorn.protocols.http.h11_impl",
)
"""Libraries that the daemon loads when it needs them, which takes more than a second."""

_FEW: Final = 4
"""The number of daemons from which loading the late parts saves time."""

_AREAS: Final = {"arguments": 48, "environment": 50}
"""The fields of `/proc/self/stat` where the first address of an area is; the end is in the next field."""


def serve(requests: int) -> None:
    """Fork a daemon for each request, until no process can send another one. Returns in the daemons too."""
    _load(_DAEMON)
    served = 0
    # Plain descriptors: an object that closes its descriptor would close another one in the daemon.
    while request := os.read(requests, REQUEST_BYTES):
        asked = json.loads(request)
        served += 1
        if served == _FEW:
            _load(_LATE_PARTS)
        ready, report = os.pipe()
        child = os.fork()
        if child == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            _run_daemon(report, **asked)
        os.close(report)
        os.waitpid(child, 0)
        text = b""
        while text != b"ok\n" and (piece := os.read(ready, 4096)):
            text += piece
        os.close(ready)
        os.write(requests, text or b"said nothing")


def _load(modules: Iterable[str]) -> None:
    for name in modules:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a daemon would copy these pages


def _run_daemon(report: int, *, home: str, argv: list[str], environment: dict[str, str]) -> None:
    """Become the daemon. Never returns."""
    from palaver.daemon.__main__ import main

    null = os.open(os.devnull, os.O_RDWR)
    log = os.open(f"{home}/daemon.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    # Each may be one of 0 to 3 itself.
    streams = [fcntl.fcntl(file, fcntl.F_DUPFD, READY_FD + 1) for file in (null, null, log, report)]
    for number, file in enumerate(streams):
        os.dup2(file, number)
    os.closerange(READY_FD + 1, os.sysconf("SC_OPEN_MAX"))
    os.umask(0o077)
    os.chdir("/")
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _write_area("arguments", argv)
    _write_area("environment", [f"{name}={value}" for name, value in environment.items()])
    os.environ.clear()
    os.environ.update(environment)
    sys.orig_argv = argv
    sys.argv = [sys.modules[main.__module__].__file__ or "", *argv[4:]]
    sys.exit(main())


def _write_area(name: str, texts: list[str]) -> None:
    """Change what other processes see of this one. The new texts are as long as the old ones together."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b") ")[2].split()
    at = _AREAS[name] - 3  # the first field here is the third one
    begin, end = int(fields[at]), int(fields[at + 1])
    content = b"".join(os.fsencode(text) + b"\0" for text in texts)
    assert len(content) == end - begin, (name, content, end - begin)
    ctypes.memmove(begin, content, len(content))
