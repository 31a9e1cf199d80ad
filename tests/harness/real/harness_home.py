"""A home for tests of real harnesses: a temporary folder, an empty account, and a bus."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.app.person import Person, persons
from tests.daemon.stage import Home, write_settings
from tests.harness.real.install import link_node
from tests.processes import end_processes_of

from palaver.app.doctor import account_for
from palaver.app.mock_model import MockModel

LIMIT_S = 90.0
"""Limit of a wait for a condition. Harnesses are slow, and slower with others on two cores."""


class HarnessHome(Home):
    """A home whose environment leads harnesses only to the scripted model."""

    limit_s = LIMIT_S

    def __init__(self, path: Path, model: MockModel, *harnesses: str) -> None:
        super().__init__(path)
        self._accounts = [account_for(one, model.url, str(path.parent)) for one in harnesses or ("claude",)]

    @property
    def environment(self) -> dict[str, str]:
        folder = self.path.parent
        inherited = super().environment
        made = {
            **inherited,
            "PATH": f"{folder / 'bin'}:{inherited['PATH']}",
            "HOME": str(folder / "account"),
            "TMPDIR": str(folder / "tmp"),
            "TERM": "xterm-256color",
            "CLAUDE_CODE_MAX_RETRIES": "0",
        }
        for account in self._accounts:
            made.update(account.environment)
        return made


def new_folder(*programs: Path) -> Path:
    """Make a folder for one home, with an empty account and these programs on its path."""
    folder = Path(tempfile.mkdtemp(prefix="pal-real-")).resolve()
    for name in ("account", "tmp", "bin"):
        (folder / name).mkdir()
    for program in programs:
        (folder / "bin" / program.name).symlink_to(program.resolve())
    link_node(folder / "bin")
    return folder


@contextmanager
def bus(home: Home, *, may_use_bus: bool = False) -> Iterator[list[Person]]:
    """Run the bus of a home. At the end of the block its sessions, the bus and all files are removed.

    `may_use_bus`: a person has decided that agents use the safe commands without a prompt; otherwise that
    they do not. So no test is asked.
    """
    write_settings(home, agent_commands="yes" if may_use_bus else "no")
    with no_bus_yet(home) as people:
        home.ok("up")
        yield people


@contextmanager
def no_bus_yet(home: Home) -> Iterator[list[Person]]:
    """Leave the start of the bus to the first command. At the end everything is removed in the same way."""
    folder = home.path.parent
    try:
        with persons(home) as people:
            yield people
    finally:
        # Without this file, a pump that loses its bus could start another one.
        home.path.mkdir(exist_ok=True)
        (home.path / "down").touch()
        home.close()
        end_processes_of(folder)
        shutil.rmtree(folder)
