"""`pal install all` and `pal uninstall all`: every byte of the user is as before, and nothing is left."""

import json
import os
import stat
from itertools import permutations
from pathlib import Path

import pytest
from tests.app.installing import Run, run_in

from palaver.app.install_plan import COMPLETION_LINES
from palaver.doors.cli.run import TABLE
from palaver.harness.setup import INSTALLABLE

MINE = {
    ".claude/settings.json": '{"model": "opus",\n "hooks": {}}',
    ".codex/config.toml": '# mine\nmodel = "m" # why\n',
    ".codex/hooks.json": '{\n\t"hooks": {"Stop": []}\n}',
    ".config/opencode/opencode.json": '{\n  // mine\n  "mcp": {"a": {"type": "local"},},\n}\n',
    ".gemini/settings.json": '{\n    "hooks": {"AfterTool": []}, // mine\n}\n'.replace("},", "}"),
    ".bashrc": "alias ll='ls -l'\r\n\n# the end, without a line feed",
    ".config/fish/config.fish": "set -x EDITOR vi\n",
    ".agents/skills/mine/SKILL.md": "---\nname: mine\n",
}
Tree = dict[str, tuple[int, bytes]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return run_in(tmp_path)


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH on which every harness is."""
    folder = tmp_path_factory.mktemp("bin")
    for name in INSTALLABLE:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return str(folder)


def write_mine(folder: Path) -> None:
    for name, text in MINE.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
        (folder / name).chmod(0o640)


def tree(folder: Path) -> Tree:
    """Return every file and folder of a user, with modes and bytes, apart from the home of the bus."""
    found: Tree = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if name.parts[0] != ".palaver":
            content = path.read_bytes() if path.is_file() else b""
            found[str(name)] = (stat.S_IMODE(path.stat().st_mode), content)
    return found


def add_line(path: Path, line: str) -> None:
    path.write_bytes(path.read_bytes().replace(b"\n", f"\n{line}\n".encode(), 1))


def test_every_byte_is_as_before_and_nothing_is_left(tmp_path: Path, run: Run, path: str) -> None:
    write_mine(tmp_path)
    before = tree(tmp_path)
    add_line(tmp_path / ".bashrc", COMPLETION_LINES[0])
    add_line(tmp_path / ".config/fish/config.fish", COMPLETION_LINES[2])

    installed = run("install", "all", "--yes", PATH=path)
    between = tree(tmp_path)
    removed = run("uninstall", "all", "--yes")

    assert (installed, removed) == (0, 0)
    changed = {name for name in before if between[name] != before[name]}
    assert {name for name in MINE if "skills" not in name} <= changed
    assert tree(tmp_path) == before
    assert [one for one in (tmp_path / ".palaver").rglob("*") if one.is_file()] == []


def test_created_files_and_folders_are_removed(tmp_path: Path, run: Run, path: str) -> None:
    run("install", "all", "--yes", PATH=path)
    between = tree(tmp_path)

    status = run("uninstall", "all", "--yes")

    assert status == 0
    assert len(between) > len(INSTALLABLE)
    assert tree(tmp_path) == {}


def test_setups_and_skills_in_other_folders_are_undone_too(tmp_path: Path, run: Run) -> None:
    run("install", "claude", "--yes", CLAUDE_CONFIG_DIR=str(tmp_path / "elsewhere"))
    run("install", "claude", "--yes")
    run("install", "skill", str(tmp_path / "project/skills"))

    status = run("uninstall", "all", "--yes")

    assert status == 0
    assert tree(tmp_path) == {}


COMMANDS = {
    "claude": ("claude",),
    "skill": ("skill",),
    "project": ("skill", "project/.claude/skills"),
    "another": ("skill", "project/.agents/skills"),
}


@pytest.mark.parametrize(
    "order",
    [*permutations(["claude", "skill"]), *permutations(["project", "another", "all"]), ("claude", "all")],
)
def test_order_of_uninstalling_does_not_matter(
    tmp_path: Path, run: Run, path: str, order: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["claude", "skill"] if "claude" in order else ["project", "another"]
    for name in names:
        run("install", *COMMANDS[name], "--yes" if name == "claude" else "--text", PATH=path)

    for name in order:
        run("uninstall", *COMMANDS.get(name, ("all",)), *(["--yes"] if name in {"claude", "all"} else []))
    run("uninstall", "skill")

    assert tree(tmp_path) == {}


def test_folder_with_two_setups_stays_until_both_are_undone(tmp_path: Path, run: Run) -> None:
    folder = str(tmp_path / "settings")
    for name in ("opencode", "gemini"):
        run("install", name, "--yes", XDG_CONFIG_HOME=folder, GEMINI_CLI_HOME=folder)

    run("uninstall", "opencode", "--yes", XDG_CONFIG_HOME=folder)
    between = set(tree(tmp_path))
    run("install", "opencode", "--yes", XDG_CONFIG_HOME=folder)
    run("uninstall", "gemini", "--yes", GEMINI_CLI_HOME=folder)
    run("uninstall", "opencode", "--yes", XDG_CONFIG_HOME=folder)

    assert between == {"settings", "settings/.gemini", "settings/.gemini/settings.json"}
    assert tree(tmp_path) == {}


def test_folder_of_the_user_and_one_with_content_stay(tmp_path: Path, run: Run) -> None:
    (tmp_path / ".agents").mkdir()
    run("install", "claude", "--yes")
    run("install", "skill")
    (tmp_path / ".claude/mine").touch()

    run("uninstall", "claude", "--yes")
    run("uninstall", "skill")
    (tmp_path / ".claude/mine").unlink()
    run("uninstall", "all", "--yes")

    assert set(tree(tmp_path)) == {".agents", ".claude"}


def test_interrupted_removal_of_folders_is_completed(
    tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run("install", "claude", "--yes")
    kept = tmp_path / ".palaver/install/folders.json"
    kept.write_text("[")
    damaged = run("uninstall", "claude", "--yes")
    errors = capsys.readouterr().err
    kept.write_text(json.dumps([str(tmp_path / "ours"), str(tmp_path / "ours/inner")]))
    (tmp_path / "ours/inner").mkdir(parents=True)

    status = run("uninstall", "all", "--yes")

    assert (damaged, status) == (1, 0)
    assert f"{kept}: it is damaged" in errors
    assert tree(tmp_path) == {}
    assert not kept.exists()


def test_only_harnesses_on_the_path_are_set_up(
    tmp_path: Path, run: Run, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in set(INSTALLABLE) - {"gemini"}:
        (Path(path) / name).unlink()

    some = run("install", "all", "--yes", PATH=path)
    (Path(path) / "gemini").unlink()
    none = run("install", "all", "--yes", PATH=path)

    assert (some, none) == (0, 0)
    assert {name.split("/")[0] for name in tree(tmp_path)} == {".gemini", ".agents"}
    assert "none of these is on your PATH: claude, codex, opencode, gemini" in capsys.readouterr().err


def test_remaining_commands_are_printed_for_this_home(
    tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "my home"
    (home / "agents").mkdir(parents=True)
    (home / "agents/luna.sock").touch()

    status = run("uninstall", "all", PALAVER_HOME=str(home))

    lines = capsys.readouterr().out.splitlines()
    assert status == 0
    assert lines[1:] == ["  pal stop luna", "  pal down", "  pipx uninstall palaver", f"  rm -r '{home}'"]


def test_print_shows_every_change_and_makes_none(
    tmp_path: Path, run: Run, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_mine(tmp_path)
    add_line(tmp_path / ".bashrc", COMPLETION_LINES[0])
    run("install", "all", "--yes", PATH=path)
    before = tree(tmp_path)
    capsys.readouterr()

    status = run("uninstall", "all", "--print", "--json")

    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert status == 0
    assert tree(tmp_path) == before
    names = {os.path.relpath(one["path"], tmp_path) for one in rows}
    assert names == {name for name in MINE if "skills" not in name and "fish" not in name} | {
        ".agents/skills/palaver/SKILL.md",
        ".claude/skills/palaver/SKILL.md",
    }


def test_print_says_if_nothing_is_installed(
    tmp_path: Path, run: Run, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_mine(tmp_path)
    nothing = "nothing is installed: there is nothing to restore\n"

    before = run("uninstall", "all", "--print")
    assert (before, capsys.readouterr().out) == (0, nothing)

    add_line(tmp_path / ".bashrc", COMPLETION_LINES[0])
    run("uninstall", "all", "--print")
    assert nothing not in capsys.readouterr().out

    run("install", "skill", "--yes", PATH=path)
    run("uninstall", "all", "--print")
    assert nothing not in capsys.readouterr().out

    run("uninstall", "all", "--yes")
    capsys.readouterr()
    run("uninstall", "all", "--print")
    assert capsys.readouterr().out == nothing


def test_completion_line_stays_without_permission(
    tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".zshrc").write_text(f"  {COMPLETION_LINES[1]}\necho 'pal completion zsh'\n")

    refused = run("uninstall", "all")
    text = (tmp_path / ".zshrc").read_text()
    done = run("uninstall", "all", "--yes")

    assert (refused, done) == (1, 0)
    assert "--yes" in capsys.readouterr().err
    assert text.startswith(f"  {COMPLETION_LINES[1]}\n")
    assert (tmp_path / ".zshrc").read_text() == "echo 'pal completion zsh'\n"


@pytest.mark.parametrize(
    ("codex", "skill"), [(b"{", b"{"), (b'{"harness":"\xff"}', b'{"\xff":[]}')], ids=["not JSON", "not UTF-8"]
)
def test_damaged_record_is_reported_and_the_rest_is_undone(
    tmp_path: Path, run: Run, path: str, capsys: pytest.CaptureFixture[str], codex: bytes, skill: bytes
) -> None:
    run("install", "all", "--yes", PATH=path)
    (tmp_path / ".palaver/install/codex.json").write_bytes(codex)
    (tmp_path / ".palaver/install/skill.json").write_bytes(skill)
    capsys.readouterr()

    status = run("uninstall", "all", "--yes")

    shown = capsys.readouterr()
    assert status == 1
    assert shown.err.count("it is damaged") == 2
    assert "To remove Palaver itself" not in shown.out
    assert {name.split("/")[0] for name in tree(tmp_path)} == {".agents", ".claude", ".codex"}
    assert not (tmp_path / ".claude/settings.json").exists()


def test_unreadable_start_file_is_reported(
    tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".profile").mkdir()

    status = run("uninstall", "all", "--yes")

    assert status == 1
    assert ".profile is not a file" in capsys.readouterr().err


def test_removed_lines_are_those_of_the_help() -> None:
    entry = TABLE.find(("completion",))

    assert entry is not None
    assert entry.command is not None
    assert tuple(line for line, _ in entry.command.examples) == COMPLETION_LINES
