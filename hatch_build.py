"""Put the command `pal` into the wheel: compiled from native/, or in Python if there is no C compiler.

A missing or failing compiler never fails the build. PALAVER_NO_NATIVE=1 selects the Python client.
PALAVER_BUILD_TARGET=x86_64 or aarch64 makes a wheel for every Linux on such a machine, on any machine: the
client is compiled by the package `ziglang`, and a failure fails the build. `make dist` uses it.
"""

import importlib.util
import os
import platform
import select
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags

FLAGS = (
    *("-std=c11", "-O2", "-D_GNU_SOURCE", "-D_DARWIN_C_SOURCE"),
    # Undefined first, because some distributions' compilers define it, and a second definition is a warning.
    *("-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"),
    *("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wstrict-prototypes", "-Wmissing-prototypes"),
)
STRICT = ("-Werror",)
"""Used by the checks of this project. An install must not fail because a newer compiler has a new warning."""

RELEASED = ("x86_64", "aarch64")
"""The machines for which wheels are released."""

_REPLY = b"O\0\0\0\x0c\0\0\0\1\0\0hello\n" + b"Q\0\0\0\1\0"
"""The reply of a daemon: a frame with the output `hello`, and one with the exit status 0."""
_LIMIT_S = 5.0
"""Seconds that a client may take: its start and its request take a few milliseconds."""

# Installers write their own interpreter into the first line. Ctrl-C while it imports must end it silently.
PYTHON_CLIENT = """\
#!python
import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from palaver.app.thin.client import main

main()
"""


def compile_client(native: Path, target: Path, version: str, flags: Sequence[str] = ()) -> bool:
    """Compile the C client in the first way that works; return False when no way works."""
    sources = sorted(str(source) for source in native.glob("*.c"))
    common = [*FLAGS, *flags, f'-DPAL_VERSION="{version}"', *sources, "-o", str(target)]
    return any(_succeeds([*compiler, *common]) and can_talk(target) for compiler in ways())


def compile_for(machine: str, native: Path, target: Path, version: str) -> None:
    """Compile the client for any Linux on a kind of machine; raise an error if that fails.

    The result depends only on the sources, the version and the compiler: the names of the sources are
    relative, and there are no symbols.
    """
    if machine not in RELEASED:
        raise ValueError(f"PALAVER_BUILD_TARGET must be one of {', '.join(RELEASED)}, not {machine!r}")
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-musl", "-static", "-s"]
    sources = sorted(source.name for source in native.glob("*.c"))
    command = [*compiler, *FLAGS, f'-DPAL_VERSION="{version}"', *sources, "-o", str(target)]
    subprocess.run(command, cwd=native, stdin=subprocess.DEVNULL, check=True)


def ways() -> list[list[str]]:
    """Return the compilers to try, the best first, each with its options for linking.

    A static program starts in three quarters of the time of a dynamic one, and with musl in half of that: the
    start of glibc asks the processor about many features. `CC` names the only compiler to use.
    """
    plain = shlex.split(os.environ.get("CC") or "cc")
    dynamic = [*plain, "-fPIE", "-pie"]
    if not sys.platform.startswith("linux"):
        return [dynamic]
    static = [[*plain, "-fPIE", "-static-pie"], [*plain, "-static"]]
    musl = [] if os.environ.get("CC") else [["musl-gcc", "-static"], *_zig()]
    return [*musl, *static, dynamic]


def _zig() -> list[list[str]]:
    """Return the C compiler of Zig, which contains musl, if it is installed as a command or as a package."""
    target = ["-target", f"{platform.machine()}-linux-musl", "-static"]
    if importlib.util.find_spec("ziglang") is not None:
        return [[sys.executable, "-m", "ziglang", "cc", *target]]
    return [["zig", "cc", *target]] if shutil.which("zig") else []


def can_talk(client: Path) -> bool:
    """Return whether a client sends a request and writes the reply: a compiled program may not run."""
    with tempfile.TemporaryDirectory(prefix="pal-") as home, socket.socket(socket.AF_UNIX) as listener:
        # A client that cannot connect would start a daemon with this Python: `false` only fails.
        environment = {"PALAVER_HOME": home, "PALAVER_PYTHON": "false"}
        try:
            listener.bind(f"{home}/daemon.sock")
            listener.listen()
            with subprocess.Popen(
                [client, "whoami"], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
            ) as asking:
                try:
                    assert asking.stdout is not None  # it is a pipe
                    # Its output is watched too, so that a client that ends without a request is rejected at
                    # once, and not after the limit.
                    signs = [listener.fileno(), asking.stdout.fileno()]
                    ready, _, _ = select.select(signs, [], [], _LIMIT_S)
                    if listener.fileno() not in ready:  # it has ended, or it hangs
                        return False
                    connection, _ = listener.accept()
                    with connection:
                        connection.settimeout(_LIMIT_S)
                        asked = connection.recv(65536)
                        connection.sendall(_REPLY)
                        said, _ = asking.communicate(timeout=_LIMIT_S)
                finally:
                    asking.kill()
        except (OSError, subprocess.TimeoutExpired):
            return False
    return asked.startswith(b"PAL1R") and said == b"hello\n" and asking.returncode == 0


def _succeeds(command: list[str]) -> bool:
    # The output is not shown: a compiler that is missing or fails is expected, and another one is tried.
    try:
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError:
        return False
    return ended.returncode == 0


class ClientBuildHook(BuildHookInterface[Any]):
    """Adds the script `pal` to a wheel, standard or editable."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the script and name it to the builder; the wheel's tag says whether it holds machine code."""
        if self.target_name != "wheel":
            return
        self._directory = tempfile.TemporaryDirectory(prefix="palaver-build-")
        client = Path(self._directory.name) / "pal"
        native = Path(self.root) / "native"
        wants_native = os.environ.get("PALAVER_NO_NATIVE") != "1" and sys.platform != "win32"
        if machine := os.environ.get("PALAVER_BUILD_TARGET"):
            compile_for(machine, native, client, self.metadata.version)
            build_data["pure_python"] = False
            build_data["tag"] = release_tag(machine)
        elif wants_native and compile_client(native, client, self.metadata.version):
            build_data["pure_python"] = False
            build_data["tag"] = _platform_tag()
        else:
            client.write_text(PYTHON_CLIENT)
        client.chmod(0o755)
        build_data["shared_scripts"][str(client)] = "pal"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what the wheel now holds."""
        if self.target_name == "wheel":
            self._directory.cleanup()


def release_tag(machine: str) -> str:
    """Return the tag of a wheel for any Python 3 and any Linux: a static program needs no C library."""
    libraries = ("manylinux2014", "manylinux_2_17", "musllinux_1_1")
    return f"py3-none-{'.'.join(f'{library}_{machine}' for library in libraries)}"


def _platform_tag() -> str:
    """Return a tag for any Python 3 on this kind of machine: the client does not use the interpreter."""
    # Without manylinux and musllinux, which promise that the wheel runs on other distributions. A client that
    # was compiled here may need the C library of this system.
    plain = (tag for tag in sys_tags() if "manylinux" not in tag.platform and "musllinux" not in tag.platform)
    return f"py3-none-{next(plain).platform}"
