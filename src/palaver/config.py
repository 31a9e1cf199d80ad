"""Settings: one table, read once at start and passed down.

They are in `$PALAVER_HOME/config.toml`; `PALAVER_<KEY>` in the environment takes precedence; an unknown key
is an error. Settings that open doors, loosen brakes, reach agents or decide about rooms are read only from
the file: any process can start the daemon, and any process can set its environment.

This module defines the type of each setting; `protocol/settings_file.py` checks its text.
"""

import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Final, Literal, TypeVar

from palaver.errors import BadRequest

SETTINGS_FILE: Final = "config.toml"
PREFIX: Final = "PALAVER_"
NOT_SETTINGS: Final = frozenset(
    {"PALAVER_HOME", "PALAVER_SEAT", "PALAVER_PYTHON", "PALAVER_NO_NATIVE", "PALAVER_EXCERPTS"}
)
"""Variables with our prefix that are not settings."""

_ONLY_IN_FILE: Final = ("http", "irc", "brake", "hints", "approvals", "room_")
"""Name prefixes of settings that open doors, loosen brakes, reach agents or decide about rooms."""

Origin = Literal["default", "file", "environment"]
"""Where a value comes from."""

_LIMIT_DIGITS: Final = 12
_LEVELS: Final = ("debug", "info", "warning", "error")
_WAKES: Final = ("human", "everyone", "nobody")
_Value = TypeVar("_Value", str, int)


