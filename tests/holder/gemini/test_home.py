"""A home for Gemini CLI that consists of links to the user's own."""

import json
import os
from pathlib import Path

from palaver.app.launch import gemini_home, last_gemini_session


def _account(folder: Path) -> dict[str, str]:
    own = folder / "account" / ".gemini"
    (own / "extensions" / "theirs").mkdir(parents=True)
    (own / "settings.json").write_text('{"theme": "dark"}')
    return {"HOME": str(folder / "account")}


def test_home_shows_the_files_of_the_user_and_one_extra_extension(tmp_path: Path) -> None:
    environment = _account(tmp_path)
    extension = tmp_path / "extension"
    extension.mkdir()

    made = gemini_home(str(tmp_path / "home"), environment, extension) / ".gemini"

    assert (made / "settings.json").read_text() == '{"theme": "dark"}'
    assert {path.name for path in (made / "extensions").iterdir()} == {"theirs", "palaver"}
    assert (made / "extensions" / "palaver").resolve() == extension
    assert {path.name for path in (tmp_path / "account" / ".gemini" / "extensions").iterdir()} == {"theirs"}


def test_writes_in_the_home_reach_the_files_of_the_user(tmp_path: Path) -> None:
    environment = _account(tmp_path)

    made = gemini_home(str(tmp_path / "home"), environment, tmp_path) / ".gemini"
    (made / "settings.json").write_text("{}")
    (made / "oauth_creds.json").write_text("new")
    (made / "tmp" / "talk").write_text("said")

    own = tmp_path / "account" / ".gemini"
    assert (own / "settings.json").read_text() == "{}"
    assert (own / "oauth_creds.json").read_text() == "new"
    assert (own / "tmp" / "talk").read_text() == "said"


def test_recreated_home_shows_the_current_files(tmp_path: Path) -> None:
    environment, home = _account(tmp_path), str(tmp_path / "home")
    own = tmp_path / "account" / ".gemini"
    (own / "commands").mkdir()
    made = gemini_home(home, environment, tmp_path / "one") / ".gemini"
    (made / "projects.json").write_text("made by a session here")

    (own / "commands").rmdir()
    (own / "skills").mkdir()
    (own / "extensions" / "theirs").rmdir()
    again = gemini_home(home, environment, tmp_path / "two") / ".gemini"

    assert again == made
    assert not (made / "commands").is_symlink()
    assert (made / "skills").is_dir()
    assert (made / "projects.json").read_text() == "made by a session here"
    assert os.listdir(made / "extensions") == ["palaver"]
    assert (made / "extensions" / "palaver").readlink() == tmp_path / "two"


def test_existing_gemini_home_of_the_user_is_linked_instead(tmp_path: Path) -> None:
    environment = {**_account(tmp_path), "GEMINI_CLI_HOME": str(tmp_path / "elsewhere")}
    (tmp_path / "elsewhere" / ".gemini").mkdir(parents=True)
    (tmp_path / "elsewhere" / ".gemini" / "GEMINI.md").write_text("be brief")

    made = gemini_home(str(tmp_path / "home"), environment, tmp_path) / ".gemini"

    assert (made / "GEMINI.md").read_text() == "be brief"
    assert not (made / "settings.json").exists()


def test_last_session_is_the_newest_of_the_folder(tmp_path: Path) -> None:
    environment = _account(tmp_path)
    work = tmp_path / "account" / ".gemini" / "tmp"
    for slug, root, sessions in (
        ("a", "/x", ("one", "two")),
        ("b", "/y", ("three",)),
        ("c", "/x", ("four",)),
    ):
        (work / slug / "chats").mkdir(parents=True)
        (work / slug / ".project_root").write_text(root)
        for name in sessions:
            path = work / slug / "chats" / f"session-{name}.jsonl"
            path.write_text(json.dumps({"sessionId": name}) + "\n")
            os.utime(path, (len(name), len(name)))
    (work / "b" / "chats" / "session-broken.jsonl").write_text("{\n")
    (work / "empty").mkdir()

    assert last_gemini_session(environment, "/x") == "four"
    assert last_gemini_session(environment, "/y") == "three"
    assert last_gemini_session(environment, "/z") == ""
