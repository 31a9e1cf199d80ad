"""Puts the command `pal` into the wheel: compiled from native/pal.c, or in Python where no compiler is.

A missing or failing compiler never fails the build. PALAVER_NO_NATIVE=1 asks for the Python client.
"""

import os
import shlex
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags

_FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra")

# Linux on x86-64: a client that is done before the C library would have started (native/early.h). So the
# compiler must put in no call of that library by itself.
EARLY_FLAGS = (
    *("-DPAL_EARLY", "-static", "-no-pie", "-fno-pie", "-Wl,-e,early_start"),
    *("-fno-builtin", "-fno-stack-protector", "-fno-tree-loop-distribute-patterns"),
)
_ANSWER = b"O\0\0\0\x0c\0\0\0\1\0\0hello\n" + b"Q\0\0\0\1\0"
_LIMIT_S = 5.0

# Installers write their own interpreter into the first line. Ctrl-C while it imports must end it silently.
PYTHON_CLIENT = """\
#!python
import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from palaver.cli.thin import main

main()
"""


def compile_client(source: Path, target: Path, version: str) -> bool:
    """Compile the C client; return False when there is no compiler that can do it."""
    compiler = shlex.split(os.environ.get("CC") or "cc")
    command = [*compiler, *_FLAGS, f'-DPAL_VERSION="{version}"', str(source), "-o", str(target)]
    if _succeeds([*command, *EARLY_FLAGS]) and can_talk(target):
        return True
    # Linked statically it starts a quarter faster; not every system has the library for it.
    return any(_succeeds([*command, *extra]) for extra in (["-static"], []))


def can_talk(client: Path) -> bool:
    """Try whether a client asks and writes out the answer: what a compiler made of it may not run."""
    with tempfile.TemporaryDirectory(prefix="pal-") as home, socket.socket(socket.AF_UNIX) as listener:
        listener.settimeout(_LIMIT_S)
        environment = {"PALAVER_HOME": home, "PALAVER_PYTHON": "false"}
        try:
            listener.bind(f"{home}/daemon.sock")
            listener.listen()
            with subprocess.Popen(
                [client, "whoami"], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
            ) as asking:
                try:
                    connection, _ = listener.accept()
                    with connection:
                        connection.settimeout(_LIMIT_S)
                        asked = connection.recv(65536)
                        connection.sendall(_ANSWER)
                        said, _ = asking.communicate(timeout=_LIMIT_S)
                finally:
                    asking.kill()
        except (OSError, subprocess.TimeoutExpired):
            return False
    return asked.startswith(b"PAL1R") and said == b"hello\n" and asking.returncode == 0


def _succeeds(command: list[str]) -> bool:
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
        source = Path(self.root) / "native" / "pal.c"
        wants_native = os.environ.get("PALAVER_NO_NATIVE") != "1" and sys.platform != "win32"
        if wants_native and compile_client(source, client, self.metadata.version):
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


def _platform_tag() -> str:
    """Any Python 3, but only this kind of machine: the client is a program, not an extension module."""
    plain = (tag for tag in sys_tags() if "manylinux" not in tag.platform and "musllinux" not in tag.platform)
    return f"py3-none-{next(plain).platform}"