def _setting(default: _Value, meaning: str, most: int | None = None) -> _Value:
    """Define one setting: its default sets its type, `meaning` is its help text, `most` its upper limit."""
    made: _Value = field(default=default, metadata={"meaning": meaning, "most": most})
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings, each with its default and its meaning."""

    log_level: str = _setting(
        "info", "How much the daemon writes into daemon.log: debug, info, warning or error."
    )
    log_max_bytes: int = _setting(
        5_000_000, "daemon.log is moved to daemon.log.1 when it is larger than this."
    )
    sql_timeout_ms: int = _setting(
        2_000, "How long 'pal events --sql' may run before it is cut, in milliseconds."
    )
    watchdog_ms: int = _setting(
        100,
        "The daemon logs each step that keeps its processor busy for more than this, in milliseconds; 0 is "
        "never.",
    )
    brake_hops: int = _setting(
        40, "How many answers of agents to agents pass with no person in between; 0 means any number."
    )
    brake_per_minute: int = _setting(
        60, "How many messages a minute pass from one agent to one other; 0 means any number."
    )
    stale_after_s: int = _setting(
        1_800, "After how many seconds without activity an active agent is shown as stale; 0 is never."
    )
    native_wait_s: int = _setting(
        5, "How many seconds after a restart a terminal waits for its harness's own lane before it types."
    )
    remind_after_s: int = _setting(
        60, "At least how many seconds pass between two reminders of a message that expects a reply."
    )
    hints: str = _setting("", "A text for every agent, after the messages that it reads; at most 1000 bytes.")
    http: str = _setting(
        "", "Where the HTTP door listens, such as 127.0.0.1:7420; empty is nowhere. 'pal up --http' sets it."
    )
    http_hosts: str = _setting(
        "", "More names under which the HTTP door may be called, with commas between them."
    )
    http_remote: int = _setting(
        0, "With 1 the HTTP door may listen where other machines reach it; nothing there is encrypted.", 1
    )
    room_lease_s: int = _setting(
        2_700, "How many seconds a holder of the stick may give no sign before it may be taken over."
    )
    room_heartbeat_s: int = _setting(
        300, "How often a holder should give a sign, in seconds; twice that is the grace of one who is gone."
    )
    room_claim_s: int = _setting(
        1_200, "How many seconds the stick waits for the one it is reserved for before it goes on."
    )
    room_waiter_grace_s: int = _setting(
        10, "How many seconds after it last waited a member still counts as waiting for the stick."
    )
    room_presence_s: int = _setting(
        14_400, "How many seconds a member that has certainly left stays in the list of a room."
    )
    room_owner_idle_s: int = _setting(
        900, "How many seconds a holder may say that it is idle before the stick may be taken over."
    )
    room_message_bytes: int = _setting(4_096, "How long a message in a room may be, in bytes of UTF-8.")
    approvals: int = _setting(
        0,
        "With 1 an agent that requests permission waits for 'pal approve' or 'pal deny', where its harness "
        "can.",
        1,
    )
    approvals_wait_s: int = _setting(
        120, "How many seconds it waits; a request without an answer is then denied. At most 3600.", 3_600
    )
    codex_hooks: int = _setting(1, "With 0 'pal codex' gives Codex no hooks, and does not ask for them.", 1)
    room_wakes: str = _setting(
        "human", "Whose messages to a whole room wake everybody in it: human, everyone or nobody."
    )


KEYS: Final[tuple[str, ...]] = tuple(one.name for one in fields(Settings))
"""The names of all settings, in the order of the table."""
DEFAULTS: Final[Mapping[str, str | int]] = {key: getattr(Settings(), key) for key in KEYS}
MEANINGS: Final[Mapping[str, str]] = {one.name: str(one.metadata["meaning"]) for one in fields(Settings)}
_MOST: Final[Mapping[str, int]] = {
    one.name: most for one in fields(Settings) if (most := one.metadata["most"]) is not None
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """Settings, and the origin of each value."""

    settings: Settings
    origins: Mapping[str, Origin]


def is_only_in_file(key: str) -> bool:
    """Whether a setting is read only from the file, which only a person changes."""
    return key.startswith(_ONLY_IN_FILE)


def load(home: Path, environment: Mapping[str, str]) -> LoadedSettings:
    """Read the settings of a home. Raises BadRequest with a sentence that names the wrong key."""
    path = home / SETTINGS_FILE
    given: dict[str, object] = {}
    with suppress(FileNotFoundError):
        given = parse_file(path.read_bytes(), str(path))
    origins: dict[str, Origin] = dict.fromkeys(KEYS, "default")
    origins |= dict.fromkeys(given, "file")
    for name, value in environment.items():
        if name.startswith(PREFIX) and name not in NOT_SETTINGS:
            key = name.removeprefix(PREFIX).lower()
            if is_only_in_file(key):
                raise BadRequest(
                    f"{name} is not taken from the environment: unset it; 'pal config set {key}' sets it"
                )
            given[key] = value
            origins[key] = "environment"
    return LoadedSettings(settings=settings_from(given), origins=origins)


def settings_from(given: Mapping[str, object]) -> Settings:
    """Build settings from the given values, and defaults for the rest. Raises BadRequest for a bad value."""
    values = {key: typed(key, value) for key, value in given.items()}
    return Settings(**values)  # type: ignore[arg-type]  # `typed` has checked key and kind


def parse_file(content: bytes, name: str) -> dict[str, object]:
    """Parse a settings file without checking keys and values. Raises BadRequest."""
    try:
        return tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"{name} cannot be read: {error}") from error


def check_key(key: str) -> None:
    """Refuse a key that is not a setting."""
    if key not in DEFAULTS:
        near = get_close_matches(key.lower(), KEYS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the settings are: {', '.join(KEYS)}"
        raise BadRequest(f"there is no setting {key!r}; {hint}")


def typed(key: str, value: object) -> str | int:
    """Convert a value to the type of its setting; a number may be given as text. Raises BadRequest."""
    check_key(key)
    default = DEFAULTS[key]
    if isinstance(default, int):
        return _number(key, value)
    if not isinstance(value, str):
        raise BadRequest(f"the setting {key!r} is a text, not {value!r}")
    if key == "log_level" and value not in _LEVELS:
        raise BadRequest(f"the setting 'log_level' is debug, info, warning or error, not {value!r}")
    if key == "room_wakes" and value not in _WAKES:
        raise BadRequest(f"the setting 'room_wakes' is human, everyone or nobody, not {value!r}")
    return value


def _number(key: str, value: object) -> int:
    """Return a number that its setting allows; it may be given as text."""
    most = _MOST.get(key)
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= _LIMIT_DIGITS:
        value = int(value)
    if type(value) is not int or not 0 <= value < 10**_LIMIT_DIGITS:
        raise BadRequest(f"the setting {key!r} is a number of at most {_LIMIT_DIGITS} digits, not {value!r}")
    if most is not None and value > most:
        wanted = "0 or 1" if most == 1 else f"at most {most}"
        raise BadRequest(f"the setting {key!r} is {wanted}, not {value}")
    return value
