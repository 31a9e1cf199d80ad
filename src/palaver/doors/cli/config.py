"""The commands that show and change settings."""

import textwrap
from collections.abc import Iterator, Mapping
from typing import Final

from palaver.config import (
    DEFAULTS,
    KEYS,
    MEANINGS,
    NEXT_START,
    PREFIX,
    SETTINGS_FILE,
    Settings,
    check_key,
    parse_file,
    typed,
)
from palaver.domain.rights import require
from palaver.doors.cli.call import Call
from palaver.doors.cli.spec import Command, Option, Positional
from palaver.errors import BadRequest, PalaverError, UsageError
from palaver.home import read_settings_file, write_settings_file
from palaver.protocol.agents import Agent, Standing
from palaver.protocol.events import HINTS_KEY, TAG_KEY
from palaver.protocol.requests import ChangeSetting, Pause, TagAgent, Unpause
from palaver.protocol.settings_file import format_value, parse_settings, with_setting, without_setting

# --------------------
# Rows of the commands that show and change settings.

_GROUP: Final = "The bus"

_KEY: Final = Positional(name="KEY", help="The name of the setting.", completes="settings")

_AGENT: Final = Option(
    name="--agent",
    metavar="NAME",
    help="The settings of this agent: hints, tag and delivery.",
    completes="agents",
)

CONFIG_COMMANDS: Final = (
    Command(
        path=("config",),
        group=_GROUP,
        summary="Show and change settings.",
        description=(
            "Settings are stored in config.toml in the home of the bus. Most changes act at once; others act "
            "when the bus starts again, and the command says so. An environment variable PALAVER_NAME "
            "overrides the setting 'name' in the file. With --agent, 'hints', 'tag' and 'delivery' are the "
            "settings of one agent; they are stored in the log."
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
            "Shows the current value of each setting, its source and its meaning. If the file has another "
            "value that acts only when the bus starts again, it also shows that value."
        ),
        options=(_AGENT,),
        examples=(
            ("pal config list", "for people"),
            ("pal config list --json", "for programs"),
            ("pal config list --agent luna", "the settings of luna"),
        ),
        json=(
            "one object for each setting: 'key', 'value', 'from' ('default', 'file' or 'environment'; with "
            "--agent also 'agent'), 'default', 'meaning' and, if the file has another value for the next "
            "start, 'next'. For 'http' also 'problem', if the HTTP endpoint cannot listen there."
        ),
    ),
    Command(
        path=("config", "get"),
        group=_GROUP,
        summary="Show the value of one setting.",
        positionals=(_KEY,),
        options=(_AGENT, Option(name="--default", help="Show the default instead.")),
        examples=(
            ("pal config get brake_hops", "how long a chain of replies may get"),
            ("pal config get delivery --agent luna", "does luna get all messages?"),
        ),
    ),
    Command(
        path=("config", "set"),
        group=_GROUP,
        summary="Change a setting.",
        description=(
            "Writes the value to config.toml, keeps comments and all other lines, and records the change "
            "in the log. It acts at once, or says that it acts when the bus starts again. With --agent: "
            "'hints' is a text that this agent gets after its messages, instead of that of the bus; 'tag' "
            "is its group, as 'pal tag' sets it; 'delivery' is 'all', or 'interrupts' as after 'pal pause'. "
            "Only a person can do this."
        ),
        positionals=(_KEY, Positional(name="VALUE", help="The new value.", optional=True)),
        options=(_AGENT, Option(name="--default", help="Use the default, as 'pal config unset' does.")),
        examples=(
            ("pal config set brake_per_minute 120", "let agents send more messages"),
            ('pal config set hints "answer in English"', "an instruction for every agent"),
            ('pal config set hints "answer in German" --agent luna', "an instruction for luna alone"),
            ("pal config set delivery interrupts --agent luna", "let luna work undisturbed"),
        ),
        json="'key', 'value', 'old' and 'takes_effect' ('now' or 'next start'); with --agent also 'agent'.",
    ),
    Command(
        path=("config", "unset"),
        group=_GROUP,
        summary="Return a setting to its default.",
        description=(
            "Removes the setting from config.toml; with --agent, that of the agent. "
            "Only a person can do this."
        ),
        positionals=(_KEY,),
        options=(_AGENT,),
        examples=(
            ("pal config unset brake_hops", "back to 40"),
            ("pal config unset hints --agent luna", "luna gets the hints of the bus again"),
        ),
        json="as for 'pal config set'.",
    ),
    Command(
        path=("config", "edit"),
        group=_GROUP,
        summary="Edit the settings file in your editor.",
        description=(
            "Opens a copy of the file in $VISUAL or $EDITOR (default: vi), with your own rights. A file "
            "with which the bus would not start is not saved: the command prints the error, and you can "
            "edit it again. Changes act at once, or the command says that they act when the bus starts "
            "again. Only a person can do this."
        ),
        examples=(("pal config edit", "change several settings at once"),),
    ),
    Command(
        path=("config", "reload"),
        summary="Use the settings file; run by 'pal config edit'.",
        is_hidden=True,
    ),
)


