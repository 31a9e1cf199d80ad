"""Shared code of the tests of `pal install`: a user's folder, and the command in it."""

from collections.abc import Callable
from pathlib import Path

from palaver.app.install import install, uninstall
from palaver.doors.cli.run import TABLE
from palaver.doors.cli.spec import parse

Run = Callable[..., int]


def run_in(folder: Path) -> Run:
    """Return the command as run by a user whose home is this folder."""

    def run(*words: str, **more: str) -> int:
        done = install if words[0] == "install" else uninstall
        environment = {"HOME": str(folder), "PALAVER_HOME": str(folder / ".palaver"), **more}
        return done(parse(TABLE, words), environment)

    return run
