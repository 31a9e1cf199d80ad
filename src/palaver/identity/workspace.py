"""Find the workspace of a path: its canonical directory, and the directories above it.

Read-only: it queries the file system and reads the small files that git writes in linked worktrees. It runs
no program and opens nothing that could block; a file system that hangs blocks only one thread.
"""

import asyncio
import os
import pwd
import stat
import threading
from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Final

from palaver.errors import NotAPlace, TooSlow

MARKERS: Final = (
    ".hg",
    ".jj",
    ".svn",
    "pyproject.toml",
    "setup.py",
    "package.json",
    "deno.json",
    "Cargo.toml",
    "go.mod",
    "Makefile",
    "CMakeLists.txt",
    "pom.xml",
    "build.gradle",
    "build.gradle.kts",
    "Gemfile",
    "composer.json",
    "mix.exs",
    "Package.swift",
    "MODULE.bazel",
    "WORKSPACE",
    "CLAUDE.md",
    "AGENTS.md",
    "GEMINI.md",
)
"""Files that mark the top of a project without git, also those with instructions for agents."""

_OF_FOLDERS: Final = frozenset({".hg", ".jj", ".svn"})
"""The markers that are folders. A folder with the name of another marker is not a marker."""

_GIT: Final = ".git"
_LIMIT_FILE_BYTES: Final = 4096
_LIMIT_PATH_BYTES: Final = 4096
_THREADS: Final = 4
_LIMIT_S: Final = 5.0
"""Seconds after which a caller no longer waits for the file system."""
# Do not follow a link at the last step, and do not block: a pipe or a device opens at once, and is then
# refused.
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where a room can be: the canonical directory, and those above it, nearest first."""

    path: str
    above: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    """From the given directory up to the canonical one, which is not included: deepest first.

    There is a room only if a member nested one on purpose.
    """

    @property
    def chain(self) -> tuple[str, ...]:
        """The directory itself, then those above it."""
        return (self.path, *self.above)

    @property
    def around(self) -> tuple[str, ...]:
        """Every directory whose room this workspace can be in, deepest first."""
        return (*self.inside, *self.chain)


def home_folders() -> tuple[str, ...]:
    """Return the user's home directories, which contain projects and are never a workspace."""
    found = [os.environ.get("HOME", "")]
    with suppress(KeyError):  # a user without an entry in the user table
        found.append(pwd.getpwuid(os.getuid()).pw_dir)
    return tuple(dict.fromkeys(os.path.realpath(one) for one in found if one.startswith("/")))


def find_workspace(path: str, homes: Sequence[str], *, is_exact: bool = False, home: str = "") -> Workspace:
    """Find the workspace of a path; the same for a directory under all its names.

    A file means its directory. The top of a git checkout comes first, and a linked worktree belongs to the
    main checkout; then the nearest directory with a project marker; then the directory itself. With
    `is_exact` it is exactly that directory, and all of these are above it. Raises `NotAPlace` for a path that
    does not exist, and if the result would be a home directory or one above it. Of the caller's own `home`
    only exactly that directory is refused, because it may be set to a directory inside the work.
    """
    folder = _folder(path)
    # A room at one of these would contain every project of the user.
    taboo = {Path("/"), *(one for known in homes for one in (Path(known), *Path(known).parents))}
    if home.startswith("/"):
        taboo.add(_real(Path(home)))
    if folder in taboo:
        raise NotAPlace(path, "a home folder and its parents cannot be a workspace; name a folder inside it")
    inside = list(_upwards(folder, taboo))
    checkout = next(filter(_git_directory, inside), None)
    top = checkout or next(filter(_is_marked, inside), folder)
    main = _main_checkout(checkout) if checkout is not None else None
    above = list(_upwards(top, taboo))
    if main is not None and main not in taboo:
        # A worktree may be elsewhere than its main checkout: rooms above either of them are above it.
        outside = [one for one in above[1:] if main not in one.parents]
        top, above = main, list(dict.fromkeys([*_upwards(main, taboo), *outside]))
    around = list(dict.fromkeys([*_inside(folder, checkout or top, main), top, *above]))
    if is_exact:
        top = folder
    _check_name(top)
    level = around.index(top)
    return Workspace(
        str(top),
        tuple(map(str, around[level + 1 :])),
        tuple(str(one) for one in around[:level] if not is_exact and _has_good_name(one)),
    )


def _inside(folder: Path, end: Path, main: Path | None) -> Iterator[Path]:
    """Yield from a directory up to the top of its work; a linked worktree is part of its main checkout."""
    yield from takewhile(lambda one: one != end, (folder, *folder.parents))
    if main is not None:
        yield end


