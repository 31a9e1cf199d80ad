"""The commands that show and change settings."""

import textwrap
from collections.abc import Iterator
from typing import Final

from palaver.config import (
    DEFAULTS,
    KEYS,
    MEANINGS,
    PREFIX,
    SETTINGS_FILE,
    Settings,
    check_key,
    parse_file,
    typed,
)
from palaver.domain.rights import require
from palaver.doors.cli.call import Call
from palaver.doors.cli.spec import Command, Positional
from palaver.errors import PalaverError
from palaver.home import read_settings_file, write_settings_file
from palaver.protocol.agents import Standing
from palaver.protocol.requests import ChangeSetting
from palaver.protocol.settings_file import format_value, parse_settings, with_setting

# --------------------
# Rows of the commands that show and change settings.

_GROUP: Final = "The bus"

_KEY: Final = Positional(name="KEY", help="The name of the setting.", completes="settings")

CONFIG_COMMANDS: Final = (
    Command(
        path=("config",),
        group=_GROUP,
        summary="Show and change settings.",
        description=(
            "Settings are stored in config.toml in the home of the bus and are read when it starts. An "
            "environment variable PALAVER_NAME overrides the setting 'name' in the file."
        ),
        is_group=True,
        examples=(("pal config list", "show all settings and their values"),),
        see=(("settings", "settings.md"),),
    ),
    Command(
        path=("config", "list"),
        group=_GROUP,
        summary="List all settings.",
        description=(
            "Shows the current value of each setting, its source and its meaning. If the file has changed "
            "since the start of the bus, it also shows the value after the next start."
        ),
        examples=(("pal config list", "for people"), ("pal config list --json", "for programs")),
        json=(
            "one object for each setting: 'key', 'value', 'from' ('default', 'file' or 'environment'), "
            "'default', 'meaning' and, if the file has changed, 'next'. For 'http' also 'problem', if the "
            "HTTP endpoint cannot listen there."
        ),
    ),
    Command(
        path=("config", "get"),
        group=_GROUP,
        summary="Show the value of one setting.",
        positionals=(_KEY,),
        examples=(("pal config get brake_hops", "how long a chain of replies may get"),),
    ),
    Command(
        path=("config", "set"),
        group=_GROUP,
        summary="Change a setting.",
        description=(
            "Writes the value to config.toml, keeps comments and all other lines, and records the change "
            "in the log. It takes effect at the next start of the bus: 'pal down', 'pal up'. Only a "
            "person can do this."
        ),
        positionals=(_KEY, Positional(name="VALUE", help="The new value.")),
        examples=(
            ("pal config set brake_per_minute 120", "let agents send more messages"),
            ('pal config set hints "answer in English"', "an instruction for every agent"),
        ),
    ),
    Command(
        path=("config", "edit"),
        group=_GROUP,
        summary="Edit the settings file in your editor.",
        description=(
            "Opens a copy of the file in $VISUAL or $EDITOR (default: vi), with your own rights. A file "
            "with which the bus would not start is not saved: the command prints the error, and you can "
            "edit it again. Only a person can do this."
        ),
        examples=(("pal config edit", "change several settings at once"),),
    ),
)


# --------------------
# Functions of `pal config`. The daemon reads the settings once, when it starts.

NEXT_START: Final = "takes effect when the bus starts again: pal down, pal up"

_INDENT: Final = "    "
_WIDEST: Final = 100


async def list_settings(call: Call) -> int:
    """Show every setting: its value, the origin of the value, and its meaning."""
    coming = _coming(call)
    for key in KEYS:
        if call.is_json:
            await call.say_json(_view(call, key, coming))
        else:
            await call.say_lines(_lines(call, key, coming))
    return 0


async def get_setting(call: Call) -> int:
    """Show the present value of one setting."""
    key = call.parsed.positionals[0]
    check_key(key)
    view = _view(call, key, _coming(call))
    if call.is_json:
        await call.say_json(view)
        return 0
    await call.say(f"{call.safe(str(view['value']), keep_lines=True)}\n")
    if "next" in view:
        call.warn(f"it will be {view['next']} when the bus starts again: pal down, pal up")
    return 0


async def set_setting(call: Call) -> int:
    """Write one setting to the file, then store the change in the log."""
    require(call.caller, Standing.HUMAN, "config set")
    key, text = call.parsed.positionals
    value, home = typed(key, text), call.services.daemon.home
    content = read_settings_file(home)
    name = str(home / SETTINGS_FILE)
    old = typed(key, parse_file(content, name).get(key, DEFAULTS[key]))
    changed = with_setting(content.decode(), key, value).encode()
    parse_settings(changed, name)
    write_settings_file(home, changed)
    request = ChangeSetting(key=key, value=value, old=old)
    await call.submit(request)
    if call.is_json:
        await call.say_json({"key": key, "value": value, "old": old, "takes_effect": "next start"})
    else:
        await call.say_lines([call.safe(f"{key} = {format_value(value)}"), NEXT_START])
    if call.services.daemon.origins[key] == "environment":
        call.warn(f"{PREFIX}{key.upper()} was set when the bus was started, and overrides the file")
    return 0


async def edit_settings(call: Call) -> int:
    """Let the client open the file in the user's editor."""
    require(call.caller, Standing.HUMAN, "config edit")
    call.connection.run_here("config", "edit")
    return 0


def _coming(call: Call) -> Settings | None:
    """Return the settings in the file, which apply from the next start; None if the file is not valid."""
    name = str(call.services.daemon.home / SETTINGS_FILE)
    try:
        return parse_settings(read_settings_file(call.services.daemon.home), name)
    except PalaverError as error:
        call.warn(f"the bus would not start again: {error}")
        return None


# --------------------
# Rendering: for programs and for people.


def _view(call: Call, key: str, coming: Settings | None) -> dict[str, object]:
    """Return one setting for JSON output; `next` only if the file has a different value.

    `problem` only if the value has no effect, or a change of it failed.
    """
    value, origin = _now(call, key)
    view: dict[str, object] = {
        "key": key,
        "value": value,
        "from": origin,
        "default": DEFAULTS[key],
        "meaning": MEANINGS[key],
    }
    if coming is not None and origin != "environment" and getattr(coming, key) != value:
        view["next"] = getattr(coming, key)
    if key == "http" and (problem := call.services.daemon.http.trouble):
        view["problem"] = problem
    return view


def _now(call: Call, key: str) -> tuple[str | int, str]:
    """Return the present value and its origin. Only `pal up --http` changes a value while the bus runs."""
    changed = call.services.daemon.http.changed
    if key in changed:
        return changed[key], "file"
    value: str | int = getattr(call.services.daemon.settings, key)
    return value, call.services.daemon.origins[key]


def _lines(call: Call, key: str, coming: Settings | None) -> Iterator[str]:
    view, paint = _view(call, key, coming), call.paint
    value = call.safe(format_value(_now(call, key)[0]))
    origin = f"({view['from']})"
    yield f"{paint.bold(key)} = {value} {paint.dim(origin)}"
    width = min(call.width or _WIDEST, _WIDEST)
    yield from textwrap.wrap(MEANINGS[key], width, initial_indent=_INDENT, subsequent_indent=_INDENT)
    if "next" in view:
        coming_value = call.safe(format_value(getattr(coming, key)))
        yield _INDENT + paint.yellow(f"{coming_value} when the bus starts again")
    if "problem" in view:
        yield _INDENT + paint.yellow(call.safe(str(view["problem"])))
