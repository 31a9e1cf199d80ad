"""Build a release and check it: an sdist, and wheels with the static client for x86-64 and arm64.

`make dist` runs it, with the Python of an environment that has the packages of `tools/dist.lock`. The files
are made from the last commit, twice, in folders of different names, and both results must be equal. Then each
file that can run on this machine is installed with pip, pipx and uv into an empty environment, and the quick
start is run there. The wheel of the other machine is installed with pip in an emulator if there is one.
Nothing is published. See docs/releasing.md.
"""

import argparse
import hashlib
import json
import os
import platform
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MACHINES = {"x86_64": 62, "aarch64": 183}
"""The machines that get a wheel, with their numbers in the header of an ELF file."""
DEBIAN_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
MUSL = ROOT / "build" / "zig-musl"
"""The cache of the compiler with musl in it, which is kept between two runs."""
KEPT = ("LANG", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "http_proxy", "https_proxy", "no_proxy")
"""Variables that the installers may need; those of pip and uv are kept too. All others are left out."""
COMMAND_LIMIT_S = 300
"""Seconds for one command of the quick start. In an emulator, the daemon may need a minute to start."""
ELF_STATIC = 2
PT_INTERP = 3


class FailedCheckError(Exception):
    """A release that must not be published, with the reason."""


def main() -> int:
    """Build into `dist/`, check the result, and print what was checked and what was not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-install", action="store_true", help="build and compare, but install nothing")
    parser.add_argument("--installer", choices=sorted(INSTALLERS), help="check only with this installer")
    asked = parser.parse_args()
    target = ROOT / "dist"
    try:
        with tempfile.TemporaryDirectory(prefix="palaver-dist-") as folder:
            files = build_twice(Path(folder), target)
            for file in files:
                check_contents(file)
            write_sums(target, files)
            names = [asked.installer] if asked.installer else list(INSTALLERS)
            if not asked.no_install:
                check_installs(Path(folder), files, names)
            for file in files:
                if not can_run(file):
                    run_foreign(Path(folder), file, is_installed="pip" in names and not asked.no_install)
    except (FailedCheckError, subprocess.CalledProcessError) as error:
        print(f"dist: {error}", file=sys.stderr)
        return 1
    return 0


# --------------------
# Build: twice from the last commit, and compare.


def build_twice(folder: Path, target: Path) -> list[Path]:
    """Build all files into `target`. Raise FailedCheckError if a second build makes other bytes."""
    if git("status", "--porcelain"):
        print("dist: there are changes that are not committed; they are not in this release")
    compile_musl(folder / "empty")
    # Resolved once, because a commit during the build would otherwise make the second build another one.
    commit = git("rev-parse", "HEAD")
    # Folders of different names and lengths: a path that gets into a file makes the two results differ.
    first = build(commit, folder / "first", target)
    second = build(commit, folder / "a second one", folder / "again")
    for one, other in zip(first, second, strict=True):
        if one.name != other.name or sha256(one) != sha256(other):
            raise FailedCheckError(f"{one.name} is not reproducible: two builds of one commit differ")
    print(f"dist: {len(first)} files, equal in two builds of {commit[:12]}")
    return first


def compile_musl(folder: Path) -> None:
    """Fill the cache of the compiler with musl, by an empty program for each machine. It takes minutes."""
    folder.mkdir()
    (folder / "main.c").write_text("int main(void) { return 0; }\n")
    sys.path.insert(0, str(ROOT))
    from hatch_build import compile_for  # needs hatchling, which only the environment of `make dist` has

    os.environ["ZIG_GLOBAL_CACHE_DIR"] = str(MUSL)
    for machine in MACHINES:
        compile_for(machine, folder, folder / "program", "0")


def build(commit: str, folder: Path, target: Path) -> list[Path]:
    """Build the sdist from a commit, and the wheels from the sdist.

    Each build has its own cache of the compiler, with musl in it: neither uses a result of the other.
    """
    shutil.rmtree(target, ignore_errors=True)
    source = folder / "source"
    source.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x"], cwd=source, input=archive, check=True)
    cache = shutil.copytree(MUSL, folder / "zig", symlinks=True)
    made_at = {
        "SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct", commit),
        "ZIG_GLOBAL_CACHE_DIR": str(cache),
    }
    run_hatchling("sdist", source, target, made_at)
    # The wheels come from the sdist, so that a file that is missing in it fails here and not for a packager.
    (sdist,) = target.glob("*.tar.gz")
    with tarfile.open(sdist) as tar:
        tar.extractall(folder, filter="data")
    unpacked = folder / sdist.name.removesuffix(".tar.gz")
    for machine in MACHINES:
        run_hatchling("wheel", unpacked, target, {**made_at, "PALAVER_BUILD_TARGET": machine})
    return sorted(path for path in target.iterdir() if path.suffix in (".gz", ".whl"))


def run_hatchling(kind: str, source: Path, target: Path, variables: Mapping[str, str]) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(target)]
    subprocess.run(
        command, cwd=source, env={**os.environ, **variables}, check=True, stdout=subprocess.DEVNULL
    )


# --------------------
# Check the files themselves.


def check_contents(file: Path) -> None:
    """Check that a wheel has a static client for its machine, and that the sdist can be built and tested."""
    if file.suffix == ".gz":
        with tarfile.open(file) as tar:
            names = {name.partition("/")[2] for name in tar.getnames()}
        missing = {"pyproject.toml", "hatch_build.py", "LICENSE", "README.md", "native/pal.c"} - names
        if missing:
            raise FailedCheckError(f"{file.name} lacks {', '.join(sorted(missing))}")
        return
    with zipfile.ZipFile(file) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith(".data/scripts/pal")]
        check_client(file, wheel.read(name))


def check_client(file: Path, client: bytes) -> None:
    """Read the header of an ELF program: its machine, and that it asks for no other program to load it."""
    machine = machine_of(file)
    if client[:6] != b"\x7fELF\x02\x01":
        raise FailedCheckError(f"pal in {file.name} is not a 64-bit program for Linux")
    kind, number = struct.unpack_from("<HH", client, 16)
    (table,) = struct.unpack_from("<Q", client, 32)
    size, count = struct.unpack_from("<HH", client, 54)
    # An entry of the kind PT_INTERP names the dynamic loader, which a static program must not need.
    entries = [struct.unpack_from("<I", client, table + at * size)[0] for at in range(count)]
    if number != MACHINES[machine] or kind != ELF_STATIC or PT_INTERP in entries:
        raise FailedCheckError(f"pal in {file.name} is not a static program for {machine}")
    print(f"dist: {file.name}: a static program for {machine}, {len(client)} bytes")


def machine_of(file: Path) -> str:
    return next(machine for machine in MACHINES if file.name.endswith(f"{machine}.whl"))


def can_run(file: Path) -> bool:
    """Return whether a file can be installed and run on this machine."""
    is_linux = sys.platform.startswith("linux")
    return file.suffix == ".gz" or (is_linux and file.name.endswith(f"{platform.machine()}.whl"))


def write_sums(target: Path, files: list[Path]) -> None:
    """Write the hashes of all files, in the form that `sha256sum --check` reads."""
    (target / "SHA256SUMS").write_text("".join(f"{sha256(file)}  {file.name}\n" for file in files))


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


# --------------------
# Install each file into an empty environment, and use it.


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment that contains only Palaver and its dependencies."""

    client: Path
    variables: Mapping[str, str]


