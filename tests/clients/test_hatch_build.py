"""Building the command `pal` for a wheel."""

import subprocess
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).parents[2] / "native" / "pal.c"


def test_compiler_builds_the_client_with_its_version(build_hook: ModuleType, tmp_path: Path) -> None:
    is_made = build_hook.compile_client(SOURCE, tmp_path / "pal", "1.2.3")

    out = subprocess.run([tmp_path / "pal", "--version"], check=True, capture_output=True).stdout
    assert (is_made, out) == (True, b"pal 1.2.3\n")


@pytest.mark.parametrize("compiler", ["/nowhere/cc", "false"])
def test_without_a_compiler_nothing_is_built_and_nothing_fails(
    build_hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str
) -> None:
    monkeypatch.setenv("CC", compiler)

    assert build_hook.compile_client(SOURCE, tmp_path / "pal", "1.2.3") is False


def test_compiler_without_static_linking_is_used(
    build_hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text('#!/bin/sh\ncase "$*" in *-static*) exit 1;; esac\nexec cc "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))

    assert build_hook.compile_client(SOURCE, tmp_path / "pal", "1.2.3") is True


def test_client_that_does_not_run_is_rebuilt_without_an_early_start(
    build_hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler, client = tmp_path / "cc", tmp_path / "pal"
    broken = (
        f'case "$*" in *PAL_EARLY*) printf "#!/bin/false\\n" > {client}; chmod 755 {client}; exit 0;; esac'
    )
    compiler.write_text(f'#!/bin/sh\n{broken}\nexec cc "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))

    is_made = build_hook.compile_client(SOURCE, client, "1.2.3")

    assert (is_made, build_hook.can_talk(client)) == (True, True)


@pytest.mark.parametrize("script", ["exit 1", "echo hello", "kill -SEGV $$"])
def test_client_that_does_not_contact_the_daemon_is_rejected(
    build_hook: ModuleType, tmp_path: Path, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_hook, "_LIMIT_S", 0.2)
    client = tmp_path / "pal"
    client.write_text(f"#!/bin/sh\n{script}\n")
    client.chmod(0o755)

    assert build_hook.can_talk(client) is False
