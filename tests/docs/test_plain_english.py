"""The checker of plain English reads the prose of each language, and does not take code for prose."""

from pathlib import Path

import pytest
from tools.plain_english import main, passages_of, score_file


def found(path: Path, source: str) -> list[tuple[int, str, str]]:
    """Return line, kind and text of the prose in a file with a source."""
    path.write_text(source)
    return [(one.line, one.kind, " ".join(one.text.split())) for one in passages_of(path)]


@pytest.mark.parametrize("name", ["a.c", "a.h", "a.js", "a.mjs"])
def test_comments_and_strings_are_read(tmp_path: Path, name: str) -> None:
    source = '/* One\n * block. */\nx = f("a // b c", "code");  // Two\n  // lines.\n// Three.\n\n// Four.\n'

    assert found(tmp_path / name, source) == [
        (1, "comment", "One block."),
        (3, "text", "a // b c"),
        (3, "comment", "Two lines. Three."),
        (7, "comment", "Four."),
    ]


def test_strings_of_each_kind_are_read_in_javascript(tmp_path: Path) -> None:
    source = "f('it is \\'one\\'', `${count} of ${is ? `a ${b}` : {c}.c} are here`, \"\");"

    assert found(tmp_path / "a.js", source) == [
        (1, "text", "it is \\'one\\'"),
        (1, "text", "X of X are here"),
    ]


def test_quotes_in_a_regular_expression_begin_no_string(tmp_path: Path) -> None:
    source = 'a = /["\'/`]x/u;  // one\nb = c(/"/, d / e);  // two\nf("three four five");\n'

    assert [text for _, _, text in found(tmp_path / "a.js", source)] == ["one", "two", "three four five"]


def test_only_comments_are_read_in_css(tmp_path: Path) -> None:
    source = '/* One. */\na { content: "/* a b c */"; }  /* Two\n   lines. */\n'

    assert found(tmp_path / "a.css", source) == [(1, "comment", "One."), (2, "comment", "Two lines.")]


def test_only_comments_are_read_in_sql(tmp_path: Path) -> None:
    source = "-- One\n-- comment.\nSELECT 'a -- b c', \"--\" FROM x;  -- Two; it's here.\n/* Three. */\n"

    assert found(tmp_path / "a.sql", source) == [
        (1, "comment", "One comment."),
        (3, "comment", "Two; it's here."),
        (4, "comment", "Three."),
    ]


def test_hit_has_the_line_of_the_phrase(tmp_path: Path) -> None:
    path = tmp_path / "a.sql"
    path.write_text("SELECT 1;\n-- A row is read when\n-- somebody asks.\n")

    _, hits = score_file(path)

    assert [(line, marker) for line, marker, _ in hits] == [(3, "nobody/somebody")]


@pytest.mark.parametrize("name", ["a.py", "a.md", "a.c", "a.js", "a.css", "a.sql"])
def test_folder_above_the_limit_fails(tmp_path: Path, name: str) -> None:
    sign = {".py": "# ", ".sql": "-- "}.get(Path(name).suffix, "")
    text = f"{sign}Nobody reads it.\n"
    block = f"/* {text} */\n" if Path(name).suffix in {".c", ".js", ".css"} else text
    (tmp_path / name).write_text(block)

    assert main([str(tmp_path), "--limit", "3", "--min-words", "1"]) == 1
    assert main([str(tmp_path), "--limit", "999", "--min-words", "1"]) == 0
