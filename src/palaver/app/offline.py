"""Commands that run in the client's own process: help, completion, install, repair, edit.

Starts no daemon.

A separate module from `__main__.py`, because `__run` and `__attach` must not load it.
"""

import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from palaver.app.install import install, uninstall
from palaver.config import DEFAULTS, KEYS, MEANINGS, SETTINGS_FILE
from palaver.doors.cli.call import format_refusal, status_of
from palaver.doors.cli.completion import complete, completion_script
from palaver.doors.cli.help import render_help, render_json
from palaver.doors.cli.run import TABLE
from palaver.doors.cli.spec import Parsed, parse
from palaver.errors import PalaverError, Unavailable, UsageError
from palaver.harness.marks import harness_of
from palaver.home import find_pal, read_settings_file, write_settings_file
from palaver.protocol.display import paint_for, wants_colour
from palaver.protocol.settings_file import format_value, parse_settings

_INSTALLING = {("install",): install, ("uninstall",): uninstall}


def main() -> int:
    """Run a command that needs no bus; any other command is refused."""
    if sys.argv[1:2] in (["__transcript"], ["__excerpts"]):
        from palaver.app import transcript  # not needed for help and completion

        # Ctrl-C in a long output ends it without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if sys.argv[1] == "__transcript":
            return transcript.read_transcript(sys.argv[2:], os.environ)
        return transcript.take_excerpts(sys.argv[2], sys.argv[3:], os.environ)
    if sys.argv[1:2] == ["__doctor"]:
        from palaver.app import doctor  # not needed for help and completion

        return doctor.main(sys.argv[2:])
    if sys.argv[1:2] == ["__check"]:
        return _check(sys.argv[2:])
    try:
        parsed = parse(TABLE, sys.argv[1:])
    except UsageError as error:
        return _refuse(sys.argv[1:], error)
    if parsed.command.path == ("config", "edit") and not parsed.is_help:
        # The client sets the home of the bus, however it was found.
        return edit_settings(Path(os.environ["PALAVER_HOME"]), os.environ, reload=_reload)
    if parsed.command.path == ("doctor",) and parsed.has("--repair") and not parsed.is_help:
        from palaver.daemon.repair import repair_home  # not needed for help and completion

        return repair_home(Path(os.environ["PALAVER_HOME"]), is_json=parsed.form == "json")
    if parsed.command.path == ("doctor",) and not parsed.is_help:
        from palaver.app import doctor  # not needed for help and completion

        return doctor.doctor_without_bus(
            Path(os.environ["PALAVER_HOME"]),
            is_home_named=parsed.home is not None,
            harnesses=parsed.values("--harness"),
            is_self_test=parsed.has("--self-test"),
            is_json=parsed.form == "json",
        )
    if parsed.command.path == ("backup",) and not parsed.is_help:
        from palaver.daemon.repair import backup_home  # as above

        return backup_home(
            Path(os.environ["PALAVER_HOME"]),
            Path(parsed.positionals[0]).absolute(),
            is_json=parsed.form == "json",
            may_replace=parsed.has("--yes"),
        )
    if parsed.command.path == ("import", "messages") and not parsed.is_help:
        from palaver.app.path_broker_import import import_folder  # not needed for help and completion

        try:
            return import_folder(
                os.environ["PALAVER_HOME"],
                Path(parsed.positionals[0]).absolute(),
                is_json=parsed.form == "json",
                is_dry_run=parsed.has("--dry-run"),
            )
        except PalaverError as error:
            return _refuse(sys.argv[1:], error)
    if parsed.command.path in _INSTALLING and not parsed.is_help:
        return _INSTALLING[parsed.command.path](parsed, os.environ)
    answer = _answer(parsed)
    if answer is None:
        sys.stderr.write("pal: the bus is not running; start it with 'pal up'\n")
        return 1
    try:
        sys.stdout.write(answer)
        sys.stdout.flush()
    except OSError as error:
        sys.stderr.write(f"pal: standard output: {error.strerror}\n")
        os._exit(1)  # The exit of the interpreter would flush again, and print a second error.
    return 0


def _check(words: list[str]) -> int:
    """Check the arguments of `up` or `down` for the client, before it does anything."""
    from palaver.doors.cli.bus import wanted_settings  # not needed for help and completion

    try:
        wanted_settings(parse(TABLE, words))
    except PalaverError as error:
        return _refuse(words, error)
    return 0


def _refuse(words: list[str], error: PalaverError) -> int:
    paint = paint_for(os.environ, is_terminal=sys.stderr.isatty(), harness=harness_of(os.environ))
    sys.stderr.write(format_refusal(words, error, paint))
    return status_of(error)


