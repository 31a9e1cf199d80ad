"""The skill: where it is installed, and which files are left alone."""

import json
import shlex
from pathlib import Path

import pytest

from palaver.app.install import install, skill_folders, skill_text, uninstall
from palaver.doors.cli.run import TABLE
from palaver.doors.cli.spec import parse


def run(*words: str, home: Path) -> int:
    done = install if words[0] == "install" else uninstall
    environment = {"HOME": str(home), "PALAVER_HOME": str(home / ".palaver")}
    return done(parse(TABLE, words), environment)


def test_skill_is_short_and_contains_the_essentials() -> None:
    text = skill_text()

    assert len(text.splitlines()) < 120
    assert text.startswith("---\nname: palaver\ndescription: ")
    assert max(map(len, text.partition("\n---\n")[2].splitlines())) <= 120
    for words in ("Routing is not privacy", "pal stick pass", "pal note add", "pal send", "--interrupt"):
        assert words in text


def test_every_command_in_the_skill_can_be_parsed() -> None:
    joined = skill_text().replace("\\\n", " ")
    lines = [line.strip() for line in joined.splitlines() if line.startswith("    pal ")]
    for line in lines:
        parse(TABLE, shlex.split(line, comments=True)[1:])

    assert len(lines) > 10


def test_skill_is_installed_where_harnesses_look(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / ".claude").mkdir()

    status = run("install", "skill", home=tmp_path)

    paths = [tmp_path / f".{name}/skills/palaver/SKILL.md" for name in ("agents", "claude")]
    assert status == 0
    assert [path.read_text() for path in paths] == [skill_text()] * 2
    assert capsys.readouterr().out == "".join(f"{path} installed\n" for path in paths)


def test_without_claude_code_nothing_is_created_for_it(tmp_path: Path) -> None:
    assert skill_folders({"HOME": str(tmp_path)}) == [tmp_path / ".agents/skills"]
    assert skill_folders({"HOME": "/nowhere", "CLAUDE_CONFIG_DIR": str(tmp_path)}) == [
        Path("/nowhere/.agents/skills"),
        tmp_path / "skills",
    ]


def test_folder_can_be_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    status = run("install", "skill", "my/skills", "--json", home=tmp_path)

    path = tmp_path / "my/skills/palaver/SKILL.md"
    assert status == 0
    assert path.read_text() == skill_text()
    assert json.loads(capsys.readouterr().out) == {"path": str(path), "result": "installed"}
    assert {one.name for one in tmp_path.iterdir()} == {"my", ".palaver"}


def test_installing_again_updates_the_skill(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "palaver/SKILL.md"
    run("install", "skill", str(tmp_path), home=tmp_path)
    run("install", "skill", str(tmp_path), home=tmp_path)
    path.write_text("---\nname: palaver\nof an older version")

    run("install", "skill", str(tmp_path), home=tmp_path)

    words = [line.removeprefix(f"{path} ") for line in capsys.readouterr().out.splitlines()]
    assert words == ["installed", "is up to date", "updated"]
    assert path.read_text() == skill_text()
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("verb", ["install", "uninstall"])
def test_foreign_skill_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    path = tmp_path / "palaver/SKILL.md"
    path.parent.mkdir()
    path.write_text("mine")

    status = run(verb, "skill", str(tmp_path), home=tmp_path)

    assert status == 1
    assert path.read_text() == "mine"
    assert capsys.readouterr().err == f"pal: {path}: another skill has this name; it was not changed\n"


def test_unwritable_path_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "palaver").write_text("a file where a folder should be")

    status = run("install", "skill", str(tmp_path), "--json", home=tmp_path)

    assert status == 1
    assert json.loads(capsys.readouterr().err)["error"] == "bad_request"


def test_printing_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = run("install", "skill", str(tmp_path), "--print", home=tmp_path)

    assert status == 0
    assert capsys.readouterr().out == skill_text()
    assert list(tmp_path.iterdir()) == []


def test_skill_is_removed_with_its_folder_unless_that_has_other_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        run("install", "skill", str(folder), home=tmp_path)
    (other / "palaver/notes.md").write_text("mine")
    capsys.readouterr()

    run("uninstall", "skill", str(one), "--print", home=tmp_path)
    was_there = (one / "palaver/SKILL.md").exists()
    statuses = [run("uninstall", "skill", str(folder), home=tmp_path) for folder in (one, other, one)]

    assert was_there
    assert statuses == [0, 0, 0]
    assert not (one / "palaver").exists()
    assert [path.name for path in (other / "palaver").iterdir()] == ["notes.md"]
    words = [line.partition("SKILL.md ")[2] for line in capsys.readouterr().out.splitlines()]
    assert words == ["would be removed", "removed", "removed", "is not there"]


def test_failed_removal_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "palaver/SKILL.md").mkdir(parents=True)

    status = run("uninstall", "skill", str(tmp_path), home=tmp_path)

    assert status == 1
    assert "Is a directory" in capsys.readouterr().err


def everything(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if ".palaver" not in path.parts}


def test_folders_created_for_the_skill_are_removed_with_it(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    before = everything(tmp_path)
    run("install", "skill", home=tmp_path)

    status = run("uninstall", "skill", home=tmp_path)

    assert status == 0
    assert everything(tmp_path) == before
    assert not (tmp_path / ".palaver/install/skill.json").exists()


def test_existing_or_used_folders_stay(tmp_path: Path) -> None:
    (tmp_path / ".agents/skills").mkdir(parents=True)
    one = tmp_path / "one/skills"
    run("install", "skill", home=tmp_path)
    run("install", "skill", str(one), home=tmp_path)
    (tmp_path / "one/mine").touch()

    run("uninstall", "skill", home=tmp_path)
    run("uninstall", "skill", str(one), home=tmp_path)

    left = {str(path.relative_to(tmp_path)) for path in everything(tmp_path)}
    assert left == {".agents", ".agents/skills", "one", "one/mine"}


def test_created_folders_are_still_known_after_an_update(tmp_path: Path) -> None:
    path = tmp_path / "one/skills/palaver/SKILL.md"
    run("install", "skill", str(tmp_path / "one/skills"), home=tmp_path)
    path.write_text("---\nname: palaver\nof an older version")
    run("install", "skill", str(tmp_path / "one/skills"), home=tmp_path)

    run("uninstall", "skill", str(tmp_path / "one/skills"), home=tmp_path)

    assert everything(tmp_path) == set()


def test_damaged_folder_record_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    note = tmp_path / ".palaver/install/skill.json"
    note.parent.mkdir(parents=True)
    note.write_text("{")

    status = run("install", "skill", str(tmp_path), home=tmp_path)

    assert status == 1
    assert "is damaged" in capsys.readouterr().err


def test_printed_plan_can_be_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "palaver/SKILL.md"

    statuses = [run("install", "skill", str(tmp_path), "--print", "--json", home=tmp_path)]
    is_there = path.exists()
    run("install", "skill", str(tmp_path), "--json", home=tmp_path)
    statuses.append(run("install", "skill", str(tmp_path), "--print", "--json", home=tmp_path))

    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert statuses == [0, 0]
    assert not is_there
    assert rows[0] == {"path": str(path), "result": "would be installed", "text": skill_text()}
    assert [one["result"] for one in rows[1:]] == ["installed", "is up to date"]
