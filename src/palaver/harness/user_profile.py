"""A profile that a user wrote for a program: a TOML file in the `profiles` folder of the home. Pure.

commands = ["mytool"]        # program names; without it the name of the file
prompts = ['you> ']          # the whole line up to the cursor, where a message may be typed
dialogs = ['Proceed\\?']      # on any line of the screen: a question is open, and nothing is typed
interrupt = "ctrl-c"         # or "escape" or "none"
settle_ms = 300              # between the text and Enter
idle_after_ms = 2000         # this much silence means that the program is idle
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from palaver.errors import BadRequest
from palaver.harness import generic
from palaver.harness.hook_states import PERMISSION
from palaver.harness.profile import Interrupt, Profile, View
from palaver.harness.prompt import LIMIT_LINE, compile_rule

LIMIT_BYTES: Final = 64 * 1024
_LIMIT_RULES: Final = 20
_LIMIT_MS: Final = 60_000
_INTERRUPTS: Final[Mapping[str, Interrupt]] = {
    "ctrl-c": Interrupt(keys=b"\x03", most=3),
    "escape": Interrupt(keys=b"\x1b"),
    "none": Interrupt(keys=b"", most=0),
}


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    commands: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    dialogs: tuple[str, ...] = ()
    interrupt: str = "ctrl-c"
    settle_ms: int = generic.PROFILE.settle_ms
    idle_after_ms: int = generic.PROFILE.idle_after_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class UserProfile:
    """A profile and the program names that it is for."""

    profile: Profile
    commands: tuple[str, ...]


def parse_user_profile(name: str, content: bytes) -> UserProfile:
    """Read a profile file; `name` is its name without `.toml`. Raises BadRequest for a mistake."""
    where = f"profile {name}"
    if not content or len(content) > LIMIT_BYTES:
        raise BadRequest(f"{where} is empty, cannot be read or is larger than {LIMIT_BYTES} bytes")
    try:
        file = msgspec.convert(tomllib.loads(content.decode()), _File)
    except UnicodeDecodeError:
        raise BadRequest(f"{where} is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise BadRequest(f"{where} is not TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise BadRequest(f"{where}: {error}; it may have {', '.join(_File.__struct_fields__)}") from None
    if file.interrupt not in _INTERRUPTS:
        raise BadRequest(f"{where}: interrupt is {' or '.join(map(repr, _INTERRUPTS))}")
    for field, value in (("settle_ms", file.settle_ms), ("idle_after_ms", file.idle_after_ms)):
        if not 0 < value <= _LIMIT_MS:
            raise BadRequest(f"{where}: {field} is a number from 1 to {_LIMIT_MS}")
    if max(len(file.prompts), len(file.dialogs)) > _LIMIT_RULES:
        raise BadRequest(f"{where}: at most {_LIMIT_RULES} prompts and {_LIMIT_RULES} dialogs")
    dialogs = tuple(compile_rule(one, f"{where}: dialog {one!r}") for one in file.dialogs)
    profile = replace(
        generic.PROFILE,
        name=name,
        takes_messages=tuple(compile_rule(one, f"{where}: prompt {one!r}") for one in file.prompts),
        has_named_prompt=bool(file.prompts),
        read_dialog=lambda view: _read_dialog(dialogs, view),
        interrupt=_INTERRUPTS[file.interrupt],
        settle_ms=file.settle_ms,
        idle_after_ms=file.idle_after_ms,
    )
    return UserProfile(profile=profile, commands=file.commands or (name,))


def _read_dialog(dialogs: tuple[re.Pattern[str], ...], view: View) -> str | None:
    is_open = any(rule.search(line[:LIMIT_LINE]) for rule in dialogs for line in view.lines)
    return PERMISSION if is_open else None


def with_prompt(profile: Profile, prompt: str) -> Profile:
    """Add the rule of `pal run --prompt`. Raises BadRequest if it is not a valid rule."""
    if not prompt:
        return profile
    rules = (*profile.takes_messages, compile_rule(prompt, "--prompt"))
    return replace(profile, takes_messages=rules, has_named_prompt=True)