def _answer(parsed: Parsed) -> str | None:
    if parsed.is_help:
        command = parsed.command if parsed.command.path else None
        if parsed.form == "json":
            return render_json(TABLE, command)
        colour = sys.stdout.isatty() and wants_colour(os.environ)
        return render_help(TABLE, command, shutil.get_terminal_size().columns, colour)
    if parsed.command.path == ("completion",):
        return completion_script(parsed.positionals[0])
    if parsed.command.path == ("__complete",):
        words = parsed.positionals if parsed.after is None else parsed.after
        return "".join(f"{word}\n" for word in complete(TABLE, words, lambda kind: []))
    return None


# --------------------
# `pal config edit`: runs the user's editor on a copy of the settings.
#
# The copy replaces the file only if the bus would start with it, and the file has not changed meanwhile.

_HEAD: Final = """\
# The settings of Palaver, each with its default. To change one, remove its #.
# 'pal config edit' and 'pal config set' let the bus use a change at once, where that is possible.
"""

Ask = Callable[[str], bool]


def edit_settings(
    home: Path,
    environment: Mapping[str, str],
    ask: Ask | None = None,
    reload: Callable[[], bool] = lambda: False,
) -> int:
    """Open the settings, wait for the editor, and store its result. Return the exit status.

    Errors are printed, and `ask` asks whether to edit again; by default it asks at the terminal. The file
    stays as it was until the result is valid. `reload` lets the bus use it, and returns whether it does.
    """
    editor = environment.get("VISUAL") or environment.get("EDITOR") or "vi"
    try:
        copy = _SettingsCopy(home)
    except (OSError, PalaverError) as error:
        return _complain(str(error))
    try:
        is_changed = copy.edit(editor, ask or _ask)
    except (OSError, ValueError, PalaverError) as error:
        return _complain(f"{error}\n{copy.left()}")
    except KeyboardInterrupt:
        # An editor with its own window ends by Ctrl-C too, and its text may be saved in the copy.
        _complain(copy.left())
        raise
    if not is_changed:
        sys.stdout.write("nothing was changed\n")
    elif not reload():
        sys.stdout.write("takes effect when the bus starts again: pal down, pal up\n")
    return 0


def _reload() -> bool:
    """Let the bus use the new file, which prints the changes that act now; False if that fails."""
    return subprocess.run([find_pal(), "config", "reload"], check=False).returncode == 0


class _SettingsCopy:
    """The settings of a home while they are edited, in a copy next to their file."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._file = home / SETTINGS_FILE
        # In the home, which only the user can read; with the same ending, so that the editor recognises the
        # format.
        self._copy = home / f"config.{secrets.token_hex(4)}.toml"
        self._before = read_settings_file(home)
        self._opened = self._before or _every_setting()
        # Private from its creation, not after a chmod: a command in the settings may contain a token.
        with open(self._copy, "xb", opener=_private) as file:
            file.write(self._opened)

    def edit(self, editor: str, ask: Ask) -> bool:
        """Run the editor until the result is valid; return whether it has changed."""
        self._run(editor)
        while (refusal := self._refusal()) is not None:
            _complain(f"{refusal}\nthe bus cannot start with these settings")
            if not ask("Edit it again? [Y/n] "):
                raise Unavailable("nothing was saved")
            self._run(editor)
        content = self._copy.read_bytes()
        if content != self._opened:
            # An editor may be open for hours, and `pal config set` changes the file meanwhile.
            if read_settings_file(self._home) != self._before:
                raise Unavailable("another process changed the settings meanwhile; nothing was saved")
            write_settings_file(self._home, content)
        self._copy.unlink()
        return content != self._opened

    def left(self) -> str:
        """Return a sentence about the state of the file and the copy. The user's text is kept."""
        try:
            # A text that the user typed is never deleted, even if it is invalid.
            if self._copy.read_bytes() != self._opened:
                return f"{self._file} is unchanged; your text is in {self._copy}"
            self._copy.unlink()
        except FileNotFoundError:
            pass  # the editor has removed it
        return f"{self._file} is unchanged"

    def _run(self, editor: str) -> None:
        try:
            status = subprocess.run([*shlex.split(editor), str(self._copy)], check=False).returncode
        except (OSError, ValueError) as error:
            raise Unavailable(f"{editor}: {error}") from error
        if status:
            raise Unavailable(f"{editor} ended with status {status}")

    def _refusal(self) -> PalaverError | None:
        try:
            parse_settings(self._copy.read_bytes(), str(self._file))
        except PalaverError as refusal:
            return refusal
        return None


def _every_setting() -> bytes:
    """Return a file that changes nothing and lists all settings."""
    lines = (f"\n# {MEANINGS[key]}\n# {key} = {format_value(DEFAULTS[key])}\n" for key in KEYS)
    return (_HEAD + "".join(lines)).encode()


def _ask(question: str) -> bool:
    """Ask the user at the terminal; without a terminal or a reply the result is no."""
    if not sys.stdin.isatty():
        return False
    try:
        return input(question).strip().lower() in ("", "y", "yes")
    except (EOFError, KeyboardInterrupt):
        return False


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _complain(sentence: str) -> int:
    for line in sentence.splitlines():
        sys.stderr.write(f"pal: {line}\n")
    return 1
