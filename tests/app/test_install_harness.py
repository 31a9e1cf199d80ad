"""Setting up harnesses: which files are written, and that all of them are restored."""

import json
import os
import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.app.installing import Run, run_in

from palaver.app.install_plan import settings_path
from palaver.harness.setup import INSTALLABLE, setup_for

FILES = {
    "claude": (".claude/settings.json",),
    "codex": (".codex/config.toml", ".codex/hooks.json"),
    "opencode": (".config/opencode/opencode.json",),
    "gemini": (".gemini/settings.json",),
}
MINE = {
    ".claude/settings.json": '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "mine"}]}]}}',
    ".codex/config.toml": '# mine\nmodel = "m" # why\n[mcp_servers.other]\ncommand = "x"',
    ".codex/hooks.json": '{\n\t"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "mine"}]}]}\n}',
    ".config/opencode/opencode.json": '{\n  // mine\n  "mcp": {"a": {"type": "local"},},\n}\n',
    ".gemini/settings.json": '{\n    "hooks": {"AfterTool": []}, // mine\n    "mcpServers": {}\n}\n',
}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return run_in(tmp_path)


def write(tmp_path: Path, harness: str) -> dict[Path, bytes]:
    for name in FILES[harness]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(MINE[name])
        (tmp_path / name).chmod(0o640)
    return read(tmp_path, harness)


def read(tmp_path: Path, harness: str) -> dict[Path, bytes]:
    return {path: path.read_bytes() for name in FILES[harness] if (path := tmp_path / name).exists()}


