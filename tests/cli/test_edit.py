"""A person's editor on the file of settings."""

import stat
from pathlib import Path

import pytest

from palaver.cli.edit import edit_settings
from palaver.config import KEYS, Settings, load_settings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def editor(folder: Path, *lines: str) -> dict[str, str]:
    """An editor that adds lines to a file, as a person's environment names it."""
    script = folder / "an editor"
    script.write_text('#!/bin/sh\nprintf \'%s\\n\' "$@" >>"$0.asked"\n' + "\n".join(lines))
    script.chmod(0o700)
    return {"EDITOR": f"'{script}' --wait"}


def test_the_editor_is_given_the_file_behind_its_own_arguments(tmp_path: Path, file: Path) -> None:
    file.write_text("brake_hops = 1\n")

    status = edit_settings(tmp_path, editor(tmp_path))

    assert status == 0
    assert (tmp_path / "an editor.asked").read_text() == f"--wait\n{file}\n"


def test_visual_is_taken_before_editor(tmp_path: Path) -> None:
    environment = {**editor(tmp_path), "VISUAL": "false"}

    assert edit_settings(tmp_path, environment) == 1


def test_a_file_that_is_not_there_is_made_and_names_every_setting(tmp_path: Path, file: Path) -> None:
    status = edit_settings(tmp_path, {"EDITOR": "true"})

    assert status == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [key for key in KEYS if f"# {key} = " in file.read_text()] == list(KEYS)
    assert load_settings(tmp_path, {}) == Settings()


def test_what_was_changed_holds_from_the_next_start_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = editor(tmp_path, 'echo "brake_hops = 7" >>"$2"')

    first = edit_settings(tmp_path, environment)
    second = edit_settings(tmp_path, {"EDITOR": "true"})

    assert (first, second) == (0, 0)
    assert capsys.readouterr().out == (
        "takes effect when the bus starts again: pal down, pal up\nnothing was changed\n"
    )
    assert load_settings(tmp_path, {}).brake_hops == 7


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("colour = 1", "colour"),
        ("brake_hops = 'x'", "brake_hops"),
        ("hints = '\u202e'", "hints"),
        ("[", "toml"),
    ],
)
def test_it_is_said_what_is_wrong_with_the_file(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str], line: str, named: str
) -> None:
    file.write_text(line)

    status = edit_settings(tmp_path, {"EDITOR": "true"})

    said = capsys.readouterr().err.splitlines()
    assert status == 1
    assert named in said[0]
    assert said[-1] == "pal: the bus will not start like this; 'pal config edit' opens it again"


@pytest.mark.parametrize("word", ["/nowhere/vi", "'", "false"])
def test_an_editor_that_does_not_run_or_fails_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], word: str
) -> None:
    status = edit_settings(tmp_path, {"EDITOR": word})

    assert status == 1
    assert capsys.readouterr().err.startswith(f"pal: {word}")


def test_without_a_choice_it_is_vi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "vi").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(folder))

    assert edit_settings(tmp_path, {}) == 0
