"""Settings: one table, read at start and passed down; a person changes most of them while the bus runs.

They are in `$PALAVER_HOME/config.toml`; `PALAVER_<KEY>` in the environment takes precedence. An unknown key
is an error, because a misspelt setting would otherwise silently have no effect. Settings that open doors,
loosen brakes, reach agents or decide about rooms are read only from the file: any process can start the
daemon, and any process can set its environment.

This module defines the type of each setting; `protocol/settings_file.py` checks its text.
"""

import shlex
import tomllib
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Final, Literal, TypeVar

from palaver.errors import BadRequest, nearest

SETTINGS_FILE: Final = "config.toml"
PREFIX: Final = "PALAVER_"
NOT_SETTINGS: Final = frozenset(
    {"PALAVER_HOME", "PALAVER_SEAT", "PALAVER_PYTHON", "PALAVER_NO_NATIVE", "PALAVER_EXCERPTS"}
)
"""Variables with our prefix that are not settings."""

_ONLY_IN_FILE: Final = (
    "http",
    "irc",
    "brake",
    "hints",
    "approvals",
    # A shorter lease would let an agent take the stick from its owner.
    "room_",
    "agent_commands",
    "window",
    "auto_turn",
    "web_",
    "metrics",
    "otel",
    "notify",
)
"""Name prefixes of settings that open doors, loosen brakes, reach agents, decide about rooms, or start a
program or a connection.

They are prefixes, so that a new setting of such a family is protected from the start."""

Origin = Literal["default", "file", "environment"]
"""Where a value comes from."""

