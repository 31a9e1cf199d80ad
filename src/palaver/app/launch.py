"""Prepare a harness in the client's own process: its files in the home, its arguments, its PATH.

Writes nothing outside the home of the bus. The daemon has decided by a ticket which agent it becomes.

A separate module from `run.py`, because it changes with the harnesses, and starting a holder does not.
"""

import hashlib
import json
import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from palaver.client.start import find_python
from palaver.errors import Unavailable
from palaver.home import find_pal
from palaver.protocol.lines import LIMIT_AMONG

# Each harness imports its own modules in its function below: a start waits for everything loaded here.

_FOLDER: Final = "harness"
_VERSION_LIMIT_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A harness that is ready to be started."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    session: str = ""
    """The session that it will resume, if known."""
    among: tuple[str, ...] = ()
    """The sessions from which the user will choose one, if `session` is not known."""
    native: str = ""
    """The address of its API, if it has one."""
    last_signal: int = int(signal.SIGTERM)
    """The signal that it gets when its holder is killed."""
    is_headless: bool = False
    is_agent: bool = True
    """False: the command is not a conversation, and is run unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchChoices:
    """The choices of the caller and of a person for this start.

    The functions may ask a person, so they are called only for a conversation.
    """

    is_fork: bool = False
    """Continue a copy of the session, not the session itself."""
    may_use_bus: Callable[[], bool] = lambda: False
    """Returns whether the harness runs the safe commands and tools of the bus without a prompt."""
    has_hooks: Callable[[str], bool] = lambda pal: False
    """Returns whether a person has agreed to the hooks that run this client; only Codex needs it."""


NO_CHOICES: Final = LaunchChoices()


def prepare_claude(
    args: Sequence[str],
    session: str,
    home: str,
    environment: Mapping[str, str],
    cwd: str,
    choices: LaunchChoices = NO_CHOICES,
) -> Launch:
    """Prepare Claude Code: its plugin, and the session that its arguments select. Raises OSError."""
    from palaver.harness.claude.launch import (
        claude_args,
        newest_session,
        newest_sessions,
        plugin_files,
        read_claude_args,
        sessions_folder,
    )

    asked = read_claude_args(args)
    if not asked.is_conversation:
        return Launch(argv=("claude", *args), environment=dict(environment), is_agent=False)
    pal = find_pal()
    plugin = write_files(Path(home) / _FOLDER, "claude", plugin_files(pal))
    held = _names(sessions_folder(environment, cwd)) if asked.is_last or asked.is_chosen else []
    wanted = claude_args(
        args, str(plugin), session=session, may_use_bus=choices.may_use_bus(), is_fork=choices.is_fork
    )
    known = newest_session(held) if asked.is_last else asked.session or session
    return Launch(
        argv=("claude", *wanted),
        environment=with_pal(environment, home, pal),
        # A copy gets a new id, which only the harness will know.
        session="" if choices.is_fork else known,
        # If all of them belong to one agent, the daemon gives its name to this one, whichever the user
        # chooses.
        among=newest_sessions(held, LIMIT_AMONG) if asked.is_chosen and not session else (),
        is_headless=asked.is_headless,
    )


def prepare_codex(
    args: Sequence[str],
    session: str,
    home: str,
    environment: Mapping[str, str],
    cwd: str,
    choices: LaunchChoices = NO_CHOICES,
) -> Launch:
    """Prepare Codex: a separate process starts it with an app-server. Raises OSError."""
    from palaver.harness.codex import launch as codex_launch
    from palaver.holder.codex_start import HOOKS, USES_BUS, codex_address, last_codex_session
    from palaver.holder.codex_start import MODULE as CODEX_START

    asked = codex_launch.read_arguments(args)
    if asked.kind is codex_launch.Kind.OTHER:
        return Launch(argv=("codex", *args), environment=dict(environment), is_agent=False)
    pal = find_pal()
    is_screen = asked.kind is codex_launch.Kind.SCREEN
    native = codex_address(home) if is_screen and not asked.is_alone else ""
    # The user's own server has its own settings: nothing is added to it.
    hooks = (HOOKS,) if not asked.is_remote and choices.has_hooks(pal) else ()
    uses_bus = (USES_BUS,) if not asked.is_remote and choices.may_use_bus() else ()
    # `-I`, because Python would otherwise look for modules in the agent's folder first.
    starter = (find_python(), "-I", "-m", CODEX_START, native, *hooks, *uses_bus)
    words = codex_launch.resumed(args, session, is_fork=choices.is_fork)
    known = last_codex_session(environment, cwd) if asked.is_last else asked.session or session
    return Launch(
        argv=(*starter, "--", "codex", *words),
        environment=with_pal(environment, home, pal),
        session="" if choices.is_fork else known,
        native=native,
        is_headless=not is_screen,
    )


def prepare_opencode(
    args: Sequence[str],
    session: str,
    home: str,
    environment: Mapping[str, str],
    cwd: str,
    choices: LaunchChoices = NO_CHOICES,
) -> Launch:
    """Prepare OpenCode: its terminal's server gets a port and a password.

    Raises OSError, and Unavailable for a version that cannot be run.
    """
    from palaver.harness.opencode import launch as opencode_launch
    from palaver.holder.opencode import (
        OpenCodeEndpoint,
        free_port,
        instructions_path,
        last_opencode_session,
        may_allow,
        new_endpoint_path,
        write_endpoint,
        write_shell,
    )

    args = opencode_launch.resumed(args, session, is_fork=choices.is_fork)
    asked = opencode_launch.read_arguments(args, time.time_ns() // 1_000_000)
    if not asked.is_agent:
        return Launch(argv=("opencode", *args), environment=dict(environment), is_agent=False)
    # Screens of older versions do not sign in to their own server, which gets a password here.
    if asked.has_terminal and (trouble := opencode_launch.too_old(_opencode_version(home, environment))):
        raise Unavailable(trouble)
    pal = find_pal()
    path = new_endpoint_path(home) if asked.has_terminal else None
    added = opencode_launch.launch_environment(
        environment,
        password=secrets.token_hex(16) if path is not None else "",
        mcp=(pal, "mcp"),
        instructions=str(instructions_path(path)) if path is not None else "",
        shell=write_shell(path.parent, environment, cwd) if path is not None else "",
        may_use_bus=choices.may_use_bus() and may_allow(environment, cwd),
    )
    kept = with_pal({**environment, **added}, home, pal)
    known = last_opencode_session(environment, cwd) if asked.is_continued else asked.session
    known = "" if asked.is_fork else known
    if path is None:
        return Launch(argv=("opencode", *args), environment=kept, session=known, is_headless=True)
    port = asked.port or free_port()
    user = environment.get(opencode_launch.USERNAME) or opencode_launch.USER
    password = kept[opencode_launch.PASSWORD]
    write_endpoint(path, OpenCodeEndpoint(port=port, user=user, password=password, began=asked))
    arguments = opencode_launch.launch_arguments(args, asked, port)
    return Launch(
        argv=("opencode", *arguments),
        environment=kept,
        session=known,
        native=str(path),
        last_signal=int(signal.SIGKILL),  # after a SIGTERM it may run on indefinitely in a closed terminal
    )


def _opencode_version(home: str, environment: Mapping[str, str]) -> str:
    """Return the version of the installed OpenCode; empty if unknown.

    Asking takes about a second, so the version is cached until the program changes.
    """
    program = shutil.which("opencode", path=environment.get("PATH", os.defpath))
    if program is None:
        return ""
    file = Path(program).resolve()
    state = file.stat()
    key = f"{file}\n{state.st_mtime_ns}\n{state.st_size}\n"
    kept = Path(home) / _FOLDER / "opencode-version"
    # A missing or damaged cache is written again below.
    with suppress(OSError, UnicodeDecodeError):
        before, _, version = kept.read_text(encoding="utf-8").rpartition("\n")
        if f"{before}\n" == key:
            return version
    from palaver.app.doctor import NoVersionError, ask_version  # slow, and rarely needed

    with suppress(OSError, NoVersionError):
        version = ask_version(program, environment, _VERSION_LIMIT_S)
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        kept.write_text(key + version, encoding="utf-8")
        return version
    return ""


def prepare_gemini(
    args: Sequence[str],
    session: str,
    home: str,
    environment: Mapping[str, str],
    cwd: str,
    choices: LaunchChoices = NO_CHOICES,
) -> Launch:
    """Prepare Gemini CLI: its hooks and tools, as an extension in a home of links. Raises OSError."""
    from palaver.harness.gemini import launch as gemini_launch

    asked = gemini_launch.read_gemini_args(args)
    if not asked.is_conversation:
        return Launch(argv=("gemini", *args), environment=dict(environment), is_agent=False)
    pal = find_pal()
    extension = write_files(Path(home) / _FOLDER, "gemini", gemini_launch.extension_files(pal))
    kept = with_pal(environment, home, pal)
    its_home = gemini_home(home, environment, extension)
    words = gemini_launch.gemini_args(args, session=session)
    if choices.may_use_bus():
        words = _with_gemini_policy(words, home, its_home, cwd)
    return Launch(
        argv=("gemini", *words),
        environment={
            "COLORTERM": "truecolor",  # with fewer colours its composer looks like plain text
            **kept,
            gemini_launch.HOME: str(its_home),
        },
        session=last_gemini_session(environment, cwd) if asked.is_last else asked.session or session,
        is_headless=asked.is_headless,
    )


_Prepare = Callable[[Sequence[str], str, str, Mapping[str, str], str, LaunchChoices], Launch]

LAUNCHERS: Final[Mapping[str, _Prepare]] = {
    "claude": prepare_claude,
    "codex": prepare_codex,
    "opencode": prepare_opencode,
    "gemini": prepare_gemini,
}
"""The function that prepares each harness.

