"""Only `pal ui` and `pal chat` at a terminal load Textual, and they load no table of commands."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import palaver

ROOT = Path(palaver.__file__).parent
STARTS = ("app/__main__.py",)
"""Modules that import the dashboard, inside the function of its verbs."""


def imports_of(path: Path) -> list[tuple[str, int]]:
    """Return each imported module of a file, with the column of the statement."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.col_offset) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(f"{node.module}.{alias.name}", node.col_offset) for alias in node.names]
    return found


def loaded_by(code: str) -> set[str]:
    """Return the modules that a process has loaded after this code."""
    program = f"{code}\nimport sys; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_only_the_dashboard_imports_textual() -> None:
    others = [path for path in ROOT.rglob("*.py") if (ROOT / "app" / "ui") not in path.parents]

    using = {
        str(path.relative_to(ROOT)): column
        for path in others
        for name, column in imports_of(path)
        if name.split(".")[0] in ("textual", "rich") or name.startswith("palaver.app.ui")
    }

    assert set(using) == set(STARTS)
    assert 0 not in using.values()


@pytest.mark.parametrize(
    "module",
    [
        "palaver",
        "palaver.app.__main__",
        "palaver.app.attach.attach",
        "palaver.app.chat",
        "palaver.app.offline",
        "palaver.app.run",
        "palaver.app.thin.client",
        "palaver.app.ui.start",
        "palaver.client.view_link",
        "palaver.daemon.__main__",
        "palaver.holder.main",
    ],
)
def test_other_programs_do_not_load_textual(module: str) -> None:
    assert not {name for name in loaded_by(f"import {module}") if name.split(".")[0] in ("textual", "rich")}


def test_dashboard_loads_no_table_of_commands_and_no_other_screen() -> None:
    loaded = loaded_by("import palaver.app.ui.start, palaver.app.ui.app, palaver.app.ui.now")

    assert "textual.app" in loaded
    assert not {name for name in loaded if name.startswith(("palaver.doors", "palaver.daemon"))}
    assert "palaver.app.ui.agents" not in loaded


def test_dashboard_uses_only_public_names_of_textual() -> None:
    private = [
        f"{path.name}: {name}"
        for path in (ROOT / "app" / "ui").glob("*.py")
        for name, _ in imports_of(path)
        if name.startswith("textual") and any(part.startswith("_") for part in name.split("."))
    ]

    assert private == []