_LIMIT_DIGITS: Final = 12
_LEVELS: Final = ("debug", "info", "warning", "error")
_WAKES: Final = ("human", "everyone", "nobody")
_CONSENTS: Final = ("ask", "yes", "no")
_IRC_GUESTS: Final = ("off", "read", "talk")
_NOTICES: Final = ("bell", "osc9", "osc777", "off")
_OTEL_SCHEMES: Final = ("http://", "https://")
NAME_SLOT: Final = "{name}"
COMMAND_SLOT: Final = "{command}"
"""The parts of the setting 'window' that are replaced. The command must be a separate word, because it is
replaced by several words."""
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
        2_000,
        "How long the condition of 'pal events --sql' may run before it is stopped, in milliseconds; reading "
        "the found events is not counted.",
    )
    watchdog_ms: int = _setting(
        100,
        "The daemon logs each step that keeps its processor busy for more than this, in milliseconds; 0 "
        "means never.",
    )
    brake_hops: int = _setting(
        40, "How many replies between agents are allowed without a person in between; 0 means any number."
    )
    brake_per_minute: int = _setting(
        60, "How many messages per minute are allowed from one agent to another; 0 means any number."
    )
    stale_after_s: int = _setting(
        1_800, "After how many seconds without activity an active agent is shown as stale; 0 means never."
    )
    native_wait_s: int = _setting(
        5,
        "How many seconds after a restart a terminal waits for its harness's lane or hooks before it types.",
    )
    remind_after_s: int = _setting(
        60, "At least how many seconds pass between two reminders of a message that expects a reply."
    )
    hints: str = _setting("", "A text that every agent gets after its messages; at most 1000 bytes.")
    http: str = _setting(
        "", "Where the HTTP door listens, such as 127.0.0.1:7420; empty disables it. 'pal up --http' sets it."
    )
    http_hosts: str = _setting("", "More host names for the HTTP door, separated by commas.")
    http_remote: int = _setting(
        0, "With 1, other machines may connect to the HTTP door; the connections are not encrypted.", 1
    )
    irc: str = _setting(
        "", "Where the IRC door listens, such as 127.0.0.1:6667; empty disables it. 'pal up --irc' sets it."
    )
    irc_remote: int = _setting(
        0,
        "With 1, other machines may connect to the IRC door, with TLS only. 'pal up --irc-remote' sets it.",
        1,
    )
    irc_tls_cert: str = _setting(
        "", "The file with the certificate of the IRC door, in PEM form; with irc_tls_key it enables TLS."
    )
    irc_tls_key: str = _setting("", "The file with the private key of irc_tls_cert, in PEM form.")
    irc_guests: str = _setting(
        "off",
        "What IRC clients of this machine may do without a password: off, read, or talk (read and write).",
    )
    room_lease_s: int = _setting(
        2_700, "How many seconds an owner of the stick may be silent before the stick may be taken over."
    )
    room_heartbeat_s: int = _setting(
        300,
        "How often an owner should send a heartbeat, in seconds; twice that is the grace period of an owner "
        "that has ended.",
    )
    room_claim_s: int = _setting(
        1_200, "How many seconds a reservation of the stick lasts before the stick is passed on."
    )
    room_waiter_grace_s: int = _setting(
        10, "How many seconds after it last waited a member still counts as waiting for the stick."
    )
    room_presence_s: int = _setting(
        14_400, "How many seconds a member that has certainly left stays in the list of a room."
    )
    room_owner_idle_s: int = _setting(
        900, "How many seconds an owner may report that it is idle before the stick may be taken over."
    )
    room_message_bytes: int = _setting(4_096, "The largest size of a message in a room, in bytes of UTF-8.")
    approvals: int = _setting(
        0,
        "With 1, a permission request of an agent waits for 'pal approve' or 'pal deny', if its harness "
        "supports it.",
        1,
    )
    approvals_wait_s: int = _setting(
        120, "How many seconds a permission request waits before it is denied; at most 3600.", 3_600
    )
    web_approvals: int = _setting(
        0, "With 1, a person can also approve and deny permission requests on the page of 'pal web'.", 1
    )
    codex_hooks: int = _setting(
        1, "With 0, 'pal codex' runs Codex without hooks and does not ask about them.", 1
    )
    agent_commands: str = _setting(
        "ask",
        "Whether agents may use the safe commands and tools of the bus without a prompt: yes, no, or ask a "
        "person once.",
    )
    window: str = _setting(
        "",
        "The command that opens a window for --window, such as 'xterm -T {name} -e {command}'; empty means "
        "that the terminal in use decides.",
    )
    room_wakes: str = _setting(
        "human", "The senders whose messages to a whole room wake all members: human, everyone or nobody."
    )
    auto_turn_triage_model: str = _setting(
        "haiku", "The model that decides whether messages deserve an automatic turn, if an agent names none."
    )
    auto_turn_debounce_ms: int = _setting(
        3_000,
        "How long an automatic turn waits for further messages, in milliseconds; 30 seconds at most in all.",
        30_000,
    )
    auto_turn_max_batch: int = _setting(
        20, "How many messages one automatic turn gets at most; a full batch runs at once.", 50
    )
    auto_turn_triage_timeout_s: int = _setting(
        30, "How many seconds the triage may take; after that the turn runs.", 3_600
    )
    auto_turn_timeout_s: int = _setting(
        300, "How many seconds an automatic turn may take; after that it is ended and tried again.", 86_400
    )
    auto_turn_limit_per_hour: int = _setting(
        20, "How many automatic turns a session runs in an hour at most; 0 means any number.", 1_000
    )
    auto_turn_triage_command: str = _setting(
        "claude -p --model {model}",
        "The command of the triage. It reads the question from standard input; {model} is the model.",
    )
    auto_turn_command: str = _setting(
        "",
        "A command that runs every automatic turn instead of the agent's harness. It reads the prompt from "
        "standard input, and its output is the result.",
    )
    metrics: int = _setting(
        0, "With 1, the HTTP door serves numbers about the bus at /metrics, for a token of any standing.", 1
    )
    metrics_names: int = _setting(0, "With 1, the numbers contain the names of agents.", 1)
    otel_endpoint: str = _setting(
        "",
        "The URL of an OTLP collector, such as http://127.0.0.1:4318, that gets numbers and spans of "
        "messages; empty disables it. It needs the extra palaver[otel].",
    )
    notify: str = _setting(
        "bell",
        "How an open 'pal ui', 'chat', 'attach' or 'notify' tells a person of an agent that needs them: "
        "bell, osc9, osc777 or off.",
    )
    notify_command: str = _setting(
        "",
        "A command that also tells the person, such as 'notify-send {title} {text}'. No shell runs it.",
    )
    notify_text: int = _setting(0, "With 1, such a notice contains the beginning of the message.", 1)


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


NEXT_START: Final = frozenset(
    {
        "sql_timeout_ms",
        "watchdog_ms",
        "native_wait_s",
        "http",
        "http_hosts",
        "http_remote",
        "irc",
        "irc_remote",
        "irc_tls_cert",
        "irc_tls_key",
    }
)
"""Settings whose new value counts from the next start, because a part of the daemon is built with the
value, such as an open listener. All others act at once."""


