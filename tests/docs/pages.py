"""The documentation pages, and functions that split them for comparison with the code."""

import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "palaver"

_NOT_OURS = {"build", "dist", "__pycache__"}
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def our_files(*patterns: str) -> list[Path]:
    """Return every file of the project that matches a pattern, except built files and hidden folders."""
    found: list[Path] = []
    for folder, names, _ in os.walk(ROOT):
        names[:] = [name for name in names if not name.startswith(".") and name not in _NOT_OURS]
        for pattern in patterns:
            found += Path(folder).glob(pattern)
    return sorted(path for path in found if path.is_file())


PAGES = our_files("*.md")


def named(path: Path) -> str:
    """Return the name of a file for test ids."""
    return str(path.relative_to(ROOT))


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def source(folder: str, pattern: str = "*.py") -> str:
    """Return the text of all matching files in a folder."""
    return "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / folder).glob(pattern)))


def blocks(text: str, language: str) -> list[str]:
    """Return the contents of the fenced blocks in a language."""
    return [content for found, content in _FENCE.findall(text) if found == language]


def prose(text: str) -> str:
    """Return a page without its fenced blocks."""
    return _FENCE.sub("", text)


def sections(text: str, level: str) -> dict[str, str]:
    """Split a page at the headings of a level; a section ends at any higher heading."""
    found = re.split(rf"^({level} .*)$", text, flags=re.MULTILINE)[1:]
    above = re.compile(rf"^#{{1,{len(level) - 1}}} ", re.MULTILINE)
    return {
        heading.removeprefix(f"{level} "): above.split(content)[0]
        for heading, content in zip(found[::2], found[1::2], strict=True)
    }


def first_cells(text: str) -> list[str]:
    """Return the first column of all tables in a text, where it is code."""
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def anchors(path: Path) -> set[str]:
    """Return the anchors of the headings of a page."""
    titles = re.findall(r"^#+ (.*)$", prose(path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
