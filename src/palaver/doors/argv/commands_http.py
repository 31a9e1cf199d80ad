"""`pal up --http` and `--no-http`: open or shut the HTTP door now, and in the settings for the next start.

Only a person may do this.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from palaver.config import DEFAULTS, FILE_NAME, parse_file, typed
from palaver.doors.argv.call import Call
from palaver.doors.argv.parsed import Parsed
from palaver.doors.argv.settings_file import read_settings_file, write_settings_file
from palaver.doors.http.address import check_reach, format_address, parse_address
from palaver.errors import DoorShut, UsageError
from palaver.model.agent import Caller, Standing
from palaver.model.request import ChangeSetting
from palaver.model.setting import with_setting
from palaver.routing.policy import require

_OPTIONS: Final = ("--http", "--http-remote", "--no-http")


async def change_http(call: Call) -> None:
    """Apply the HTTP options of `pal up`; do nothing without them.

    The door is opened or shut first, then the settings file is written, then the changes are stored in the
    log. Raises DoorShut, and changes no setting, if the door cannot be opened, for example at a taken port.
    """
    wanted = wanted_settings(call.parsed)
    if not wanted:
        return
    require_person(call.caller)
    settings = replace(
        call.services.settings, http=str(wanted["http"]), http_remote=int(wanted["http_remote"])
    )
    door = call.services.http
    await door.open(call.services, settings)
    if door.trouble:
        still = f"; it listens at {door.where} as before" if door.where else ""
        raise DoorShut(f"the bus is up, but {door.trouble}{still}")
    door.changed = dict(wanted)
    old = write_wanted(call.services.home, wanted)
    for key, value in wanted.items():
        if value != old[key]:
            request = ChangeSetting(key=key, value=value, old=old[key])
            await call.services.broker.submit(call.caller, request)


def require_person(caller: Caller) -> None:
    """Refuse a caller that may not open or shut the door."""
    require(caller, Standing.HUMAN, "opening or shutting the HTTP door")


def wanted_settings(parsed: Parsed) -> dict[str, str | int]:
    """Return the settings that the HTTP options select; empty without such options.

    Raises BadRequest for an invalid address.
    """
    if not any(name in parsed.options for name in _OPTIONS):
        return {}
    if parsed.has("--no-http"):
        return {"http": "", "http_remote": 0}
    written = parsed.value("--http")
    if written is None:
        raise UsageError("--http-remote belongs to --http: say where it listens")
    address = parse_address(written)
    check_reach(address, is_remote=parsed.has("--http-remote"))
    return {"http": format_address(address), "http_remote": int(parsed.has("--http-remote"))}


def write_wanted(home: Path, wanted: Mapping[str, str | int]) -> dict[str, str | int]:
    """Write settings to the file, and return their previous values in it."""
    content = read_settings_file(home)
    given = parse_file(content, str(home / FILE_NAME))
    text = content.decode()
    for key, value in wanted.items():
        text = with_setting(text, key, value)
    write_settings_file(home, text.encode())
    return {key: typed(key, given.get(key, DEFAULTS[key])) for key in wanted}