# --------------------
# Functions of `pal config`. The file is written first, then the daemon uses it as far as that acts at once.

NEXT_START_TEXT: Final = "takes effect when the bus starts again: pal down, pal up"
NOW_TEXT: Final = "takes effect now"

_INDENT: Final = "    "
_WIDEST: Final = 100


async def list_settings(call: Call) -> int:
    """Show every setting: its value, the origin of the value, and its meaning."""
    if agent := _agent(call):
        for key in AGENT_KEYS:
            if call.is_json:
                await call.say_json(_agent_view(agent, key))
            else:
                await call.say_lines(_agent_lines(call, agent, key))
        return 0
    coming = _coming(call)
    for key in KEYS:
        if call.is_json:
            await call.say_json(_view(call, key, coming))
        else:
            await call.say_lines(_lines(call, key, coming))
    return 0


async def get_setting(call: Call) -> int:
    """Show the present value of one setting, or its default."""
    key = call.parsed.positionals[0]
    if agent := _agent(call):
        check_agent_key(key)
        view = _agent_view(agent, key)
    else:
        check_bus_key(key)
        view = _view(call, key, _coming(call))
    if call.parsed.has("--default"):
        view |= {"value": view["default"], "from": "default"}
        view.pop("next", None)  # It is about the present value, which is not shown.
    if call.is_json:
        await call.say_json(view)
        return 0
    await call.say(f"{call.safe(str(view['value']), keep_lines=True)}\n")
    if "next" in view:
        call.warn(f"it will be {view['next']} when the bus starts again: pal down, pal up")
    return 0


async def set_setting(call: Call) -> int:
    """Change one setting of the bus or of an agent."""
    require(call.caller, Standing.HUMAN, "config set")
    key, *values = call.parsed.positionals
    if bool(values) == call.parsed.has("--default"):
        raise UsageError("name a value, or --default: pal config set KEY VALUE, pal config set KEY --default")
    return await _change(call, key, values[0] if values else None)


async def unset_setting(call: Call) -> int:
    """Return one setting of the bus or of an agent to its default."""
    require(call.caller, Standing.HUMAN, "config unset")
    return await _change(call, call.parsed.positionals[0], None)


async def _change(call: Call, key: str, text: str | None) -> int:
    """Change a setting; None is its default."""
    if agent := _agent(call):
        check_agent_key(key)
        return await _change_of_agent(call, agent, key, AGENT_DEFAULTS[key] if text is None else text)
    check_bus_key(key)
    value, home = typed(key, DEFAULTS[key] if text is None else text), call.services.daemon.home
    # No await until the file is written: a change by another caller in between would be lost.
    content = read_settings_file(home)
    name = str(home / SETTINGS_FILE)
    old = _old_value(key, parse_file(content, name))
    # Valid UTF-8: `parse_file` has read it.
    whole = content.decode()
    changed = (without_setting(whole, key) if text is None else with_setting(whole, key, value)).encode()
    parse_settings(changed, name)  # The bus would not start with a file that this refuses.
    write_settings_file(home, changed)
    await call.submit(ChangeSetting(key=key, value=value, old=old))
    _use_file(call)
    if call.is_json:
        when = "next start" if key in NEXT_START else "now"
        await call.say_json({"key": key, "value": value, "old": old, "takes_effect": when})
    else:
        when = NEXT_START_TEXT if key in NEXT_START else NOW_TEXT
        await call.say_lines([call.safe(f"{key} = {format_value(value)}"), when])
    if call.services.daemon.settings.origins[key] == "environment":
        call.warn(f"{PREFIX}{key.upper()} was set when the bus was started, and overrides the file")
    return 0


def _old_value(key: str, file: Mapping[str, object]) -> str | int:
    found = file.get(key, DEFAULTS[key])
    try:
        return typed(key, found)
    except BadRequest:
        # Not refused, because it is about to be replaced: the command can repair what a person typed wrong.
        return str(found)


async def _change_of_agent(call: Call, agent: Agent, key: str, value: str) -> int:
    old = _agent_value(agent, key)
    if key == TAG_KEY:
        await call.submit(TagAgent(name=agent.name, tag=value))
    elif key == HINTS_KEY:
        await call.submit(ChangeSetting(key=key, value=value, old=old, agent=agent.name))
    elif value in DELIVERIES:
        # The value is the state that 'pal pause' changes, so that both commands always agree.
        is_paused = value == INTERRUPTS
        await call.submit(Pause(name=agent.name) if is_paused else Unpause(name=agent.name))
    else:
        raise BadRequest(f"the setting 'delivery' must be {' or '.join(DELIVERIES)}, not {value!r}")
    if call.is_json:
        await call.say_json(
            {"agent": agent.name, "key": key, "value": value, "old": old, "takes_effect": "now"}
        )
    else:
        await call.say_lines([call.safe(f"{agent.name}: {key} = {format_value(value)}"), NOW_TEXT])
    return 0


