"""The shape of the source tree: what a newcomer relies on when looking for something."""

import ast
from collections import Counter

import pytest
from tools.measure_code import ROOT, Module, find_imports, only_one_importer, read_modules, shared_class_names

LIMIT_MODULES = 280
LIMIT_FOLDER = 25
LIMIT_ONE_IMPORTER = 40
ARCHITECTURE = ROOT.parent / "docs" / "architecture.md"


@pytest.fixture(scope="module")
def modules() -> dict[str, Module]:
    return read_modules()


def test_every_class_name_is_used_once(modules: dict[str, Module]) -> None:
    assert shared_class_names(modules) == []


def test_number_of_modules_stays_small(modules: dict[str, Module]) -> None:
    assert len(modules) <= LIMIT_MODULES


def test_no_folder_is_crowded() -> None:
    folders = Counter(path.parent for path in ROOT.rglob("*.py"))

    assert {str(folder): files for folder, files in folders.items() if files > LIMIT_FOLDER} == {}


def test_modules_with_one_importer_are_few_and_have_a_reason(modules: dict[str, Module]) -> None:
    find_imports(modules)
    found = [line.split(" ")[0] for line in only_one_importer(modules)]
    reasons = ARCHITECTURE.read_text(encoding="utf-8").partition("needs a reason")[2]

    assert len(found) <= LIMIT_ONE_IMPORTER
    assert {name for name in found if f"`{_file(name)}`" not in reasons} == set()


def _file(name: str) -> str:
    return f"{name.removeprefix('palaver.').replace('.', '/')}.py"


def test_every_module_says_what_it_is_for(modules: dict[str, Module]) -> None:
    missing = [name for name, module in modules.items() if not _docstring(module)]

    assert missing == []


def _docstring(module: Module) -> str | None:
    return ast.get_docstring(module.tree)
