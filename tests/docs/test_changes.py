"""The changelog has the current version, and each open change is one paragraph for users."""

import re

from tests.docs.pages import ROOT, named

import palaver


def test_changelog_has_a_section_of_the_current_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")

    versions = re.findall(r"^## \[([\d.]+)\]", text, re.MULTILINE)

    assert versions[0] == palaver.__version__


def test_every_open_change_is_one_paragraph() -> None:
    notes = [path for path in (ROOT / "changes").glob("*.md") if path.name != "README.md"]

    wrong = [
        named(path)
        for path in notes
        if not re.fullmatch(r"(?:[^#\s-][^\n]*\n)+", path.read_text(encoding="utf-8"))
    ]

    assert wrong == []
