"""Building the command `pal` for a wheel."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from packaging.tags import parse_tag
from tests.clients.conftest import Daemon

NATIVE = Path(__file__).parents[2] / "native"


def build_of(client: Path, daemon: Daemon) -> bytes:
    """Return what a client says about its build."""
    asking = subprocess.Popen(
        [client, "doctor"], env={"PALAVER_HOME": str(daemon.home)}, stdin=subprocess.DEVNULL
    )
    peer = daemon.accept()
    peer.quit()
    assert asking.wait() == 0
    return peer.one(b"n")


def script(path: Path, *lines: str) -> None:
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder in front of the PATH; the compiler is not chosen by `CC`."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.delenv("CC", raising=False)
    return folder


@pytest.mark.parametrize("compiler", ["/nowhere/cc", "false"])
def test_without_a_compiler_nothing_is_built_and_nothing_fails(
    build_hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str
) -> None:
    monkeypatch.setenv("CC", compiler)

    assert build_hook.compile_client(NATIVE, tmp_path / "pal", "1.2.3") is False


@pytest.mark.skipif(not shutil.which("musl-gcc"), reason="musl-gcc is not installed")
def test_musl_compiler_is_preferred(
    build_hook: ModuleType, tmp_path: Path, programs: Path, daemon: Daemon
) -> None:
    client = tmp_path / "pal"

    is_made = build_hook.compile_client(NATIVE, client, "1.2.3", build_hook.STRICT)

    assert (is_made, build_of(client, daemon)) == (True, b"native, static musl")
    assert b"__stack_chk_fail" in client.read_bytes()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux links statically")
def test_static_glibc_is_used_without_musl(
    build_hook: ModuleType, tmp_path: Path, programs: Path, daemon: Daemon
) -> None:
    script(programs / "musl-gcc", "exit 1")
    client = tmp_path / "pal"

    is_made = build_hook.compile_client(NATIVE, client, "1.2.3", build_hook.STRICT)

    assert (is_made, build_of(client, daemon)) == (True, b"native, static glibc")
    output = subprocess.run([client, "--version"], check=True, capture_output=True).stdout
    assert output == b"pal 1.2.3\n"


def test_compiler_without_static_linking_is_used(
    build_hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, daemon: Daemon
) -> None:
    script(tmp_path / "cc", 'case "$*" in *-static*) exit 1;; esac', 'exec cc "$@"')
    monkeypatch.setenv("CC", str(tmp_path / "cc"))
    client = tmp_path / "pal"

    is_made = build_hook.compile_client(NATIVE, client, "1.2.3", build_hook.STRICT)

    assert (is_made, build_of(client, daemon)) == (True, b"native, dynamic glibc")


def test_client_that_does_not_run_is_built_in_the_next_way(
    build_hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = tmp_path / "pal"
    broken = f"printf '#!/bin/false\\n' > {client}; chmod 755 {client}; exit 0"
    script(tmp_path / "cc", f'case "$*" in *-static*) {broken};; esac', 'exec cc "$@"')
    monkeypatch.setenv("CC", str(tmp_path / "cc"))

    is_made = build_hook.compile_client(NATIVE, client, "1.2.3")

    assert (is_made, build_hook.can_talk(client)) == (True, True)


def test_zig_comes_between_musl_and_glibc(build_hook: ModuleType, programs: Path) -> None:
    script(programs / "zig", "exit 1")

    compilers = [way[0] for way in build_hook.ways()]

    assert compilers[:3] == ["musl-gcc", "zig", "cc"]


def test_named_compiler_is_the_only_one(build_hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "ccache gcc")

    assert {tuple(way[:2]) for way in build_hook.ways()} == {("ccache", "gcc")}


@pytest.mark.parametrize("line", ["exit 1", "echo hello", "kill -SEGV $$"])
def test_client_that_does_not_contact_the_daemon_is_rejected(
    build_hook: ModuleType, tmp_path: Path, line: str
) -> None:
    script(tmp_path / "pal", line)

    assert build_hook.can_talk(tmp_path / "pal") is False


def test_client_that_hangs_is_rejected(
    build_hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_hook, "_LIMIT_S", 0.2)
    script(tmp_path / "pal", "exec sleep 60")

    assert build_hook.can_talk(tmp_path / "pal") is False


def test_wheel_of_a_release_is_for_every_linux_on_its_machine(build_hook: ModuleType) -> None:
    tags = {str(tag) for tag in parse_tag(build_hook.release_tag("aarch64"))}

    assert tags == {
        "py3-none-manylinux2014_aarch64",
        "py3-none-manylinux_2_17_aarch64",
        "py3-none-musllinux_1_1_aarch64",
    }


def test_release_for_another_machine_is_refused(build_hook: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be one of x86_64, aarch64, not 'sparc'"):
        build_hook.compile_for("sparc", NATIVE, tmp_path / "pal", "1.2.3")