class LiveSettings:
    """The settings of a running daemon. For use in the event loop's thread only.

    Readers must use `now` each time and not keep it: a change replaces the whole value.
    """

    def __init__(self, loaded: LoadedSettings) -> None:
        self.now = loaded.settings
        self.origins: dict[str, Origin] = dict(loaded.origins)
        """For each setting, the source of its present value."""
        self._watching: list[Callable[[Settings], None]] = []

    def begin(self, loaded: LoadedSettings) -> None:
        """Replace all settings while the daemon starts."""
        self.now, self.origins = loaded.settings, dict(loaded.origins)

    def watch(self, changed: Callable[[Settings], None]) -> None:
        """Call `changed` with the settings after each change, in the order of the calls of `watch`."""
        self._watching.append(changed)

    def take(self, coming: Settings, given: Collection[str]) -> list[str]:
        """Use the values of the file as far as they act at once; return the keys that changed.

        `given` are the keys in the file. A value from the environment keeps its precedence.
        """
        keys = [key for key in KEYS if key not in NEXT_START and self.origins[key] != "environment"]
        # Only real changes: a file that is written again with the same values calls no watcher.
        changed = [key for key in keys if getattr(coming, key) != getattr(self.now, key)]
        self.now = replace(self.now, **{key: getattr(coming, key) for key in changed})
        self.origins |= {key: "file" if key in given else "default" for key in keys}
        # After all values are set, so that a watcher sees none of the old ones.
        for tell in self._watching if changed else ():
            tell(self.now)
        return changed


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
                # Refused and not ignored: a person who sets it must not believe that it is in force.
                raise BadRequest(
                    f"{name} cannot be set in the environment: unset it and use 'pal config set {key}'"
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
    # The parser raises RecursionError for deep nesting, and a plain ValueError for huge numbers.
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{name} cannot be read: {error}") from error


def check_key(key: str) -> None:
    """Refuse a key that is not a setting."""
    if key not in DEFAULTS:
        near = nearest(key, KEYS)
        hint = f"did you mean {near[0]}?" if near else f"the settings are: {', '.join(KEYS)}"
        raise BadRequest(f"there is no setting {key!r}; {hint}")


def typed(key: str, value: object) -> str | int:
    """Convert a value to the type of its setting; a number may be given as text. Raises BadRequest."""
    check_key(key)
    default = DEFAULTS[key]
    if isinstance(default, int):
        return _number(key, value)
    if not isinstance(value, str):
        raise BadRequest(f"the setting {key!r} must be a text, not {value!r}")
    if key == "log_level" and value not in _LEVELS:
        raise BadRequest(f"the setting 'log_level' must be debug, info, warning or error, not {value!r}")
    if key == "agent_commands" and value not in _CONSENTS:
        raise BadRequest(f"the setting 'agent_commands' must be ask, yes or no, not {value!r}")
    if key == "irc_guests" and value not in _IRC_GUESTS:
        raise BadRequest(f"the setting 'irc_guests' must be off, read or talk, not {value!r}")
    if key == "notify" and value not in _NOTICES:
        raise BadRequest(f"the setting 'notify' must be bell, osc9, osc777 or off, not {value!r}")
    if key == "notify_command" and value and not split_command(value):
        raise BadRequest(f"the setting 'notify_command' must be a command with its arguments, not {value!r}")
    if key == "otel_endpoint" and value and not value.startswith(_OTEL_SCHEMES):
        raise BadRequest(
            f"the setting 'otel_endpoint' must be a URL such as http://127.0.0.1:4318, not {value!r}"
        )
    if key == "window" and value and COMMAND_SLOT not in split_command(value):
        raise BadRequest(
            "the setting 'window' must be a command with the word {command}, such as 'xterm -T {name} -e "
            f"{{command}}', not {value!r}"
        )
    if key in ("auto_turn_triage_command", "auto_turn_command") and value and not split_command(value):
        raise BadRequest(f"the setting {key!r} must be a command with its arguments, not {value!r}")
    if key == "auto_turn_triage_command" and not value:
        raise BadRequest("the setting 'auto_turn_triage_command' cannot be empty")
    if key == "room_wakes" and value not in _WAKES:
        raise BadRequest(f"the setting 'room_wakes' must be human, everyone or nobody, not {value!r}")
    return value


def split_command(text: str) -> list[str]:
    """Split a setting that is a command into its words, as a shell does; empty if a quote is not closed."""
    # The words are run directly, without a shell, so that no name or message put into them can become a
    # command.
    try:
        return shlex.split(text)
    except ValueError:
        return []


def _number(key: str, value: object) -> int:
    """Return a number that its setting allows; it may be given as text."""
    most = _MOST.get(key)
    # The length is checked before the conversion, because Python refuses to convert thousands of digits.
    # `isdecimal` alone would also accept the digits of other scripts.
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= _LIMIT_DIGITS:
        value = int(value)
    # A bool is an int in Python, and `true` must not count as 1.
    if type(value) is not int or not 0 <= value < 10**_LIMIT_DIGITS:
        raise BadRequest(
            f"the setting {key!r} must be a number of at most {_LIMIT_DIGITS} digits, not {value!r}"
        )
    if most is not None and value > most:
        wanted = "0 or 1" if most == 1 else f"at most {most}"
        raise BadRequest(f"the setting {key!r} must be {wanted}, not {value}")
    return value