def check_installs(folder: Path, files: list[Path], names: list[str]) -> None:
    """Install every file that runs here with these installers, and run the quick start."""
    for file in filter(can_run, files):
        for name in names:
            place = folder / f"{name} {'sdist' if file.suffix == '.gz' else 'wheel'}"
            place.mkdir()
            installed = INSTALLERS[name](file, place)
            run_quick_start(installed, place)
            print(f"dist: {file.name}: installed with {name}, and the quick start works")


def with_pip(file: Path, place: Path) -> Installed:
    """Install into a new virtual environment."""
    variables = clean_variables(place)
    subprocess.run([sys.executable, "-m", "venv", place / "env"], check=True)
    python = place / "env" / "bin" / "python"
    run_quietly([str(python), "-m", "pip", "install", "--quiet", str(file)], variables)
    return Installed(python.with_name("pal"), variables)


def with_pipx(file: Path, place: Path) -> Installed:
    """Install as a command of a user, with pipx."""
    homes = {"PIPX_HOME": f"{place}/pipx", "PIPX_BIN_DIR": f"{place}/bin", "PIPX_MAN_DIR": f"{place}/man"}
    variables = clean_variables(place) | homes
    pipx = [sys.executable, "-m", "pipx"]
    run_quietly([*pipx, "install", "--python", sys.executable, str(file)], variables)
    return Installed(place / "bin" / "pal", variables)


