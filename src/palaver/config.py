"""Settings: one table, read once at start and handed down.

`$PALAVER_HOME/config.toml` holds them, `PALAVER_<KEY>` in the environment wins, an unknown key is an error.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from palaver.errors import BadRequest

NOT_SETTINGS: Final = frozenset({"PALAVER_HOME", "PALAVER_SEAT", "PALAVER_PYTHON", "PALAVER_NO_NATIVE"})
"""Variables with our prefix that say something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting there is. The text behind each one is its documentation."""

    log_level: str = "info"
    """How much the daemon writes into daemon.log: debug, info, warning or error."""
    log_max_bytes: int = 5_000_000
    """daemon.log is moved to daemon.log.1 when it is larger than this."""
    sql_timeout_ms: int = 2_000
    """How long `pal events --sql` may run before it is cut."""


def load_settings(home: Path, environment: Mapping[str, str]) -> Settings:
    """Read the settings of a home; raises BadRequest with a sentence that names the key that is wrong."""
    path = home / "config.toml"
    given: dict[str, object] = {}
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        pass
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"{path} cannot be read: {error}") from error
    known = {field.name: field.type for field in fields(Settings)}
    for name, value in environment.items():
        if name.startswith("PALAVER_") and name not in NOT_SETTINGS:
            given[name.removeprefix("PALAVER_").lower()] = value
    values: dict[str, object] = {}
    for key, found in given.items():
        if key not in known:
            raise BadRequest(f"there is no setting {key!r}; docs/settings.md lists them")
        values[key] = _typed(key, found, known[key])
    return Settings(**values)  # type: ignore[arg-type]  # checked against the fields above


def _typed(key: str, value: object, kind: object) -> object:
    if kind is int:
        if isinstance(value, str) and value.isdecimal():
            return int(value)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        raise BadRequest(f"the setting {key!r} is a number, not {value!r}")
    if not isinstance(value, str):
        raise BadRequest(f"the setting {key!r} is a text, not {value!r}")
    if key == "log_level" and value not in ("debug", "info", "warning", "error"):
        raise BadRequest(f"the setting 'log_level' is debug, info, warning or error, not {value!r}")
    return value