async def edit_settings(call: Call) -> int:
    """Let the client open the file in the user's editor."""
    require(call.caller, Standing.HUMAN, "config edit")
    call.connection.run_here("config", "edit")
    return 0


async def reload_settings(call: Call) -> int:
    """Use the file as it is now, and say which changes act now and which at the next start."""
    # People do not type this command: it is the last step of 'pal config edit'.
    require(call.caller, Standing.HUMAN, "config edit")
    changed = _use_file(call)
    coming = _coming(call)
    later = [key for key in KEYS if coming is not None and "next" in _view(call, key, coming)]
    lines = [f"{NOW_TEXT}: {', '.join(changed)}"] if changed else []
    lines += [f"{', '.join(later)}: {NEXT_START_TEXT}"] if later else []
    await call.say_lines(lines or ["nothing was changed"])
    return 0


def _use_file(call: Call) -> list[str]:
    """Let the daemon use the values of the file that act at once; return the keys that changed."""
    home = call.services.daemon.home
    content, name = read_settings_file(home), str(home / SETTINGS_FILE)
    return call.services.daemon.settings.take(parse_settings(content, name), parse_file(content, name))


def _coming(call: Call) -> Settings | None:
    """Return the settings in the file, which apply from the next start; None if the file is not valid."""
    name = str(call.services.daemon.home / SETTINGS_FILE)
    try:
        return parse_settings(read_settings_file(call.services.daemon.home), name)
    except PalaverError as error:
        # Only a warning: the values of now can be shown although the file is not valid.
        call.warn(f"the bus would not start again: {error}")
        return None


# --------------------
# Settings of one agent. They are in the log, and act at once.

ALL: Final = "all"
INTERRUPTS: Final = "interrupts"
DELIVERIES: Final = (ALL, INTERRUPTS)
DELIVERY_KEY: Final = "delivery"

AGENT_KEYS: Final = (HINTS_KEY, TAG_KEY, DELIVERY_KEY)
AGENT_DEFAULTS: Final = {HINTS_KEY: "", TAG_KEY: "", DELIVERY_KEY: ALL}
_AGENT_MEANINGS: Final = {
    HINTS_KEY: "A text that it gets after its messages, instead of that of the bus; at most 1000 bytes.",
    TAG_KEY: "Its group: '@TAG-' addresses all agents with the tag.",
    DELIVERY_KEY: "Which messages it gets by itself: all, or only interrupts, as after 'pal pause'.",
}


def _agent(call: Call) -> Agent | None:
    name = call.parsed.value("--agent")
    return None if name is None else call.agent(name)


def check_agent_key(key: str) -> None:
    """Refuse a key that is not a setting of one agent."""
    if key not in AGENT_KEYS:
        check_key(key)
        raise BadRequest(
            f"the setting {key!r} belongs to the bus: leave out --agent; an agent has {', '.join(AGENT_KEYS)}"
        )


def check_bus_key(key: str) -> None:
    """Refuse a key that is not a setting of the bus."""
    if key in (TAG_KEY, DELIVERY_KEY):
        raise BadRequest(f"the setting {key!r} belongs to one agent: add --agent NAME")
    check_key(key)


def _agent_value(agent: Agent, key: str) -> str:
    values = {
        HINTS_KEY: agent.hints,
        TAG_KEY: agent.tag,
        DELIVERY_KEY: INTERRUPTS if agent.paused else ALL,
    }
    return values[key]


def _agent_view(agent: Agent, key: str) -> dict[str, object]:
    value, default = _agent_value(agent, key), AGENT_DEFAULTS[key]
    return {
        "agent": agent.name,
        "key": key,
        "value": value,
        "from": "default" if value == default else "agent",
        "default": default,
        "meaning": _AGENT_MEANINGS[key],
    }


def _agent_lines(call: Call, agent: Agent, key: str) -> Iterator[str]:
    view, paint = _agent_view(agent, key), call.paint
    origin = f"({view['from']})"
    yield f"{paint.bold(key)} = {call.safe(format_value(_agent_value(agent, key)))} {paint.dim(origin)}"
    width = min(call.width or _WIDEST, _WIDEST)
    yield from textwrap.wrap(_AGENT_MEANINGS[key], width, initial_indent=_INDENT, subsequent_indent=_INDENT)


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
    # The environment overrides the file at the next start too.
    if coming is not None and origin != "environment" and getattr(coming, key) != value:
        view["next"] = getattr(coming, key)
    if (door := call.services.daemon.doors.get(key)) is not None and door.trouble:
        view["problem"] = door.trouble
    return view


def _now(call: Call, key: str) -> tuple[str | int, str]:
    """Return the present value and its origin. `pal up --http` and `--irc` change the values of a door."""
    for door in call.services.daemon.doors.values():
        if key in door.changed:
            return door.changed[key], "file"
    value: str | int = getattr(call.services.daemon.settings.now, key)
    return value, call.services.daemon.settings.origins[key]


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
