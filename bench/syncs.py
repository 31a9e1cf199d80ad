"""Count the sync calls of a send with strace. Without strace they are not counted."""

import re
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable

from bench.hcom_home import HcomHome
from bench.home import SINK
from bench.palaver_home import PalaverHome
from bench.seat import Seat

_TRACE = ("-f", "-e", "trace=fsync,fdatasync")
_SYNC = re.compile(r"\bf(?:data)?sync\(")
_SDK_SENDS = 1_000


def sync_remarks(palaver: PalaverHome, sender: Seat, hcom: HcomHome) -> list[str]:
    """Return remarks on how many sync calls a send makes, for each bus."""
    strace = shutil.which("strace")
    if not strace:
        return ["Sync calls were not counted: there is no strace here."]
    theirs = _hcom_syncs(strace, hcom)
    single = _daemon_syncs(strace, palaver, lambda: sender.time(palaver.send(SINK, "one synced message")))
    many = _daemon_syncs(strace, palaver, lambda: palaver.sdk_sends(_SDK_SENDS, (SINK,)))
    return [
        f"Sync calls of hcom in one send, with the database open in another process: {theirs}.",
        f"Sync calls of Palaver's daemon in one send: {single}; in {_SDK_SENDS:,} pipelined sends of the "
        f"SDK: {many}, because commits that wait share one.",
    ]


def _hcom_syncs(strace: str, hcom: HcomHome) -> int:
    command = hcom.send(SINK, "one synced message")
    argv = (strace, *_TRACE, *command.argv)

    def count() -> int:
        traced = subprocess.run(argv, env=command.env, capture_output=True, text=True, check=True)
        return len(_SYNC.findall(traced.stderr))

    connection = sqlite3.connect(hcom.database)
    connection.execute("SELECT count(*) FROM events").fetchone()
    count()  # the first send after a checkpoint starts a new WAL and also syncs its header
    syncs = count()
    connection.close()
    return syncs


def _daemon_syncs(strace: str, palaver: PalaverHome, act: Callable[[], object]) -> int:
    argv = (strace, *_TRACE, "-p", str(palaver.daemon_pid()))
    tracer = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    assert tracer.stderr
    first = tracer.stderr.readline()
    if "attached" not in first:
        raise RuntimeError(f"strace could not attach to the daemon: {first.strip()}")
    act()
    tracer.send_signal(signal.SIGINT)
    rest = tracer.stderr.read()
    tracer.wait()
    return len(_SYNC.findall(rest))