Its arguments: those of the harness, the session, the home of the bus, the environment, the folder, choices.
"""

INSTALLS: Final[Mapping[str, str]] = {
    "claude": "npm install -g @anthropic-ai/claude-code",
    "codex": "npm install -g @openai/codex",
    "opencode": "npm install -g opencode-ai",
    "gemini": "npm install -g @google/gemini-cli",
}
"""The command that installs each harness."""


def write_files(folder: Path, name: str, files: Mapping[str, str]) -> Path:
    """Return a folder with these files, a new one if they changed: running sessions keep their own."""
    content = repr(sorted(files.items())).encode("utf-8", "surrogateescape")
    made = folder / f"{name}-{hashlib.sha256(content).hexdigest()[:12]}"
    if made.is_dir():
        return made
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Made aside and renamed, because another start may look for the folder at any time: it exists only
    # complete.
    temporary = Path(tempfile.mkdtemp(prefix=".making-", dir=folder))
    try:
        for path, text in files.items():
            target = temporary / path
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", errors="surrogateescape")
        try:
            temporary.rename(made)
        except OSError:
            if not made.is_dir():  # else another process was faster, and wrote the same
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return made


def with_pal(environment: Mapping[str, str], home: str, pal: str) -> dict[str, str]:
    """Return an environment in which `pal` is found: unchanged, or with a folder at the end of PATH."""
    path = environment.get("PATH", os.defpath)
    if shutil.which("pal", path=path):
        return dict(environment)
    folder = Path(home) / "bin"
    folder.mkdir(mode=0o700, exist_ok=True)
    link = folder / "pal"
    if not link.is_symlink() or str(link.readlink()) != pal:
        # Replaced in one step: running agents look for `pal` through this link.
        temporary = folder / f".pal-{os.getpid()}"
        temporary.symlink_to(pal)
        temporary.replace(link)
    return {**environment, "PATH": f"{path}{os.pathsep}{folder}"}


def _names(folder: str) -> list[tuple[str, float]]:
    """Return the files of a folder with their times; empty if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return [(entry.name, entry.stat().st_mtime) for entry in entries if entry.is_file()]
    except OSError:
        return []


