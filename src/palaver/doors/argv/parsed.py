"""A command line that could be read, and the values that stand on it. Pure."""

import re
from dataclasses import dataclass, field
from typing import Final

from palaver.doors.argv.complaints import shown
from palaver.doors.argv.spec import Command
from palaver.errors import UsageError

Value = str | bool | list[str]

_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|[smhdw]?)\Z")
_SECONDS: Final = {"ms": 0.001, "": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A command line that could be read.

    `positionals` are the arguments before `--`; a command without `rest` finds those behind it there too.
    `after` is what stood behind `--`, None when there was none. With `is_help` nothing may be done but show
    the help of `command` (its path is empty for the overview), and nothing else here is filled in.
    """

    command: Command
    options: dict[str, Value] = field(default_factory=dict)
    positionals: list[str] = field(default_factory=list)
    after: list[str] | None = None
    home: str | None = None
    as_name: str | None = None
    form: str | None = None
    """`json` or `text` when the caller chose one."""
    is_help: bool = False

    def has(self, name: str) -> bool:
        """Say whether a flag or option was given."""
        return self._given(name) is not None

    def value(self, name: str) -> str | None:
        """Give the value of an option that stands once at most, or None."""
        given = self._given(name)
        assert given is None or isinstance(given, str), f"{name} is not an option with one value"
        return given

    def values(self, name: str) -> list[str]:
        """Give all values of an option that may stand several times; none is an empty list."""
        given = self._given(name)
        assert given is None or isinstance(given, list), f"{name} is not an option with many values"
        return given or []

    def number(self, name: str, least: int = 0) -> int | None:
        """Give the value as a whole number that is not below the least, or None when it was not given."""
        given = self.value(name)
        if given is None:
            return None
        if not (given.isascii() and given.isdigit() and len(given) <= 18):
            raise UsageError(f"{name} requires a whole number, not {shown(given)}")
        if int(given) < least:
            raise UsageError(f"{name} must be at least {least}; omit it for the default")
        return int(given)

    def duration_s(self, name: str) -> float | None:
        """Give the value as seconds: `30`, `0.5`, `90s`, `10m`, `2h`, `1d`. None when it was not given."""
        given = self.value(name)
        if given is None:
            return None
        found = _DURATION.match(given)
        if found is None:
            raise UsageError(
                f"{name} requires a time such as 30 (seconds), 10m, 2h or 1d, not {shown(given)}"
            )
        return float(found[1]) * _SECONDS[found[2]]

    def _given(self, name: str) -> Value | None:
        given = self.options.get(name)
        # A handler that asks for what its command does not have would wait for ever; say it at once.
        assert given is not None or any(one.name == name for one in self.command.options), name
        return given
