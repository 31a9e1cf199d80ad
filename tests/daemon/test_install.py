"""`pal install` with the real client, which writes the files itself."""

from tests.cli.person import Person, persons
from tests.daemon.stage import Home, run_as_person

from palaver.cli.install import skill_text


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
        person.until(b"Write this? [y/N]")
        is_there_before = path.exists()
        person.press(b"n\r")
        person.until(b"nothing was written")
        is_there_after_no = path.exists()
        person.run("pal install gemini")
        person.until(b'"palaver"')
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