class Workspaces:
    """Finds workspaces in separate threads, so that a file system that hangs blocks no other request."""

    def __init__(
        self, homes: Sequence[str] | None = None, *, limit_s: float = _LIMIT_S, threads: int = _THREADS
    ) -> None:
        """At most `threads` searches run at once. A thread that hangs is abandoned, and its slot is lost."""
        self._homes = home_folders() if homes is None else tuple(homes)
        self._limit_s = limit_s
        self._turns = asyncio.Semaphore(threads)

    async def find(self, path: str, *, is_exact: bool = False, home: str = "") -> Workspace:
        """Find the workspace of a path, as `find_workspace` does; `home` is the caller's, if known.

        Raises `NotAPlace`, and `TooSlow` if the file system does not respond.
        """
        try:
            async with asyncio.timeout(self._limit_s):
                # `tell` releases it when the thread ends, which may be after the timeout.
                await self._turns.acquire()
                # Shielded: after a timeout `tell` still sets the result, which fails on a cancelled future.
                return await asyncio.shield(self._look(path, is_exact=is_exact, home=home))
        except TimeoutError:
            raise TooSlow(f"the file system does not respond for {path}; try again later") from None

    def _look(self, path: str, *, is_exact: bool, home: str) -> "asyncio.Future[Workspace]":
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Workspace] = loop.create_future()

        def tell(found: Workspace | Exception) -> None:
            self._turns.release()
            if isinstance(found, Workspace):
                answer.set_result(found)
            else:
                answer.set_exception(found)
                answer.exception()  # Mark it as retrieved: the caller may have stopped waiting.

        def look() -> None:
            found: Workspace | Exception
            try:
                found = find_workspace(path, self._homes, is_exact=is_exact, home=home)
            except Exception as error:
                found = error
            with suppress(RuntimeError):  # the loop has closed meanwhile
                loop.call_soon_threadsafe(tell, found)

        # A daemon thread: one that hangs must not keep the program from ending.
        threading.Thread(target=look, name="workspaces", daemon=True).start()
        return answer


def _folder(path: str) -> Path:
    """Return the real directory of a path, or of the file it names."""
    if not path.startswith("/") or "\0" in path:
        raise NotAPlace(path, "write the absolute path of a folder")
    # The real path, so that a directory has the same room under all its names and links.
    try:
        real = Path(os.path.realpath(path, strict=True))
        is_folder = stat.S_ISDIR(real.stat().st_mode)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise NotAPlace(path, f"it cannot be read: {reason or error}") from None
    return real if is_folder else real.parent


def _check_name(path: Path) -> None:
    """Refuse a directory whose name cannot be shown on one line."""
    if not _has_good_name(path):
        shown = str(path).encode("unicode_escape").decode()
        raise NotAPlace(shown, "its name is too long, or contains characters that cannot be displayed")


def _has_good_name(path: Path) -> bool:
    # A printable text has no control characters, no direction marks and no bytes that are not UTF-8.
    shown = str(path)
    return shown.isprintable() and len(shown.encode()) <= _LIMIT_PATH_BYTES


def _upwards(folder: Path, taboo: Set[Path]) -> Iterator[Path]:
    """Yield from a directory upwards, as far as rooms may be."""
    return takewhile(lambda one: one not in taboo, (folder, *folder.parents))


def _git_directory(folder: Path) -> Path | None:
    """Return the git directory of a checkout that begins here; None if there is no checkout."""
    real = _real(folder / _GIT)
    if not real.is_dir():
        line = _read_line(real)
        if not line.startswith("gitdir:"):
            return None
        real = _real(folder / line.removeprefix("gitdir:").strip())
    # An empty directory of that name is not a git directory.
    return real if os.path.lexists(real / "HEAD") else None


def _main_checkout(checkout: Path) -> Path | None:
    """Return the checkout that a linked worktree belongs to; None if it is not a linked worktree.

    A bare repository has no checkout: its worktrees share the directory that points to it, or the repository
    itself.
    """
    git = _git_directory(checkout)
    line = "" if git is None else _read_line(git / "commondir")
    if git is None or not line:
        return None
    common = _real(git / line)
    if _git_directory(common.parent) == common:
        return common.parent
    return common if common.is_dir() else None


def _is_marked(folder: Path) -> bool:
    return any(
        os.path.lexists(folder / marker) and (marker in _OF_FOLDERS or not (folder / marker).is_dir())
        for marker in MARKERS
    )


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _read_line(path: Path) -> str:
    """Read the first line of a small regular file; empty for anything else."""
    try:
        with os.fdopen(os.open(path, _FLAGS), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_size > _LIMIT_FILE_BYTES:
                return ""
            content = file.read(_LIMIT_FILE_BYTES)
    except OSError:
        return ""
    line = os.fsdecode(content).split("\n", 1)[0].rstrip("\r")
    # A path with a null byte makes every call of the system raise ValueError.
    return "" if "\0" in line else line
