"""A report about a failed test, made before its home is removed."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.daemon.stage import Home
from tests.processes import processes_of

from palaver.app.mock_model import Script

LAST_LINES = 60
LAST_CHARACTERS = 500


def report_on(home: Home, scripts: Sequence[Script] = ()) -> list[tuple[str, str]]:
    """Return titles and texts: agents and their screens, the ledger, the model, processes and log files."""
    found = [("agents", _say(home, "list", "-v")), ("ledger", _last(_say(home, "events", "--all", "--json")))]
    for name in _names(home):
        found += [
            (f"state of {name}", _say(home, "status", name)),
            (f"screen of {name}", _say(home, "peek", name)),
        ]
    for script in scripts:
        asked = [request.conversation[-LAST_CHARACTERS:] for request in script.main]
        found.append(("the model was asked", "\n\n".join(asked)))
    running = processes_of(home.path.parent)
    found.append(("processes", "\n".join(f"{pid} {line}" for pid, line in running.items())))
    for path in (home.path / "daemon.log", home.path / "agents" / "holder.log"):
        found.append((f"the end of {path.name}", _read(path)))
    return found


def _names(home: Home) -> list[str]:
    with suppress(Exception):  # a bus that does not reply is part of the report, not another failure
        return [str(one["name"]) for one in home.pal("list", "--json").lines]
    return []


def _say(home: Home, *words: str) -> str:
    try:
        result = home.pal(*words)
    except Exception as error:  # report any error, because the rest of the report is still useful
        return f"pal {' '.join(words)}: {error!r}"
    return result.out + result.err


def _read(path: Path) -> str:
    return _last(path.read_text(errors="replace")) if path.exists() else "it is not there"


def _last(text: str) -> str:
    return "\n".join(text.splitlines()[-LAST_LINES:])
