"""The harnesses on this machine: which are installed, what is known of them, and, on request, a self-test."""

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from importlib.resources import files
from typing import Final

import msgspec

from palaver.cli.doctor.accounts import PROGRAMS
from palaver.cli.doctor.findings import Found, Tried, found_lines, found_view
from palaver.cli.doctor.trial import try_out
from palaver.cli.doctor.version import NoVersionError, Running, ask_version, end
from palaver.doors.argv.style import paint_for

_LIMIT_S: Final = 30.0
_INTERRUPTED: Final = 130
PROVEN_FILE: Final = "proven.json"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon's own checks, and the options of the command."""

    checks: list[dict[str, object]]
    is_json: bool = False
    harnesses: tuple[str, ...] = ()
    is_self_test: bool = False


def proven() -> tuple[Tried, ...]:
    """Return the self-tests that were recorded for this version."""
    content = (files("palaver.cli.doctor") / PROVEN_FILE).read_bytes()
    return msgspec.json.decode(content, type=tuple[Tried, ...])


def doctor(order: Order, environment: Mapping[str, str]) -> int:
    """Print the findings; the status is 1 if something needs attention."""
    is_well = all(check["ok"] for check in order.checks)
    wanted = order.harnesses or PROGRAMS
    programs = {name: path for name in wanted if (path := shutil.which(name, path=environment.get("PATH")))}
    missing = [name for name in order.harnesses if name not in programs]
    found = _looked_at(programs, environment)
    if order.is_self_test:
        found = [_tried(one, environment, is_loud=not order.is_json) for one in found]
    is_well = is_well and not missing and all(one.tried is None or one.tried.is_well for one in found)
    known = proven()
    if order.is_json:
        views = [found_view(one, known) for one in found]
        views += [{"harness": name, "path": None, "version": None} for name in missing]
        sys.stdout.write(
            json.dumps({"ok": is_well, "checks": order.checks, "harnesses": views}, ensure_ascii=False) + "\n"
        )
        return 0 if is_well else 1
    paint = paint_for(environment, is_terminal=sys.stdout.isatty())
    for ok, line in _lines(found, missing, known):
        mark = paint.green("ok  ") if ok else paint.red("look")
        sys.stdout.write(f"{mark} {paint.safe(line, keep_lines=True)}\n")
    return 0 if is_well else 1


def _lines(found: Sequence[Found], missing: Sequence[str], known: Sequence[Tried]) -> list[tuple[bool, str]]:
    lines = [line for one in found for line in found_lines(one, known)]
    lines += [(False, f"{name} is not on your PATH") for name in missing]
    if not found and not missing:
        lines.append((True, f"no harness on your PATH ({', '.join(PROGRAMS)})"))
    return lines


def _looked_at(programs: Mapping[str, str], environment: Mapping[str, str]) -> list[Found]:
    """Ask all harnesses at the same time; an interrupt ends all of them."""
    started: list[Running] = []
    with ThreadPoolExecutor(max_workers=len(PROGRAMS)) as pool:
        try:
            return list(pool.map(lambda one: look_at(one, programs[one], environment, started), programs))
        except KeyboardInterrupt:
            for one in started:
                if one.returncode is None:
                    end(one)
            raise


def look_at(
    harness: str,
    path: str,
    environment: Mapping[str, str],
    started: list[Running] | None = None,
    *,
    limit_s: float = _LIMIT_S,
) -> Found:
    """Ask a harness for its version; without a version it still counts as installed."""
    try:
        version = ask_version(path, environment, limit_s, started)
        return Found(harness=harness, path=path, version=version)
    except OSError as error:
        return Found(harness=harness, path=path, version="", trouble=f"{error.strerror}")
    except NoVersionError as error:
        return Found(harness=harness, path=path, version="", trouble=str(error))


def _tried(found: Found, environment: Mapping[str, str], *, is_loud: bool) -> Found:
    if is_loud and sys.stderr.isatty():
        sys.stderr.write(f"trying {found.harness} {found.version} ...\n")
    today = datetime.now(UTC).date().isoformat()
    tried = try_out(found.harness, found.path, found.version, environment, today)
    return msgspec.structs.replace(found, tried=tried)


def main(words: Sequence[str]) -> int:
    """Run the daemon's order to this process."""
    try:
        return doctor(msgspec.json.decode(words[0], type=Order), os.environ)
    except KeyboardInterrupt:
        return _INTERRUPTED
