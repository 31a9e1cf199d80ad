"""Editing the settings file in the user's editor."""

import stat
from fnmatch import fnmatch
from pathlib import Path

import pytest

from palaver.app.offline import edit_settings
from palaver.config import KEYS, Settings, load
from palaver.protocol.settings_file import parse_settings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def files(folder: Path) -> list[str]:
    """Return the settings files in a home, including copies."""
    return sorted(one.name for one in folder.glob("config*"))


def editor(folder: Path, *lines: str) -> dict[str, str]:
    """Return an environment whose editor adds lines to a file."""
    script = folder / "an editor"
    script.write_text('#!/bin/sh\nprintf \'%s\\n\' "$@" >>"$0.asked"\n' + "\n".join(lines))
    script.chmod(0o700)
    return {"EDITOR": f"'{script}' --wait"}


def test_editor_gets_the_file_after_its_own_arguments(tmp_path: Path, file: Path) -> None:
    file.write_text("brake_hops = 1\n")

    status = edit_settings(tmp_path, editor(tmp_path))

    first, given = (tmp_path / "an editor.asked").read_text().splitlines()
    assert status == 0
    assert first == "--wait"
    assert fnmatch(given, f"{tmp_path}/config.*.toml")
    assert files(tmp_path) == ["config.toml"]


def test_visual_is_preferred_to_editor(tmp_path: Path) -> None:
    environment = {**editor(tmp_path), "VISUAL": "false"}

    assert edit_settings(tmp_path, environment) == 1


def test_without_a_file_every_setting_is_listed(tmp_path: Path, file: Path) -> None:
    environment = editor(tmp_path, 'cp "$2" "$0.seen"')

    status = edit_settings(tmp_path, environment)

    shown = (tmp_path / "an editor.seen").read_text()
    assert status == 0
    assert [key for key in KEYS if f"# {key} = " in shown] == list(KEYS)
    assert parse_settings(shown.encode(), "") == Settings()
    assert not file.exists()


def test_saved_file_is_readable_by_its_owner_only(tmp_path: Path, file: Path) -> None:
    edit_settings(tmp_path, editor(tmp_path, 'echo "brake_hops = 7" >>"$2"'))

    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_change_takes_effect_at_the_next_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environment = editor(tmp_path, 'echo "brake_hops = 7" >>"$2"')

    first = edit_settings(tmp_path, environment)
    second = edit_settings(tmp_path, {"EDITOR": "true"})

    assert (first, second) == (0, 0)
    assert capsys.readouterr().out == (
        "takes effect when the bus starts again: pal down, pal up\nnothing was changed\n"
    )
    assert load(tmp_path, {}).settings.brake_hops == 7


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("colour = 1", "colour"),
        ("brake_hops = 'x'", "brake_hops"),
        ("hints = '\u202e'", "hints"),
        ("[", "toml"),
    ],
)
def test_invalid_settings_are_not_saved(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str], line: str, named: str
) -> None:
    file.write_text("brake_hops = 1\n")

    status = edit_settings(tmp_path, editor(tmp_path, f'echo "{line}" >"$2"'))

    errors = capsys.readouterr().err.splitlines()
    (kept,) = tmp_path.glob("config.*.toml")
    assert status == 1
    assert named in errors[0]
    assert errors[-3:] == [
        "pal: the bus cannot start with these settings",
        "pal: nothing was saved",
        f"pal: {file} is unchanged; your text is in {kept}",
    ]
    assert file.read_text() == "brake_hops = 1\n"
    assert kept.read_text() == f"{line}\n"


def test_invalid_settings_can_be_edited_again_at_once(tmp_path: Path, file: Path) -> None:
    asked: list[str] = []

    def again(question: str) -> bool:
        asked.append(question)
        return True

    wrong, right = 'echo "colour = 1" >"$2"', 'echo "brake_hops = 7" >"$2"'
    mending = editor(tmp_path, f'grep -q colour "$2" && {right} || {wrong}')

    status = edit_settings(tmp_path, mending, again)

    assert status == 0
    assert asked == ["Edit it again? [Y/n] "]
    assert file.read_text() == "brake_hops = 7\n"
    assert files(tmp_path) == ["config.toml"]


def test_concurrent_change_is_not_overwritten(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("brake_hops = 1\n")
    environment = editor(tmp_path, f'echo "brake_hops = 2" >"{file}"; echo "brake_hops = 3" >"$2"')

    status = edit_settings(tmp_path, environment)

    assert status == 1
    assert "changed the settings meanwhile" in capsys.readouterr().err
    assert file.read_text() == "brake_hops = 2\n"


def test_interrupted_edit_names_the_copy(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(words: list[str], *, check: bool) -> None:
        Path(words[-1]).write_text("brake_hops = 7\n")
        raise KeyboardInterrupt

    monkeypatch.setattr("palaver.app.offline.subprocess.run", interrupt)

    with pytest.raises(KeyboardInterrupt):
        edit_settings(tmp_path, {"EDITOR": "editor"})

    (copy,) = files(tmp_path)
    assert capsys.readouterr().err == f"pal: {file} is unchanged; your text is in {tmp_path / copy}\n"


def test_deleted_copy_changes_nothing(tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("brake_hops = 1\n")

    status = edit_settings(tmp_path, editor(tmp_path, 'rm "$2"'))

    assert status == 1
    assert capsys.readouterr().err.endswith(f"pal: {file} is unchanged\n")
    assert file.read_text() == "brake_hops = 1\n"


def test_unwritable_home_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = edit_settings(tmp_path / "gone", {"EDITOR": "true"})

    assert status == 1
    assert "No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["/nowhere/vi", "'", "false"])
def test_failing_editor_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str], word: str) -> None:
    status = edit_settings(tmp_path, {"EDITOR": word})

    assert status == 1
    assert capsys.readouterr().err.startswith(f"pal: {word}")
    assert files(tmp_path) == []


def test_default_editor_is_vi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "vi").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(folder))

    assert edit_settings(tmp_path, {}) == 0
