"""A forked daemon differs from one that a client started in nothing that a test can see."""

import os
import re
from contextlib import suppress
from pathlib import Path

from tests.daemon.stage import Home, new_home, wait_until

STATUS = ("Umask", "PPid", "SigBlk", "SigIgn", "SigCgt", "Seccomp", "CapEff")


def test_forked_daemon_equals_a_started_one(home: Home) -> None:
    home.ok("up")
    with new_home() as other:
        other.start_daemon()

        # A daemon answers its first client a little before it writes that it listens. While it starts a
        # thread, all signals are blocked.
        wait_until(lambda: descriptors(other) == descriptors(home) and _log(other) == _log(home) != "")
        wait_until(lambda: _status(other) == _status(home))
        assert look_at(other) == look_at(home)


def look_at(home: Home) -> dict[str, object]:
    """Return what the system shows of a daemon, with one name for every home and its folder."""
    process = Path(f"/proc/{home.pid}")
    session = os.getsid(home.pid)
    return {
        "arguments": _plain((process / "cmdline").read_text(), home),
        "environment": _plain((process / "environ").read_text(), home),
        "program": os.readlink(process / "exe"),
        "name": (process / "comm").read_text(),
        "folder": os.readlink(process / "cwd"),
        "limits": (process / "limits").read_text(),
        "status": _status(home),
        "session": (session != home.pid, session == os.getpgid(home.pid), Path(f"/proc/{session}").exists()),
        "files": sorted((file.name, file.lstat().st_mode) for file in home.path.iterdir()),
        "log": _log(home),
    }


def _status(home: Home) -> dict[str, str]:
    lines = Path(f"/proc/{home.pid}/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines)
    return {name: status[name] for name in STATUS}


def _log(home: Home) -> str:
    return re.sub(r"\d+", "", _plain((home.path / "daemon.log").read_text(), home))


def descriptors(home: Home) -> set[str]:
    """Return what the descriptors of a daemon are open for. Each of its threads opens the database itself."""
    found = set()
    for file in Path(f"/proc/{home.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found.add(_plain(os.readlink(file), home))
    return found


def _plain(text: str, home: Home) -> str:
    return re.sub(r"\[\d+\]", "", text.replace(str(home.path.parent), "FOLDER"))
