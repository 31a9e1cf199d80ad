"""A parsed command line and access to its values. Pure."""

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
    """A parsed command line.

    `positionals` are the arguments before `--`; for a command without `rest` they include those after it.
    `after` is the arguments after `--`, or None without `--`. With `is_help`, only show the help of `command`
    (its path is empty for the overview); then the other fields are empty.
    """

    command: Command
    options: dict[str, Value] = field(default_factory=dict)
    positionals: list[str] = field(default_factory=list)
    after: list[str] | None = None
    home: str | None = None
    as_name: str | None = None
    form: str | None = None
    """`json` or `text` if the caller chose one."""
    is_help: bool = False

    def has(self, name: str) -> bool:
        """Return whether a flag or option was given."""
        return self._given(name) is not None

    def value(self, name: str) -> str | None:
        """Return the value of an option that can be given once, or None."""
        given = self._given(name)
        assert given is None or isinstance(given, str), f"{name} is not an option with one value"
        return given

    def values(self, name: str) -> list[str]:
        """Return all values of an option that can be repeated, or an empty list."""
        given = self._given(name)
        assert given is None or isinstance(given, list), f"{name} is not an option with many values"
        return given or []

    def number(self, name: str, least: int = 0) -> int | None:
        """Return the value as a whole number of at least `least`, or None if it was not given."""
        given = self.value(name)
        if given is None:
            return None
        if not (given.isascii() and given.isdigit() and len(given) <= 18):
            raise UsageError(f"{name} requires a whole number, not {shown(given)}")
        if int(given) < least:
            raise UsageError(f"{name} must be at least {least}; omit it for the default")
        return int(given)

    def duration_s(self, name: str) -> float | None:
        """Return the value in seconds: `30`, `0.5`, `90s`, `10m`, `2h`, `1d`. None if it was not given."""
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
        # A handler that reads an option its command does not have is a bug: fail at once.
        assert given is not None or any(one.name == name for one in self.command.options), name
        return given
