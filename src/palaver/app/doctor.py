"""`pal doctor`: which harnesses are installed, what is known of them, and, on request, a self-test."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Final

import msgspec

from palaver.app.self_test import PROGRAMS, Found, Tried, found_lines, found_view, try_out
from palaver.harness.marks import harness_of
from palaver.protocol.display import paint_for

# --------------------
# Ask a program for its version, in a temporary home directory, without leaving anything.
#
# Harnesses create folders, caches and logs in their home, even when they only print their version; and some
# start processes for it. Neither remains: the home is deleted, and the processes are ended. Only a program
# that fails there, such as the shim of a version manager, is asked once more in the user's home.

_VERSION: Final = re.compile(r"\d+\.\d+\.\d+[\w.+-]*")
_LIMIT_BYTES: Final = 64 * 1024
_QUIET: Final = {"DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
_FOLDERS: Final = {
    "HOME": "home",
    "TMPDIR": "tmp",
    "XDG_CONFIG_HOME": "home/.config",
    "XDG_DATA_HOME": "home/.local/share",
    "XDG_STATE_HOME": "home/.local/state",
    "XDG_CACHE_HOME": "home/.cache",
    "CLAUDE_CONFIG_DIR": "home/.claude",
    "CODEX_HOME": "home/.codex",
    "GEMINI_CLI_HOME": "home",
}


Running = subprocess.Popen[bytes]


class NoVersionError(Exception):
    """A program did not print its version; the text says why."""


class _StatusError(NoVersionError):
    """It ran, and failed."""


def ask_version(
    program: str, environment: Mapping[str, str], limit_s: float, started: list[Running] | None = None
) -> str:
    """Return the version that a program prints; empty if it prints none. Raises NoVersionError and OSError.

    The running process is added to `started`: a person's Ctrl-C does not reach it, so the caller has to `end`
    it.
    """
    try:
        return _ask(program, environment, limit_s, started, _FOLDERS)
    except _StatusError:
        return _ask(program, environment, limit_s, started, {})


def _ask(
    program: str,
    environment: Mapping[str, str],
    limit_s: float,
    started: list[Running] | None,
    folders: Mapping[str, str],
) -> str:
    with tempfile.TemporaryDirectory(prefix="pal-doctor-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        own = {variable: folder / below for variable, below in folders.items()}
        for one in own.values():
            one.mkdir(parents=True, exist_ok=True)
        output = folder / "said"
        # Output goes to a file: a process that it leaves running would keep a pipe open.
        with output.open("wb") as out:
            running = subprocess.Popen(
                [str(Path(program).absolute()), "--version"],
                env={**environment, **_QUIET, **{variable: str(path) for variable, path in own.items()}},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        if started is not None:
            started.append(running)
        try:
            status = running.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise NoVersionError(f"no reply within {limit_s:g} seconds") from None
        finally:
            end(running)
            running.wait()
        if status:
            failure = _StatusError if status > 0 else NoVersionError  # a killed program is not asked again
            raise failure(f"'--version' ended with status {status}")
        with output.open(encoding="utf-8", errors="replace") as file:
            found = _VERSION.search(file.read(_LIMIT_BYTES))
        return found[0] if found else ""


def end(running: Running) -> None:
    """End a program with all processes that it has started."""
    with suppress(OSError):  # nothing is left of it
        os.killpg(running.pid, signal.SIGKILL)


# --------------------
# Look at each harness, print the findings, and run the self-test if it was requested.

_LIMIT_S: Final = 30.0
_INTERRUPTED: Final = 130
PROVEN_FILE: Final = "proven.json"


class DoctorOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon's own checks, and the options of the command."""

    checks: list[dict[str, object]]
    is_json: bool = False
    harnesses: tuple[str, ...] = ()
    is_self_test: bool = False


def proven() -> tuple[Tried, ...]:
    """Return the self-tests that were recorded for this version."""
    content = (files("palaver.app") / PROVEN_FILE).read_bytes()
    return msgspec.json.decode(content, type=tuple[Tried, ...])


def doctor(order: DoctorOrder, environment: Mapping[str, str]) -> int:
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
        views = [{"kind": "check", **check} for check in order.checks]
        for one in found:
            is_ok = one.tried is None or one.tried.is_well
            views.append({"kind": "harness", "ok": is_ok, **found_view(one, known)})
        for name in missing:
            view = {"kind": "harness", "ok": False, "harness": name, "path": None, "version": None}
            views.append(view | {"advice": "install it, or add its folder to PATH"})
        sys.stdout.writelines(f"{json.dumps(view, ensure_ascii=False)}\n" for view in views)
        return 0 if is_well else 1
    paint = paint_for(environment, is_terminal=sys.stdout.isatty(), harness=harness_of(environment))
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
        sys.stderr.write(f"testing {found.harness} {found.version} ...\n")
    today = datetime.now(UTC).date().isoformat()
    tried = try_out(found.harness, found.path, found.version, environment, today)
    return msgspec.structs.replace(found, tried=tried)


def doctor_without_bus(
    home: Path, *, is_home_named: bool, harnesses: Sequence[str], is_self_test: bool, is_json: bool
) -> int:
    """Check the harnesses while the bus is stopped, and say so.

    `is_home_named`: the user gave the home with --home. The status is 1, because the log was not checked.
    """
    what = f"the bus is not running (home {home}); its log was not checked"
    up = f"pal up --home {shlex.quote(str(home))}" if is_home_named else "pal up"
    advice = f"'{up}' starts it" if home.exists() else f"the home does not exist; '{up}' creates it"
    order = DoctorOrder(
        checks=[{"ok": False, "check": what, "advice": advice}],
        is_json=is_json,
        harnesses=tuple(harnesses),
        is_self_test=is_self_test,
    )
    if not is_json:
        paint = paint_for(os.environ, is_terminal=sys.stdout.isatty(), harness=harness_of(os.environ))
        sys.stdout.write(f"{paint.red('look')} {paint.safe(what)}\n     {advice}\n")
    try:
        return doctor(order, os.environ)
    except KeyboardInterrupt:
        return _INTERRUPTED


def main(words: Sequence[str]) -> int:
    """Run the daemon's order to this process."""
    try:
        return doctor(msgspec.json.decode(words[0], type=DoctorOrder), os.environ)
    except KeyboardInterrupt:
        return _INTERRUPTED
