"""Setting up a harness in several folders, with missing or unusual files, and concurrently."""

import json
import sys
import threading
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from tests.app.installing import Run, run_in
from tests.limits import LIMIT_S

from palaver.app.install_plan import Record, locked, read_record, write_record
from palaver.harness.setup import INSTALLABLE

FILES = {
    "claude": ("settings.json",),
    "codex": ("config.toml", "hooks.json"),
    "opencode": ("opencode.json",),
    "gemini": ("settings.json",),
}
USUAL = {
    "claude": ".claude",
    "codex": ".codex",
    "opencode": ".config/opencode",
    "gemini": ".gemini",
}
ELSEWHERE = {
    "claude": ("CLAUDE_CONFIG_DIR", "else", "else"),
    "codex": ("CODEX_HOME", "else", "else"),
    "opencode": ("XDG_CONFIG_HOME", "else", "else/opencode"),
    "gemini": ("GEMINI_CLI_HOME", "else", "else/.gemini"),
}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return run_in(tmp_path)


def write(tmp_path: Path, harness: str, folder: str) -> dict[Path, str]:
    made = {}
    for name in FILES[harness]:
        path = tmp_path / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        made[path] = '# mine\nmodel = "m"\n' if name.endswith("toml") else '{"theme": "dark"}\n'
        path.write_text(made[path])
    return made


def read(files: dict[Path, str]) -> dict[Path, str]:
    return {path: path.read_text() for path in files if path.exists()}


def kept(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / ".palaver").rglob("*") if path.is_file()]


@pytest.mark.parametrize("harness", INSTALLABLE)
@pytest.mark.parametrize("is_usual_first", [True, False])
def test_every_folder_is_restored_separately(
    tmp_path: Path, run: Run, harness: str, is_usual_first: bool
) -> None:
    variable, value, folder = ELSEWHERE[harness]
    usual, other = write(tmp_path, harness, USUAL[harness]), write(tmp_path, harness, folder)
    there = {variable: str(tmp_path / value)}
    installed = [run("install", harness, "--yes"), run("install", harness, "--yes", **there)]
    both = {**read(usual), **read(other)}
    first, mine, theirs = (usual, {}, there) if is_usual_first else (other, there, {})

    removed = [run("uninstall", harness, "--yes", **mine)]
    between = {**read(usual), **read(other)}
    own = {path.name for path in kept(tmp_path)}
    removed.append(run("uninstall", harness, "--yes", **theirs))

    assert (installed, removed) == ([0, 0], [0, 0])
    assert between == {**both, **first}
    assert {**read(usual), **read(other)} == {**usual, **other}
    assert harness != "claude" or "marketplace.json" in own
    assert kept(tmp_path) == []


@pytest.mark.parametrize("harness", INSTALLABLE)
def test_setup_in_another_folder_is_reported_with_its_command(
    tmp_path: Path, run: Run, harness: str, capsys: pytest.CaptureFixture[str]
) -> None:
    variable, value, folder = ELSEWHERE[harness]
    other = write(tmp_path, harness, folder)
    run("install", harness, "--yes", **{variable: str(tmp_path / value)})
    changed = read(other)
    capsys.readouterr()

    status = run("uninstall", harness, "--yes")

    assert status == 1
    assert read(other) == changed
    assert f"'{variable}={tmp_path / value} pal uninstall {harness}'" in capsys.readouterr().err


@pytest.mark.parametrize("harness", INSTALLABLE)
def test_record_of_an_earlier_version_applies_to_the_folder_of_its_files(
    tmp_path: Path, run: Run, harness: str
) -> None:
    before = write(tmp_path, harness, USUAL[harness])
    run("install", harness, "--yes")
    record = read_record(tmp_path / ".palaver", harness)
    assert record is not None
    files = tuple(msgspec.structs.replace(one, settings_folder="") for one in record.files)
    write_record(tmp_path / ".palaver", Record(harness=harness, files=files, own=record.own))
    variable, value, _ = ELSEWHERE[harness]

    statuses = [run("uninstall", harness, "--yes", **{variable: str(tmp_path / value)})]
    statuses.append(run("uninstall", harness, "--yes"))

    assert statuses == [1, 0]
    assert read(before) == before


def test_settings_under_two_file_names_are_both_restored(tmp_path: Path, run: Run) -> None:
    before = write(tmp_path, "opencode", USUAL["opencode"])
    run("install", "opencode", "--yes")
    other = tmp_path / ".config/opencode/opencode.jsonc"
    other.write_text("{}\n")
    run("install", "opencode", "--yes")
    is_changed = other.read_text() != "{}\n"

    run("uninstall", "opencode", "--yes")

    assert is_changed
    assert read(before) == before
    assert other.read_text() == "{}\n"


# Changed files

SINGLE = [(harness, name) for harness, names in FILES.items() for name in names]