def with_uv(file: Path, place: Path) -> Installed:
    """Install as a command of a user, with uv."""
    homes = {"UV_TOOL_DIR": f"{place}/tools", "UV_TOOL_BIN_DIR": f"{place}/bin"}
    variables = clean_variables(place) | homes
    uv = [str(Path(sys.executable).with_name("uv"))]
    run_quietly([*uv, "tool", "install", "--quiet", "--python", sys.executable, str(file)], variables)
    return Installed(place / "bin" / "pal", variables)


INSTALLERS: Mapping[str, Callable[[Path, Path], Installed]] = {
    "pip": with_pip,
    "pipx": with_pipx,
    "uv": with_uv,
}


def clean_variables(place: Path) -> dict[str, str]:
    """Return the environment of a new user: an empty home, and no variable of ours."""
    home = place / "home"
    home.mkdir()
    kept = {
        name: value for name, value in os.environ.items() if name in KEPT or name.startswith(("PIP_", "UV_"))
    }
    # Downloads may be shared; everything else is new.
    caches = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    shared = {"PIP_CACHE_DIR": f"{caches}/pip", "UV_CACHE_DIR": f"{caches}/uv"}
    return {
        "HOME": str(home),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "TERM": "xterm-256color",
        **shared,
        **kept,
    }


def run_quick_start(installed: Installed, place: Path) -> None:
    """Run the commands of the README's quick start. The agent luna is a plain program in a terminal.

    `make test-harness` runs the quick start with the real harnesses.
    """
    work = place / "project"
    work.mkdir()

    def pal(*words: str) -> str:
        command = [str(installed.client), *words]
        ended = subprocess.run(
            command,
            cwd=work,
            env=installed.variables,
            capture_output=True,
            text=True,
            timeout=COMMAND_LIMIT_S,
            check=False,
        )
        if ended.returncode:
            raise FailedCheckError(f"{' '.join(command)} ended with {ended.returncode}: {ended.stderr}")
        return ended.stdout

    try:
        expect(pal("--version"), "pal ")
        pal("run", "--name", "luna", "--detach", "--", "cat")
        question = "which tests are red? ask nova if you do not know"
        sent = pal("send", "@luna", "--", question)
        expect(sent, "to luna")
        number = sent.split("#")[1].split()[0]
        expect(pal("receipts", number), "luna")
        expect(pal("list"), "luna")
        expect(pal("events", "--search", "tests"), question)
    finally:
        # Only a person or an operator may use `pal kill`. The holder first: it would start the bus again.
        with suppress(FailedCheckError):
            os.kill(json.loads(pal("status", "luna", "--json"))["holder"], signal.SIGKILL)
        subprocess.run([installed.client, "down"], env=installed.variables, capture_output=True, check=False)


# --------------------
# The wheel of the other machine, in an emulator.