def everything(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("harness", INSTALLABLE)
def test_settings_are_restored_byte_for_byte(tmp_path: Path, run: Run, harness: str) -> None:
    before = write(tmp_path, harness)

    installed = run("install", harness, "--yes")
    between = read(tmp_path, harness)
    removed = run("uninstall", harness, "--yes")

    assert (installed, removed) == (0, 0)
    assert all(between[path] != content for path, content in before.items())
    assert read(tmp_path, harness) == before
    assert {stat.S_IMODE(path.stat().st_mode) for path in before} == {0o640}
    assert everything(tmp_path) == set(before)


@pytest.mark.parametrize("harness", INSTALLABLE)
def test_files_created_by_the_installation_are_removed(tmp_path: Path, run: Run, harness: str) -> None:
    run("install", harness, "--yes")
    files = read(tmp_path, harness)

    run("uninstall", harness, "--yes")

    assert len(files) == len(FILES[harness])
    assert everything(tmp_path) == set()
    assert {path.name for path in tmp_path.iterdir()} <= {".palaver"}


@pytest.mark.parametrize("harness", INSTALLABLE)
def test_installing_again_changes_nothing(
    tmp_path: Path, run: Run, harness: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = write(tmp_path, harness)
    run("install", harness, "--yes")
    once = read(tmp_path, harness)
    capsys.readouterr()

    again = run("install", harness, "--yes")

    assert again == 0
    assert read(tmp_path, harness) == once
    assert "is up to date" in capsys.readouterr().out
    run("uninstall", harness, "--yes")
    assert read(tmp_path, harness) == before


@pytest.mark.parametrize("harness", INSTALLABLE)
@pytest.mark.parametrize("verb", ["install", "uninstall"])
def test_print_writes_nothing(
    tmp_path: Path, run: Run, harness: str, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, harness)
    if verb == "uninstall":
        run("install", harness, "--yes")
        capsys.readouterr()
    before = {path: path.read_bytes() for path in everything(tmp_path)}

    status = run(verb, harness, "--print")

    out = capsys.readouterr().out
    assert status == 0
    assert {path: path.read_bytes() for path in everything(tmp_path)} == before
    assert "+++" in out
    assert "palaver" in out


@pytest.mark.parametrize("harness", INSTALLABLE)
def test_nothing_is_written_without_permission(
    tmp_path: Path, run: Run, harness: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = run("install", harness)

    assert status == 1
    assert "--yes" in capsys.readouterr().err
    assert everything(tmp_path) == set()


def test_changes_made_after_the_installation_stay(
    tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "gemini")
    path = tmp_path / ".gemini/settings.json"
    run("install", "gemini", "--yes")
    path.write_text(path.read_text().replace("{", '{\n    "theme": "dark",', 1))
    capsys.readouterr()

    status = run("uninstall", "gemini", "--yes")

    assert status == 0
    assert path.read_text() == MINE[".gemini/settings.json"].replace("{", '{\n    "theme": "dark",', 1)
    assert "only the entries of Palaver are removed" in capsys.readouterr().out


def test_older_installation_is_updated(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    before = write(tmp_path, "codex")
    monkeypatch.setattr("palaver.app.install.find_pal", lambda: "/old/pal")
    run("install", "codex", "--yes")
    monkeypatch.setattr("palaver.app.install.find_pal", lambda: "/new/pal")

    run("install", "codex", "--yes")

    texts = b"".join(read(tmp_path, "codex").values())
    assert b"/old/pal" not in texts
    assert b"/new/pal" in texts
    run("uninstall", "codex", "--yes")
    assert read(tmp_path, "codex") == before


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (".claude/settings.json", "{ // no\n}"),
        (".claude/settings.json", '{"enabledPlugins": []}'),
        (".codex/config.toml", "a ="),
        (".codex/hooks.json", '{"hooks": {"Stop": [{"hooks": [{"type": "http", "url": "x"}]}]}}'),
        (".config/opencode/opencode.json", '{"mcp": {"palaver": {"type": "remote"}}}'),
        (".gemini/settings.json", "\xff"),
    ],
)
def test_settings_that_cannot_be_extended_are_left_unchanged(
    tmp_path: Path, run: Run, file: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    harness = next(name for name, files in FILES.items() if file in files)
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode("latin-1"))

    status = run("install", harness, "--yes", "--json")

    error = json.loads(capsys.readouterr().err)
    assert (status, error["error"]) == (1, "bad_request")
    assert str(path) in error["message"]
    assert everything(tmp_path) == {path}
    assert path.read_bytes() == text.encode("latin-1")


def test_file_created_by_the_installation_is_reported_as_removed(
    tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex/config.toml").write_text('model = "x"\n')
    run("install", "codex", "--yes")
    capsys.readouterr()

    run("uninstall", "codex", "--print")
    run("uninstall", "codex", "--yes")

    output = capsys.readouterr().out
    assert "hooks.json would be removed; it did not exist before\n" in output
    assert "hooks.json removed; it did not exist before\n" in output
    assert "config.toml restored\n" in output
    assert not (tmp_path / ".codex/hooks.json").exists()


@pytest.mark.parametrize("what", ["skill", *INSTALLABLE])
def test_uninstalling_again_reports_no_error(run: Run, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    run("install", what, "--yes")
    run("uninstall", what, "--yes")
    capsys.readouterr()

    status = run("uninstall", what, "--yes")

    printed = capsys.readouterr()
    assert (status, printed.err) == (0, "")
    assert "is not there" in printed.out or "nothing to restore" in printed.out


def test_link_to_settings_stays_a_link(tmp_path: Path, run: Run) -> None:
    real = tmp_path / "dotfiles/settings.json"
    real.parent.mkdir()
    real.write_text("{}")
    (tmp_path / ".gemini").mkdir()
    link = tmp_path / ".gemini/settings.json"
    link.symlink_to(real)

    run("install", "gemini", "--yes")

    assert link.is_symlink()
    assert "mcpServers" in json.loads(real.read_text())


def test_file_that_changes_during_the_question_is_not_written(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "gemini")
    path = tmp_path / ".gemini/settings.json"
    monkeypatch.setattr("palaver.app.install._is_agreed", lambda *_: path.write_text("{}"))

    status = run("install", "gemini")

    assert status == 1
    assert path.read_text() == "{}"
    assert "changed while you were asked" in capsys.readouterr().err


def test_files_are_found_where_the_harness_looks_for_them(tmp_path: Path) -> None:
    (tmp_path / "x/opencode").mkdir(parents=True)
    (tmp_path / "x/opencode/opencode.jsonc").touch()
    environment = {
        "HOME": "/h",
        "CLAUDE_CONFIG_DIR": "/c",
        "CODEX_HOME": "/o",
        "GEMINI_CLI_HOME": "/g",
        "XDG_CONFIG_HOME": str(tmp_path / "x"),
    }

    assert settings_path("claude", "settings.json", environment) == Path("/c/settings.json")
    assert settings_path("codex", "hooks.json", environment) == Path("/o/hooks.json")
    assert settings_path("gemini", "settings.json", environment) == Path("/g/.gemini/settings.json")
    assert settings_path("opencode", "opencode.json", environment) == tmp_path / "x/opencode/opencode.jsonc"
    assert settings_path("opencode", "opencode.json", {"HOME": "/h"}) == Path(
        "/h/.config/opencode/opencode.json"
    )


def test_another_home_is_named_in_the_installed_settings(tmp_path: Path, run: Run) -> None:
    run("install", "codex", "--yes", PALAVER_HOME=str(tmp_path / "my bus"))

    server = tomllib.loads((tmp_path / ".codex/config.toml").read_text())["mcp_servers"]["palaver"]
    hooks = json.loads((tmp_path / ".codex/hooks.json").read_text())["hooks"]
    assert server["args"] == ["--home", str(tmp_path / "my bus"), "mcp"]
    command = hooks["Stop"][0]["hooks"][0]["command"]
    assert f"--home '{tmp_path}/my bus' hook codex Stop --installed" in command


def test_claude_code_plugin_is_stored_in_the_home_of_the_bus(tmp_path: Path, run: Run) -> None:
    run("install", "claude", "--yes")

    settings = json.loads((tmp_path / ".claude/settings.json").read_text())
    folder = Path(settings["extraKnownMarketplaces"]["palaver"]["source"]["path"])
    hooks = json.loads((folder / "plugin/hooks/hooks.json").read_text())["hooks"]
    server = json.loads((folder / "plugin/.mcp.json").read_text())["mcpServers"]["palaver"]
    assert settings["enabledPlugins"] == {"palaver@palaver": True}
    assert folder.is_relative_to(tmp_path / ".palaver")
    assert hooks["Stop"][0]["hooks"][0]["command"].endswith("hook claude Stop --installed")
    assert server["args"] == ["mcp"]
    assert os.access(server["command"], os.X_OK)


@given(st.text(min_size=1).filter(lambda word: "\0" not in word))
def test_path_with_any_characters_round_trips_in_the_settings(word: str) -> None:
    try:
        word.encode()
    except UnicodeEncodeError:
        return
    pal = (f"/{word}/pal",)

    lines = setup_for("codex", pal, "/own").changes[0].lines

    assert tomllib.loads("\n".join(lines))["command"] == pal[0]


@pytest.mark.parametrize("harness", ["claude", "codex", "gemini"])
def test_list_of_safe_commands_follows_the_setting(tmp_path: Path, run: Run, harness: str) -> None:
    before = write(tmp_path, harness)
    (tmp_path / ".palaver").mkdir()
    policy = tmp_path / ".gemini" / "policies" / "palaver.toml"

    def texts() -> str:
        found = [*read(tmp_path, harness).values(), *([policy.read_bytes()] if policy.exists() else [])]
        return b"".join(found).decode()

    sign = {"claude": "Bash(pal send:*)", "codex": "tools.send.approval_mode", "gemini": '"pal send"'}[
        harness
    ]
    (tmp_path / ".palaver" / "config.toml").write_text('agent_commands = "yes"\n')
    assert run("install", harness, "--yes") == 0
    allowed = texts()
    (tmp_path / ".palaver" / "config.toml").write_text('agent_commands = "no"\n')
    assert run("install", harness, "--yes") == 0
    declined = texts()

    assert sign in allowed
    assert sign not in declined
    assert not policy.parent.exists()
    assert run("uninstall", harness, "--yes") == 0
    assert read(tmp_path, harness) == before
