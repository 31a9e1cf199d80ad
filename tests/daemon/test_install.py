"""`pal install` with the real client, which writes the files itself."""

from tests.daemon.stage import Home, run_as_person

from palaver.cli.install import skill_text


def test_the_client_installs_the_skill_and_removes_it_again(bus: Home) -> None:
    path = bus.path.parent / ".agents/skills/palaver/SKILL.md"

    installed = bus.ok("install", "skill")
    text = path.read_text()
    removed = run_as_person(bus, "uninstall", "skill", "--json")

    assert installed.out == f"{path} installed\n"
    assert text == skill_text()
    assert (removed.status, removed.json) == (0, {"path": str(path), "result": "removed"})
    assert not path.parent.exists()


def test_the_skill_is_printed_whole(bus: Home) -> None:
    assert bus.ok("install", "skill", "--print").out == skill_text()


def test_what_cannot_be_installed_is_said(bus: Home) -> None:
    unknown = bus.pal("install", "vi", "--json")

    assert (unknown.status, unknown.error["error"]) == (2, "usage")
