"""The changes of `pal install` to each harness, so that sessions started without `pal` join the bus. Pure.

Files are values here; nothing is written, because writing needs the user's consent. Hooks run this client,
never Python. In a session that `pal` has started, they mark themselves as the second set and are ignored.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from palaver.harness import claude_launch, codex_hooks, gemini_hooks, opencode_plugin
from palaver.harness.json_text import PLAIN, Dialect, parse_json
from palaver.harness.merging import (
    Addition,
    Made,
    Merged,
    Unmerged,
    merged_json,
    unmerged_json,
)
from palaver.harness.merging_toml import has_toml, merged_toml, unmerged_toml

INSTALLABLE: Final = ("claude", "codex", "opencode", "gemini")
INSTALLED: Final = "--installed"
"""Tells the daemon that a hook was set up by `pal install`, not by `pal` for one session."""
_SERVER: Final = "palaver"
_TABLE: Final = "mcp_servers.palaver"
_HOOK_LIMIT_S: Final = 10
_END_LIMIT_S: Final = 3
"""Seconds. Codex allows a hook no more at the end of a session."""
_COMPANION_LIMIT_S: Final = 30 * 24 * 3600
"""Seconds. A session that runs longer is not woken any more when it is idle."""
_MARKETPLACE: Final = "palaver"

DIALECTS: Final[Mapping[str, Dialect]] = {
    "claude": PLAIN,
    "codex": PLAIN,
    "opencode": Dialect(comments=True, trailing_commas=True),
    "gemini": Dialect(comments=True),
}


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The change to one file of a harness: additions to JSON, or a TOML table."""

    file: str
    """Its name among the files of the harness."""
    additions: tuple[Addition, ...] = ()
    lines: tuple[str, ...] = ()


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """All changes to a harness."""

    changes: tuple[Change, ...]
    own: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Our own files, by name, in a folder that only we use."""
    advice: tuple[str, ...] = ()
    """Next steps and facts for the user."""


def setup_for(harness: str, pal: Sequence[str], own_folder: str, companion: Sequence[str] = ()) -> Setup:
    """Return the setup of a harness; `pal` is the client, with its home if that is not the default.

    `companion` is the command that a plugin or hook of the harness runs; without it there is no companion.
    """
    if harness == "codex":
        return _codex(pal, companion)
    if harness == "opencode" and companion:
        return _opencode_with_plugin(pal, own_folder, companion)
    return _SETUPS[harness](pal, own_folder)


def merge_change(harness: str, change: Change, text: str) -> Merged:
    """Add a change to the text of its file. Raises ValueError."""
    if change.lines:
        return merged_toml(text, harness, _TABLE, change.lines)
    if harness == "codex":
        _check_codex_hooks(text)
    return merged_json(text, change.additions, DIALECTS[harness])


def has_change(harness: str, change: Change, text: str) -> bool:
    """Whether a whole change is in the text of its file already, at any position. Raises ValueError."""
    if change.lines:
        return has_toml(text, _TABLE, change.lines)
    return merged_json(text, change.additions, DIALECTS[harness]).text == text


def unmerge_change(harness: str, change: Change, text: str, made: Sequence[Made]) -> Unmerged:
    """Remove a change from the text of its file. Raises ValueError."""
    if change.lines:
        return unmerged_toml(text, harness, _TABLE, made)
    return unmerged_json(text, change.additions, made, DIALECTS[harness])


def _claude(pal: Sequence[str], own_folder: str) -> Setup:
    marketplace = {"source": {"source": "directory", "path": own_folder}}
    plugin = f"{claude_launch.PLUGIN}@{_MARKETPLACE}"
    listed = {
        "name": _MARKETPLACE,
        "owner": {"name": "Palaver"},
        "plugins": [{"name": claude_launch.PLUGIN, "source": "./plugin"}],
    }
    files = claude_launch.plugin_files(_SLOT)
    own = {f"plugin/{name}": _filled(text, pal) for name, text in files.items()}
    return Setup(
        changes=(
            Change(
                file="settings.json",
                additions=(
                    Addition(path=("extraKnownMarketplaces",), name=_MARKETPLACE, value=marketplace),
                    Addition(path=("enabledPlugins",), name=plugin, value=True),
                ),
            ),
        ),
        own={".claude-plugin/marketplace.json": json.dumps(listed, indent=2) + "\n", **own},
        advice=("Sessions that start from now on are on the bus; running ones stay as they are.",),
    )


_SLOT: Final = "pal-goes-here"


def _filled(text: str, pal: Sequence[str]) -> str:
    """Insert the client with its home into the plugin, and mark its hooks as installed."""
    content = json.loads(text)
    _fill(content, pal)
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _fill(value: object, pal: Sequence[str]) -> None:
    if isinstance(value, dict):
        command = value.get("command")
        if command == _SLOT:
            value["command"], value["args"] = pal[0], [*pal[1:], *value.get("args", [])]
        elif isinstance(command, str):
            filled = command.replace(_SLOT, shlex.join(pal))
            is_hook = " hook " in command or " rewake " in command
            value["command"] = f"{filled} {INSTALLED}" if is_hook else filled
        for one in value.values():
            _fill(one, pal)
    elif isinstance(value, list):
        for one in value:
            _fill(one, pal)


def _codex(pal: Sequence[str], companion: Sequence[str]) -> Setup:
    server = (
        f"command = {_toml(pal[0])}",
        f"args = [{', '.join(map(_toml, (*pal[1:], 'mcp')))}]",
    )
    hooks = tuple(
        Addition(path=("hooks", event), value={"hooks": [_hook("codex", pal, event, _codex_limit_s(event))]})
        for event in codex_hooks.EVENTS
    )
    if companion:
        # It runs as long as the session, and Codex ends it together with the session.
        beside = {"type": "command", "command": f"exec {shlex.join(companion)}", "async": True}
        entry = {"matcher": "startup|resume|clear", "hooks": [{**beside, "timeout": _COMPANION_LIMIT_S}]}
        hooks = (*hooks, Addition(path=("hooks", "SessionStart"), value=entry))
    return Setup(
        changes=(Change(file="config.toml", lines=server), Change(file="hooks.json", additions=hooks)),
        advice=(
            "Codex runs no hook that you have not trusted: it asks at its next start (Hooks need review). "
            "Until then it has the tools only.",
        ),
    )


def _opencode(pal: Sequence[str], own_folder: str) -> Setup:
    server = {"type": "local", "command": [*pal, "mcp"], "enabled": True}
    return Setup(
        changes=(
            Change(file="opencode.json", additions=(Addition(path=("mcp",), name=_SERVER, value=server),)),
        ),
        advice=(
            "OpenCode started without 'pal' has the tools and reads its mail with them; 'pal opencode' "
            "is reached without asking.",
        ),
    )


def _opencode_with_plugin(pal: Sequence[str], own_folder: str, companion: Sequence[str]) -> Setup:
    (tools,) = _opencode(pal, own_folder).changes
    address = f"file://{quote(f'{own_folder}/{opencode_plugin.FILE}')}"
    plugin = Addition(path=("plugin",), value=address)
    return Setup(
        changes=(Change(file=tools.file, additions=(*tools.additions, plugin)),),
        own={opencode_plugin.FILE: opencode_plugin.plugin_source(companion)},
        advice=(
            "Sessions of OpenCode that start from now on are on the bus from their first prompt on. With a "
            "plugin OpenCode waits at its start until it has fetched its own package for plugins once; "
            "without a network that takes long.",
        ),
    )


def _gemini(pal: Sequence[str], own_folder: str) -> Setup:
    hooks = tuple(
        Addition(path=("hooks", event), value={"hooks": [_hook("gemini", pal, event, _HOOK_LIMIT_S * 1000)]})
        for event in gemini_hooks.EVENTS
    )
    server = {"command": pal[0], "args": [*pal[1:], "mcp"]}
    return Setup(
        changes=(
            Change(
                file="settings.json",
                additions=(*hooks, Addition(path=("mcpServers",), name=_SERVER, value=server)),
            ),
        ),
        advice=("Sessions that start from now on are on the bus, and are reached while they work.",),
    )


_SETUPS: Final = {"claude": _claude, "opencode": _opencode, "gemini": _gemini}


def _hook(harness: str, pal: Sequence[str], event: str, timeout: int) -> dict[str, object]:
    command = f"exec {shlex.join(pal)} hook {harness} {event} {INSTALLED}"
    named = {"name": "palaver"} if harness == "gemini" else {}
    return {**named, "type": "command", "command": command, "timeout": timeout}


def _codex_limit_s(event: str) -> int:
    return _END_LIMIT_S if event == "SessionEnd" else _HOOK_LIMIT_S


def _toml(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _check_codex_hooks(text: str) -> None:
    """Refuse a file that Codex cannot read: one entry of type http turns off every hook in it."""
    if text.strip() and _has_http(parse_json(text).value):
        raise ValueError(
            "it contains a hook of type http, so Codex ignores the whole file; remove that hook first"
        )


def _has_http(value: object) -> bool:
    if isinstance(value, dict):
        return value.get("type") == "http" or any(map(_has_http, value.values()))
    return isinstance(value, list) and any(map(_has_http, value))