# --------------------
# The home directory for Gemini CLI, made of links into the user's own; and its last session in a directory.
#
# In the user's own directory, no file is written, moved or removed here. Only the two directories that Gemini
# CLI itself makes at its first start are created if they are missing.

_PREFIX: Final = "gemini-home-"
_GEMINI_SYSTEM: Final = Path("/etc/gemini-cli/settings.json")
_LIMIT_LOOKED_AT: Final = 20
"""Newest session files to read: one without an id is skipped, and the user waits for this search."""
_LIMIT_LINE_BYTES: Final = 1024 * 1024


def gemini_home(home: str, environment: Mapping[str, str], extension: Path) -> Path:
    """Make a home that mirrors the user's own, with one more extension. Raises OSError.

    There is one for each home of the user. Repeating this updates the links; running sessions are not
    disturbed.
    """
    from palaver.harness.gemini.launch import EXTENSION, EXTENSIONS, FOLDER, SHARED, WORKING

    theirs = _theirs(environment)
    number = hashlib.sha256(os.fsencode(theirs)).hexdigest()[:12]
    made = Path(home) / "harness" / f"{_PREFIX}{number}"
    ours = made / FOLDER
    # They must exist before they can be linked. Otherwise Gemini CLI would make them in this home, and lose
    # the user's sessions from view.
    for name in WORKING:
        (theirs / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    (ours / EXTENSIONS).mkdir(mode=0o700, parents=True, exist_ok=True)
    _mirror(theirs, ours, {EXTENSIONS}, also=SHARED)
    _mirror(theirs / EXTENSIONS, ours / EXTENSIONS, {EXTENSION})
    _link(ours / EXTENSIONS / EXTENSION, extension)
    return made


def _with_gemini_policy(args: Sequence[str], home: str, its_home: Path, cwd: str) -> list[str]:
    """Add our policy to the arguments, unless that would remove policies that the user's settings name."""
    from palaver.harness.gemini.launch import FOLDER, POLICIES, POLICY_FILE, policy_text, with_policy

    ours = write_files(Path(home) / _FOLDER, "gemini-policy", {POLICY_FILE: policy_text()}) / POLICY_FILE
    settings = (its_home / FOLDER / "settings.json", Path(cwd) / FOLDER / "settings.json", _GEMINI_SYSTEM)
    theirs = its_home / FOLDER / POLICIES
    # Gemini CLI splits the value of the option at commas.
    if "," in f"{ours}{theirs}" or any(map(_names_policies, settings)):
        return list(args)
    return with_policy(args, str(ours), str(theirs) if theirs.is_dir() else "")


def _names_policies(settings: Path) -> bool:
    try:
        # Not parsed, because settings may have comments. A wrong match only leaves our policy out.
        return b"policyPaths" in settings.read_bytes()
    except OSError:
        return False


def last_gemini_session(environment: Mapping[str, str], cwd: str) -> str:
    """Return the session that Gemini CLI would resume in a directory; empty if there is no session."""
    where = os.path.realpath(cwd)
    found: list[tuple[float, Path]] = []
    for folder in (_theirs(environment) / "tmp").glob("*"):
        try:
            if (folder / ".project_root").read_text("utf-8").strip() == where:
                found += [(path.stat().st_mtime, path) for path in folder.glob("chats/session-*.jsonl")]
        except (OSError, UnicodeDecodeError):
            continue
    for _, path in sorted(found, reverse=True)[:_LIMIT_LOOKED_AT]:
        if session := _session_in(path):
            return session
    return ""


def _session_in(path: Path) -> str:
    """Read the session id from a session file; empty if it is unreadable."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.readline(_LIMIT_LINE_BYTES))["sessionId"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return ""
    return found if isinstance(found, str) else ""


def _theirs(environment: Mapping[str, str]) -> Path:
    from palaver.harness.gemini.launch import FOLDER, HOME

    return Path(environment.get(HOME) or environment.get("HOME") or Path.home()) / FOLDER


def _mirror(theirs: Path, ours: Path, kept: set[str], also: tuple[str, ...] = ()) -> None:
    """Link everything in a directory, and the names in `also` even if missing; remove outdated links."""
    names = {entry.name for entry in os.scandir(theirs)} if theirs.is_dir() else set()
    # A list, because entries are removed during the loop.
    for entry in list(os.scandir(ours)):
        if entry.is_symlink() and entry.name not in names | kept | set(also):
            Path(entry.path).unlink()
    # Also links to missing files: a file that Gemini CLI creates through one is created in the user's
    # directory.
    for name in (names | set(also)) - kept:
        _link(ours / name, theirs / name)


def _link(link: Path, target: Path) -> None:
    """Point a link at a target. A real file there was made by a session and is kept."""
    if link.is_symlink():
        if link.readlink() == target:
            return
    elif link.exists():
        return
    temporary = link.with_name(f".{link.name}-{os.getpid()}")
    temporary.symlink_to(target)
    temporary.replace(link)