def run_foreign(folder: Path, file: Path, *, is_installed: bool) -> None:
    """Install the wheel of another machine and run the quick start in an emulator.

    Print in capitals what was not checked, if a program for that is missing or `is_installed` is false.
    """
    machine = machine_of(file)
    emulator = shutil.which(f"qemu-{machine}") or shutil.which(f"qemu-{machine}-static")
    if emulator is None:
        print(f"dist: NOT RUN: {file.name}. Only its ELF header was checked, because this machine is a")
        print(f"dist: {platform.machine()} without qemu-{machine}. Run the quick start on {machine} first.")
        return
    place = folder / machine
    place.mkdir()
    name = Path(emulator).name
    with zipfile.ZipFile(file) as wheel:
        (script,) = [name for name in wheel.namelist() if name.endswith(".data/scripts/pal")]
        client = Path(wheel.extract(script, place))
    client.chmod(0o755)
    said = subprocess.run([emulator, client, "--version"], check=True, capture_output=True, text=True)
    print(f"dist: {file.name}: in {name} it says {said.stdout.strip()}")
    if not is_installed or not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        why = "there is no apt-get" if is_installed else "this was not asked for"
        print(f"dist: NOT INSTALLED: {file.name}. Only its client was started, because {why}.")
        print(f"dist: Run the quick start on {machine} first.")
        return
    run_quick_start(with_emulator(file, place, emulator), place)
    print(f"dist: {file.name}: installed with pip in {name}, and the quick start works")


def with_emulator(file: Path, place: Path, emulator: str) -> Installed:
    """Install into a new virtual environment of Debian's Python for the machine of the wheel.

    Its Python and the installed client are replaced by scripts that start them in the emulator, so that each
    can start the other: the kernel starts programs of another machine only with binfmt_misc.
    """
    variables = clean_variables(place)
    root = unpack_python(DEBIAN_MACHINES[machine_of(file)], place)
    start = f'exec {shlex.quote(emulator)} -L {shlex.quote(str(root))} -0 "$0"'  # Python finds its home by $0
    python = root / "usr" / "bin" / "python3"
    program = python.resolve()
    python.unlink()
    write_launcher(python, start, program)
    run_quietly([str(python), "-m", "venv", "--without-pip", f"{place}/env"], variables)
    python = place / "env" / "bin" / "python3"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    run_quietly([*pip, "install", "--quiet", str(file)], variables)
    client = python.with_name("pal")
    write_launcher(client, start, client.rename(python.with_name("pal.emulated")))
    return Installed(client, variables)


def write_launcher(path: Path, start: str, program: Path) -> None:
    path.write_text(f'#!/bin/sh\n{start} {shlex.quote(str(program))} "$@"\n')
    path.chmod(0o755)


def unpack_python(machine: str, place: Path) -> Path:
    """Unpack Debian's Python for a machine, with its libraries, and return the root. Install nothing."""
    state, root = place / "apt", place / "root"
    (state / "lists" / "partial").mkdir(parents=True)
    (state / "archives" / "partial").mkdir(parents=True)
    (state / "status").touch()  # no package is installed, so all that Python needs are downloaded
    options = {
        "APT::Architecture": machine,
        "APT::Architectures": machine,
        "APT::Sandbox::User": "root",  # another user cannot write to this folder
        "Debug::NoLocking": "1",
        "Dir::Cache": state,
        "Dir::State": state,
        "Dir::State::status": state / "status",
    }
    apt = ["apt-get", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
    run_quietly([*apt, "update"], os.environ)
    run_quietly(
        [*apt, "install", "--yes", "--no-install-recommends", "--download-only", "python3"], os.environ
    )
    for package in sorted((state / "archives").glob("*.deb")):
        run_quietly(["dpkg-deb", "--extract", str(package), str(root)], os.environ)
    return root


# --------------------
# Commands.


def expect(output: str, part: str) -> None:
    if part not in output:
        raise FailedCheckError(f"{part!r} is not in the output: {output}")


def run_quietly(command: list[str], variables: Mapping[str, str], cwd: Path | None = None) -> None:
    """Run a command, and raise FailedCheckError with its output if it fails."""
    ended = subprocess.run(command, env=dict(variables), cwd=cwd, capture_output=True, text=True, check=False)
    if ended.returncode:
        words = " ".join(map(str, command))
        raise FailedCheckError(f"{words} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")


def git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