@pytest.mark.parametrize(("harness", "name"), SINGLE)
@pytest.mark.parametrize("content", [None, "", "\n"])
def test_deleted_or_emptied_settings_are_written_again(
    tmp_path: Path, run: Run, harness: str, name: str, content: str | None
) -> None:
    write(tmp_path, harness, USUAL[harness])
    run("install", harness, "--yes")
    path = tmp_path / USUAL[harness] / name
    path.unlink() if content is None else path.write_text(content)

    installed = run("install", harness, "--yes")
    text = path.read_text()
    removed = run("uninstall", harness, "--yes")

    assert (installed, removed) == (0, 0)
    assert "palaver" in text
    assert (path.read_text() if path.exists() else None) == content
    assert kept(tmp_path) == []


@pytest.mark.parametrize(("harness", "name"), SINGLE)
@pytest.mark.parametrize("content", [None, "", "\n"])
def test_deleted_or_emptied_settings_are_forgotten(
    tmp_path: Path,
    run: Run,
    harness: str,
    name: str,
    content: str | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(tmp_path, harness, USUAL[harness])
    run("install", harness, "--yes")
    path = tmp_path / USUAL[harness] / name
    path.unlink() if content is None else path.write_text(content)
    capsys.readouterr()

    status = run("uninstall", harness, "--yes")

    expected = "it is already removed" if content is None else "it contains no entries of Palaver"
    assert status == 0
    assert f"{path} {expected}" in capsys.readouterr().out.replace("it was edited since; ", "")
    assert (path.read_text() if path.exists() else None) == content
    assert kept(tmp_path) == []


def test_codex_settings_that_cannot_be_cut_stay_with_their_record(
    tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "codex", USUAL["codex"])
    run("install", "codex", "--yes")
    path = tmp_path / ".codex/config.toml"
    path.write_text('mcp_servers = { palaver = { command = "pal" } }\n')
    before = kept(tmp_path)

    status = run("uninstall", "codex", "--yes")

    assert status == 1
    assert "remove it yourself and run this again" in capsys.readouterr().err
    assert path.read_text() == 'mcp_servers = { palaver = { command = "pal" } }\n'
    assert kept(tmp_path) == before


@pytest.mark.parametrize(("harness", "name"), SINGLE)
def test_link_loop_is_reported(
    tmp_path: Path, run: Run, harness: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / USUAL[harness] / name
    path.parent.mkdir(parents=True)
    path.symlink_to(path.name)

    status = run("install", harness, "--yes", "--json")

    error = json.loads(capsys.readouterr().err)
    assert (status, error["error"]) == (1, "bad_request")
    assert str(path) in error["message"]
    assert path.is_symlink()
    assert kept(tmp_path) == []


@pytest.mark.parametrize(
    ("harness", "name", "old", "new"),
    [
        ("codex", "config.toml", "", '\n[projects."/x"]\ntrust_level = "trusted"\n'),
        ("codex", "hooks.json", '{"theme": "dark", ', '{"theme": "light", '),
        ("gemini", "settings.json", '"hooks": {', '"hooks": {"Notification": [], '),
    ],
)
def test_installing_again_leaves_neighbouring_settings_unchanged(
    tmp_path: Path, run: Run, harness: str, name: str, old: str, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, harness, USUAL[harness])
    run("install", harness, "--yes")
    path = tmp_path / USUAL[harness] / name
    text = path.read_text()
    changed = text.replace(old, new, 1) if old else text + new
    path.write_text(changed)
    capsys.readouterr()

    status = run("install", harness, "--yes")

    assert status == 0
    assert path.read_text() == changed != text
    assert f"{path} is up to date" in capsys.readouterr().out
    run("uninstall", harness, "--yes")
    assert "palaver" not in path.read_text()
    assert new.strip(", ") in path.read_text()


# Concurrent runs


class WatchedStderr(StringIO):
    """Standard error, with an event for the message that the command waits."""

    def __init__(self) -> None:
        super().__init__()
        self.has_waited = threading.Event()

    def write(self, text: str) -> int:
        if "waiting for it" in text:
            self.has_waited.set()
        return super().write(text)


def test_installation_waits_for_another_one(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    stderr, statuses = WatchedStderr(), list[int]()
    monkeypatch.setattr(sys, "stderr", stderr)
    thread = threading.Thread(target=lambda: statuses.append(run("install", "codex", "--yes")))

    with locked(tmp_path / ".palaver", lambda: None):
        thread.start()
        has_waited = stderr.has_waited.wait(LIMIT_S)
        is_written = (tmp_path / ".codex").exists()
    thread.join(LIMIT_S)

    assert has_waited
    assert not is_written
    assert statuses == [0]
    assert (tmp_path / ".codex/hooks.json").exists()


def test_print_waits_for_no_other_installation(tmp_path: Path, run: Run) -> None:
    with locked(tmp_path / ".palaver", lambda: None):
        status = run("install", "gemini", "--print")

    assert status == 0


def test_concurrent_installations_have_one_result(tmp_path: Path, run: Run) -> None:
    before = write(tmp_path, "codex", USUAL["codex"])
    statuses: list[int] = []
    threads = [
        threading.Thread(target=lambda: statuses.append(run("install", "codex", "--yes"))) for _ in range(4)
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)

    assert statuses == [0] * 4
    assert (tmp_path / ".codex/config.toml").read_text().count("[mcp_servers.palaver]") == 1
    run("uninstall", "codex", "--yes")
    assert read(before) == before
