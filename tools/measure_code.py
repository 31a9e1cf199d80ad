"""Measure the source tree: the numbers of the table in docs/architecture.md.

    python tools/measure_code.py            # print the table
    python tools/measure_code.py --names    # also print the modules, classes and places of each number

Only syntax trees are read. `tools/trace_message.py` counts the files that one message passes.
"""

import argparse
import ast
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parent.parent / "src"
CODEC = {
    "protocol/envelope.py",  # lines and the marker of lost content
    "protocol/events.py",  # structs
    "protocol/redaction.py",  # the stored payload without its text
    "log/records.py",  # rows: the columns and the searched text of any payload
}
"""Files that convert between stored payloads and typed content."""
OTHER_PAYLOADS = {
    "app/chat.py",  # room events as a client receives them; not typed there yet
    "app/thin/client.py",
    "harness/codex/output.py",
    "holder/agent.py",
    "log/repair.py",
    "protocol/thin.py",
}
"""Files with other payloads: frames, hook input, transcripts of a harness, and events at a client."""
# Nearly every comment that gives a reason contains one of these words. The number is an estimate, so it is
# only good for comparisons.
_REASON = re.compile(
    r"\b(?:because|since|so that|so|otherwise|never|must|only|would|could|may|until|before)\b"
)


@dataclass
class Module:
    """One module of the package. Each part is read when it is first needed, because most checks need one."""

    name: str
    source: bytes
    imports: set[str] = field(default_factory=set)

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.source)

    @property
    def comments(self) -> list[str]:
        """The text of each comment."""
        return [token.string for token in self._tokens if token.type == tokenize.COMMENT]

    @property
    def code_lines(self) -> int:
        """The number of lines with more than a comment."""
        skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
        return len({token.start[0] for token in self._tokens if token.type not in skipped})

    @cached_property
    def _tokens(self) -> list[tokenize.TokenInfo]:
        return list(tokenize.tokenize(BytesIO(self.source).readline))


def read_modules() -> dict[str, Module]:
    """Return all modules by name, without their imports."""
    modules = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules[name] = Module(name, path.read_bytes())
    return modules


def find_imports(modules: dict[str, Module]) -> None:
    """Fill in which modules of the package each module imports."""
    for module in modules.values():
        module.imports = {found for found in _imports(module.tree, modules) if found != module.name}


def _imports(tree: ast.Module, modules: dict[str, Module]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                # `from package import name` may import a module or a name from the package's own module.
                if full in modules:
                    yield full
                elif node.module in modules:
                    yield node.module


def only_one_importer(modules: dict[str, Module]) -> list[str]:
    """Return the modules that one module imports, a sibling in the same folder."""
    importers = defaultdict(set)
    for module in modules.values():
        for target in module.imports:
            importers[target].add(module.name)
    found = []
    for name, by in importers.items():
        (first, *others) = sorted(by)
        if not others and first.rpartition(".")[0] == name.rpartition(".")[0]:
            found.append(f"{name} (only {first})")
    return sorted(found)


def shared_class_names(modules: dict[str, Module]) -> list[str]:
    """Return the class names that are defined in several modules."""
    homes = defaultdict(set)
    for module in modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                homes[node.name].add(module.name)
    return sorted(f"{name}: {', '.join(sorted(by))}" for name, by in homes.items() if len(by) > 1)


def payload_reads(modules: dict[str, Module]) -> list[str]:
    """Return the reads of a payload by the name of a field, outside the codec."""
    return [
        f"{name}: {read}"
        for name, module in modules.items()
        if f"{name.removeprefix('palaver.').replace('.', '/')}.py" not in CODEC | OTHER_PAYLOADS
        and b"payload" in module.source
        for read in reads_in(module.tree)
    ]


def reads_in(tree: ast.Module) -> list[str]:
    """Return every expression that reads a key of something named `payload`, or of an alias of it."""
    # By node, because the walk of an outer function also meets the nodes of the functions inside it.
    found: dict[int, str] = {}
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            aliases = {"payload"}
            for target, value in _assignments(function):
                if _is_payload(value, aliases) or _is_get(value, aliases):
                    aliases.add(target)
            for node in ast.walk(function):
                if _is_read(node, aliases):
                    found[id(node)] = ast.unparse(node)
    return [*found.values()]


def _assignments(function: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(function):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            assert isinstance(node, ast.Assign)
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=True))
            yield from ((one.id, value) for one, value in pairs if isinstance(one, ast.Name))


def _is_payload(node: ast.expr, aliases: set[str]) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "payload"
    if isinstance(node, ast.BoolOp):
        return any(_is_payload(value, aliases) for value in node.values)
    return isinstance(node, ast.Name) and node.id in aliases


def _is_get(node: ast.expr, aliases: set[str]) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "get" and _is_payload(node.value, aliases)


def _is_read(node: ast.AST, aliases: set[str]) -> bool:
    if isinstance(node, ast.Call):
        is_alias = isinstance(node.func, ast.Name) and node.func.id in aliases
        return is_alias or _is_get(node.func, aliases)
    if isinstance(node, ast.Subscript):
        is_key = isinstance(node.ctx, ast.Load) and not isinstance(node.slice, ast.Slice)
        return is_key and _is_payload(node.value, aliases)
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
        return _is_payload(node.comparators[0], aliases)
    return False


def cycles(modules: dict[str, Module]) -> list[str]:
    """Return the modules that import each other in a circle, counting imports inside functions too."""
    state: dict[str, int] = {}
    found = []

    def visit(name: str, path: list[str]) -> None:
        state[name] = 1
        for target in sorted(modules[name].imports):
            if state.get(target) == 1 and target in path:
                found.append(" -> ".join([*path[path.index(target) :], target]))
            elif target not in state:
                visit(target, [*path, target])
        state[name] = 2

    for name in modules:
        if name not in state:
            visit(name, [name])
    return found


def door_imports(modules: dict[str, Module]) -> list[str]:
    """Return the modules of doors that import the log or delivery."""
    low = ("palaver.log", "palaver.delivery")
    return [
        m.name
        for m in modules.values()
        if m.name.startswith("palaver.doors") and any(i.startswith(low) for i in m.imports)
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Measure the source tree.")
    parser.add_argument("--names", action="store_true", help="print the names that each number counts")
    options = parser.parse_args()
    modules = read_modules()
    find_imports(modules)
    lines = sum(module.code_lines for module in modules.values())
    reasons = sum(1 for m in modules.values() for comment in m.comments if _REASON.search(comment))
    folders = Counter(str(path.parent.relative_to(ROOT)) for path in ROOT.rglob("*.py"))
    largest, files = folders.most_common(1)[0]
    rows: list[tuple[str, str, list[str]]] = [
        ("modules", str(len(modules)), []),
        ("code lines per module", f"{lines / len(modules):.0f}", []),
        ("files in the largest folder", f"{files} ({largest})", []),
    ]
    for title, names in {
        "modules with exactly one importer, a sibling": only_one_importer(modules),
        "string-keyed reads of a payload outside the codec": payload_reads(modules),
        "classes that share a name": shared_class_names(modules),
        "import circles": cycles(modules),
        "door files that import log or delivery": door_imports(modules),
    }.items():
        rows.append((title, str(len(names)), names))
    rows.append(("reason-giving comments per 100 code lines", f"{100 * reasons / lines:.1f}", []))
    for title, number, names in rows:
        print(f"| {title} | {number} |")
        if options.names:
            print("".join(f"    {name}\n" for name in names), end="")


if __name__ == "__main__":
    main()
