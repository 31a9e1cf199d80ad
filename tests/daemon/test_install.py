"""`pal install` with the real client, which writes the files itself."""

import shlex
import subprocess
from pathlib import Path

from tests.app.person import Person, persons
from tests.daemon.stage import Home, run_as_person

from palaver.app.install import skill_text


def test_client_installs_the_skill_and_removes_it_again(bus: Home) -> None:
    path = bus.path.parent / ".agents/skills/palaver/SKILL.md"

    installed = bus.ok("install", "skill")
    text = path.read_text()
    removed = run_as_person(bus, "uninstall", "skill", "--json")

    assert installed.out == f"{path} installed\n"
    assert text == skill_text()
    assert (removed.status, removed.json) == (0, {"path": str(path), "result": "removed"})
    assert not path.parent.exists()


def test_skill_is_printed_completely(bus: Home) -> None:
    assert bus.ok("install", "skill", "--print").out == skill_text()


def test_unknown_target_is_a_usage_error(bus: Home) -> None:
    unknown = bus.pal("install", "vi", "--json")

    assert (unknown.status, unknown.error["error"]) == (2, "usage")


def test_person_sees_the_change_before_it_is_written_and_decides(bus: Home) -> None:
    path = bus.path.parent / ".gemini/settings.json"
    with persons(bus) as people:
        person = Person(bus, cols=200, rows=200)
        people.append(person)

        person.run("pal install gemini")
        person.until(b"[y/N]")  # Whether agents may use the safe commands: asked once.
        person.press(b"n\r")
        person.until(b"Write this? [y/N]")
        is_there_before = path.exists()
        person.press(b"n\r")
        person.until(b"nothing was written")
        is_there_after_no = path.exists()
        person.shown = b""  # The next question is awaited, not the one before.
        person.run("pal install gemini")
        person.until(b"Write this? [y/N]")
        person.press(b"y\r")
        person.until(b"settings.json changed")

    assert not is_there_before
    assert not is_there_after_no
    assert "palaver" in path.read_text()
    bus.ok("uninstall", "gemini", "--yes")
    assert not path.parent.exists()


def test_folder_is_allowed_only_with_the_skill(bus: Home) -> None:
    refused = bus.pal("install", "claude", "somewhere", "--yes", "--json")

    assert (refused.status, refused.error["error"]) == (2, "usage")


def tree(folder: Path) -> dict[str, bytes]:
    """Return every file and folder of a user, apart from the output of `run_as_person`."""
    paths = [path for path in folder.rglob("*") if not path.is_socket()]
    found = {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"" for path in paths}
    return {name: content for name, content in found.items() if not name.startswith("spare-")}


def test_printed_commands_remove_everything(home: Home) -> None:
    folder = home.path.parent
    (folder / ".claude").mkdir()
    (folder / ".claude/settings.json").write_text('{"model": "opus"}')
    (folder / ".zshrc").write_text("alias ll='ls -l'\n")
    before = tree(folder)
    with (folder / ".zshrc").open("a") as file:
        file.write('eval "$(pal completion zsh)"\n')

    home.ok("run", "--name", "luna", "--detach", "--", "cat")
    for what in ("claude", "codex", "opencode", "gemini"):
        home.ok("install", what, "--yes")
    home.ok("install", "skill")
    between = tree(folder)
    shown = home.ok("uninstall", "all", "--yes")
    commands = [shlex.split(line) for line in shown.out.splitlines() if line.startswith("  ")]
    for program, *words in commands:
        if program == "pal":
            assert run_as_person(home, *words).status == 0
        elif program == "rm":
            subprocess.run([program, *words], check=True)

    assert [" ".join(words[:2]) for words in commands] == ["pal stop", "pal down", "pipx uninstall", "rm -r"]
    assert between.keys() > before.keys()
    assert all(between[name] != before[name] for name in (".zshrc", ".claude/settings.json"))
    assert tree(folder) == before
