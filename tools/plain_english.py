#!/usr/bin/env python3
"""Measure how far prose in a source tree departs from plain technical English.

Count marker phrases per 1,000 words in docstrings, comments, error and help texts, test names and Markdown. In C
and JavaScript it reads comments and strings, in CSS and SQL comments. Code spans, fenced code and HTML comments
are ignored, so a page may quote a banned word in backticks.

    plain_english.py src/palaver tests docs native
    plain_english.py --hits src/palaver/delivery
    plain_english.py --limit 3 src/palaver docs        # exit status 1 if a folder is over 3
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import signal
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# A clause that starts with `what` or `who` and is not a question. Indirect questions (`decides what to do`) pass.
_NO_QUESTION = r"(?![^.?!]*\?)"
_START = r"(?:^|[.:;!)]\s+)"

MARKERS: dict[str, re.Pattern[str]] = {
    name: re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    for name, pattern in {
        "headless what": (
            rf"{_START}what\b(?! if\b){_NO_QUESTION}"
            r"|(?<!description )(?<!depends )(?<!depend )(?<!agree )(?<!record )"
            r"\b(?:of|to|for|with|from|by|into|at|in|on|behind|beside|besides|before|after|but|than|all|only)"
            r"\s+what\b"
            r"|\bwhat (?:stands|lies|waits|waited|comes|came|goes|went|belongs|hung|follows from)\b"
        ),
        "headless who": rf"{_START}(?:who|whose)\b{_NO_QUESTION}|\bwho(?:m|so)?ever\b",
        "give for return": r"^\s*gives?\b(?! up\b)|\bgives? (?:it |them |this )?back\b",
        "nobody/somebody": r"\b(?:nobody|somebody)\b",
        "behind for after": r"\bbehind\b(?! (?:a |an |the |your |our )?(?:\w+ )?(?:prox|firewall|load|scenes|tls|nat\b))",
        "stands for is": r"\b(?:stands?|stood|standing)\b(?! (?:for|out|in for)\b)(?!-|alone)"
        r"(?<!standing)|\bstanding (?:beside|behind|there|before|above|below)\b",
        "so long/many/often": r"\bso (?:long|many|often|much)\b(?! (?:faster|slower|better|worse|more|easier)\b)",
        "is none/is no": (
            r"\b(?:is|are|was|were|has|have|had) (?-i:none)\b"
            r"|(?<!there )(?<!there's )\b(?:is|are|was|were) no (?!longer\b|more than\b|different\b|way\b|need\b|such\b|one\b)\w+"
            r"|\bno more(?=[.,;:]|$)"
        ),
        "verb at the end": r"\b(?:it|they|he|she|one|that|which) (?:has|have|had|does|is) not(?=[.;:]|$)",
        "mend": r"\bmend(?:s|ed|ing)?\b",
        "told": r"\b(?:is|are|was|were|be|been|being|not) told\b",
        "of its own": r"\bof (?:its|their|his|her|one's|our|your|my) own\b",
        "beside": r"\bbeside\b",
        "for ever/in vain/anew": r"\bfor ever\b|\bin vain\b|\banew\b",
        "leave for permission": r"\bask(?:s|ed|ing)? leave\b",
        "way in": r"\bways? in\b(?! (?:which|that|the|this|each|a|an|python)\b)",
    }.items()
}

_WORD = re.compile(r"\w+(?:['’]\w+)?")
_BLOCK = r"/\*.*?\*/"
_SLASHES = r"//[^\n]*(?:\n[ \t]*//[^\n]*)*"  # adjacent lines are one comment
_DASHES = r"--[^\n]*(?:\n[ \t]*--[^\n]*)*"
_DOUBLE_QUOTED = r'"(?:\\.|[^"\\\n])*"'
_SINGLE_QUOTED = r"'(?:\\.|[^'\\\n])*'"
_HOLE = r"\$\{(?:[^{}`]|\{[^{}]*\}|`(?:\\.|[^`\\])*`)*\}"  # in a template; it may contain another template
_TEMPLATE = rf"`(?:\\.|{_HOLE}|[^`\\])*`"
_REGEX = r"(?<=[(,=:!&|?\[])\s*/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n])+/"
# Each pattern finds comments and texts. It also finds other quoted code: a quote or dash in that begins nothing.
_C_TOKEN = re.compile(
    rf"(?P<comment>{_BLOCK}|{_SLASHES})|(?P<text>{_DOUBLE_QUOTED})|{_SINGLE_QUOTED}", re.DOTALL
)
_JS_TOKEN = re.compile(
    rf"(?P<comment>{_BLOCK}|{_SLASHES})|(?P<text>{_DOUBLE_QUOTED}|{_SINGLE_QUOTED}|{_TEMPLATE})|{_REGEX}",
    re.DOTALL,
)
_CSS_TOKEN = re.compile(rf"(?P<comment>{_BLOCK})|{_DOUBLE_QUOTED}|{_SINGLE_QUOTED}", re.DOTALL)
_SQL_TOKEN = re.compile(rf"(?P<comment>{_BLOCK}|{_DASHES})|'[^']*'|\"[^\"]*\"", re.DOTALL)
_TOKENS = {
    ".c": _C_TOKEN,
    ".h": _C_TOKEN,
    ".js": _JS_TOKEN,
    ".mjs": _JS_TOKEN,
    ".css": _CSS_TOKEN,
    ".sql": _SQL_TOKEN,
}
_HTML_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_FENCE = re.compile(r"^\s*(```|~~~)")
_CODE_SPAN = re.compile(r"``.+?``|`[^`\n]+`", re.DOTALL)
_TEXT_KEYWORDS = {"help", "usage", "summary", "description", "epilog", "hint", "message", "reason"}
_TEXT_CALLS = re.compile(
    r"(?:Error|Refusal|Refused|Unavailable|Request|NotFound|Sentence|Trouble)$|^(?:usage|refuse|fail|warn|complain|error)"
)
_SKIPPED_FOLDERS = {".git", ".venv", "__pycache__", "node_modules", "build", "dist"}
SUFFIXES = {".py", ".md", *_TOKENS}


@dataclass
class Passage:
    """One piece of prose, with the line it starts on and the kind of text it is."""

    line: int
    kind: str
    text: str


@dataclass
class Score:
    """Words read and markers found, for one file or one folder."""

    words: int = 0
    found: Counter[str] = field(default_factory=Counter)

    @property
    def hits(self) -> int:
        return sum(self.found.values())

    @property
    def rate(self) -> float:
        return 1000 * self.hits / self.words if self.words else 0.0

    def add(self, other: Score) -> None:
        self.words += other.words
        self.found.update(other.found)


def python_passages(source: str) -> Iterator[Passage]:
    """Yield docstrings, comments, error and help texts, and test names."""
    yield from _comments(source)
    tree = ast.parse(source)
    # Nodes that were counted: a raise contains a call, and both branches below would find its text.
    seen: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _docstrings(node.body, seen)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield Passage(node.lineno, "test name", node.name[5:].replace("_", " "))
            if isinstance(node, ast.FunctionDef) and node.name == "__str__":
                for part in ast.walk(node):
                    yield from _literals(part, seen) if isinstance(part, ast.Return) else ()
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from _literals(node.exc, seen)
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if _TEXT_CALLS.search(name):
                yield from _literals(node, seen)
            for keyword in node.keywords:
                if keyword.arg in _TEXT_KEYWORDS:
                    yield from _literals(keyword.value, seen)


def _comments(source: str) -> Iterator[Passage]:
    """Join adjacent comment lines, so that a phrase split over two lines is found."""
    start, last, lines = 0, -1, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        text = token.string.lstrip("#:! ")
        if re.match(r"(?:type:|noqa|pragma|fmt:|ruff:|mypy:|-\*-)", text):
            continue
        row = token.start[0]
        if row == last + 1:
            lines.append(text)
        else:
            if lines:
                yield Passage(start, "comment", "\n".join(lines))
            start, lines = row, [text]
        last = row
    if lines:
        yield Passage(start, "comment", "\n".join(lines))


def _docstrings(body: list[ast.stmt], seen: set[int]) -> Iterator[Passage]:
    """Yield every bare string statement: docstrings, and the strings under constants and fields."""
    for statement in body:
        value = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str) and id(value) not in seen:
            seen.add(id(value))
            yield Passage(value.lineno, "docstring", value.value)


def _literals(node: ast.AST, seen: set[int]) -> Iterator[Passage]:
    """Yield the texts in an expression. Short ones are codes and keys, not prose."""
    for part in ast.walk(node):
        if id(part) in seen:
            continue
        if isinstance(part, ast.JoinedStr):
            pieces = []
            for piece in part.values:
                seen.add(id(piece))
                pieces.append(str(piece.value) if isinstance(piece, ast.Constant) else "X")
            yield Passage(part.lineno, "text", "".join(pieces))
        elif isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.count(" ") >= 2:
            seen.add(id(part))
            yield Passage(part.lineno, "text", part.value)


def code_passages(source: str, tokens: re.Pattern[str]) -> Iterator[Passage]:
    """Yield the comments that a pattern finds, and the strings of three words or more."""
    for match in tokens.finditer(source):
        line = source.count("\n", 0, match.start()) + 1
        found = match.groupdict("")
        text = found.get("text", "")
        if comment := found["comment"]:
            bare = re.sub(r"^[ \t]*(?:/?\*+/?|//+|--+)|\*/$", " ", comment, flags=re.MULTILINE)
            yield Passage(line, "comment", bare)
        elif text.count(" ") >= 2:
            yield Passage(line, "text", re.sub(_HOLE, "X", text[1:-1]))


def markdown_passages(source: str) -> Iterator[Passage]:
    """Yield paragraphs, list items and table cells, without fenced code."""
    is_fenced = False
    start, lines = 0, list[str]()

    def flush() -> Iterator[Passage]:
        if lines:
            yield Passage(start, "prose", "\n".join(lines))
        lines.clear()

    for number, line in enumerate(
        _HTML_COMMENT.sub(lambda m: "\n" * m.group().count("\n"), source).splitlines(), 1
    ):
        if _FENCE.match(line):
            is_fenced = not is_fenced
            yield from flush()
        elif is_fenced or line.startswith("    ") or not line.strip():
            yield from flush()
        elif line.lstrip().startswith("|"):
            yield from flush()
            for cell in re.split(r"(?<!\\)\|", line):
                if cell.strip(" :-"):
                    yield Passage(number, "cell", cell.strip())
        else:
            if re.match(r"\s*(?:[-*+]|\d+\.|#+)\s", line):
                yield from flush()
            if not lines:
                start = number
            lines.append(re.sub(r"^\s*(?:[-*+]|\d+\.|#+|>)\s+", "", line))
    yield from flush()


def passages_of(path: Path) -> list[Passage]:
    """Return the prose of one file; nothing if it cannot be read."""
    try:
        source = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            return list(python_passages(source))
        if path.suffix == ".md":
            return list(markdown_passages(source))
        return list(code_passages(source, _TOKENS[path.suffix]))
    except (UnicodeDecodeError, SyntaxError, tokenize.TokenError, OSError) as error:
        print(f"skipped {path}: {error}", file=sys.stderr)
        return []


def clean(text: str) -> str:
    """Remove code spans, doctests and link targets, and unwrap lines inside a paragraph."""
    text = re.sub(r"^\s*(?:>>>|\.\.\.) .*$", " ", text, flags=re.MULTILINE)
    text = _CODE_SPAN.sub("X", text)
    text = re.sub(r"\]\([^)]*\)", "] ", text)
    text = re.sub(r"[*_\[\]]+", "", text)
    return "\n".join(re.sub(r"\s+", " ", part).strip() for part in re.split(r"\n\s*\n", text))


def line_of(passage: Passage, phrase: str) -> int:
    """Return the line of a phrase; the first line of the passage if the phrase contains a code span."""
    words = r"\s+".join(map(re.escape, phrase.split()))
    found = re.search(words, passage.text)
    return passage.line + (passage.text.count("\n", 0, found.start()) if found else 0)


def score_file(path: Path) -> tuple[Score, list[tuple[int, str, str]]]:
    """Return the score of a file and its hits as (line, marker, context)."""
    score, hits = Score(), []
    for passage in passages_of(path):
        text = clean(passage.text)
        score.words += len(_WORD.findall(passage.text))
        taken = set[int]()
        for name, pattern in MARKERS.items():
            # Elsewhere "give" is an ordinary verb; only in a docstring or a text can it mean "return".
            if name == "give for return" and passage.kind not in {"docstring", "text"}:
                continue
            for match in pattern.finditer(text):
                # One phrase is one hit, even if two markers match it (`what stands behind`).
                if taken & set(range(*match.span())):
                    continue
                taken.update(range(*match.span()))
                score.found[name] += 1
                context = text[max(0, match.start() - 30) : match.end() + 40].replace("\n", " ").strip()
                hits.append((line_of(passage, match.group()), name, f"{passage.kind}: …{context}…"))
    return score, sorted(hits)


def files_below(path: Path) -> Iterator[Path]:
    """Yield the files that hold prose, in a stable order."""
    if path.is_file():
        yield path
        return
    for found in sorted(path.rglob("*")):
        if found.suffix in SUFFIXES and not _SKIPPED_FOLDERS & set(found.relative_to(path).parts):
            yield found


def folder_of(file: Path, root: Path) -> str:
    """Return the top folder a file is counted under: the first level below the given path."""
    if file == root:
        return str(root)
    parts = file.relative_to(root).parts
    return str(root / parts[0]) if len(parts) > 1 else str(root)


def main(arguments: list[str] | None = None) -> int:
    """Print the rates; return 1 if `--limit` is exceeded."""
    parser = argparse.ArgumentParser(description="Count phrases that are not plain technical English.")
    parser.add_argument("paths", nargs="+", type=Path, help="files or folders to read")
    parser.add_argument("--limit", type=float, metavar="N", help="fail if a folder has more per 1,000 words")
    parser.add_argument(
        "--min-words", type=int, default=300, help="folders below this never fail (default 300)"
    )
    parser.add_argument("--worst", type=int, default=15, metavar="N", help="files to list (default 15)")
    parser.add_argument(
        "--hits", action="store_true", help="print the hits of those files, with line numbers"
    )
    parser.add_argument("--markers", action="store_true", help="print the rate of each marker")
    options = parser.parse_args(arguments)

    folders: dict[str, Score] = {}
    files: dict[Path, tuple[Score, list[tuple[int, str, str]]]] = {}
    for root in options.paths:
        for file in files_below(root):
            if file in files:
                continue
            files[file] = score_file(file)
            folders.setdefault(folder_of(file, root), Score()).add(files[file][0])

    total = Score()
    print("  per 1,000     hits     words  folder")
    for name, score in sorted(folders.items(), key=lambda item: -item[1].rate):
        is_over = (
            options.limit is not None and score.rate > options.limit and score.words >= options.min_words
        )
        print(
            f"{score.rate:11.1f} {score.hits:8} {score.words:9}  {name}{'  OVER THE LIMIT' if is_over else ''}"
        )
        total.add(score)
    print(f"{total.rate:11.1f} {total.hits:8} {total.words:9}  total")

    if options.markers:
        print("\n  per 1,000     hits  marker")
        for name in sorted(MARKERS, key=lambda marker: -total.found[marker]):
            print(f"{1000 * total.found[name] / max(1, total.words):11.2f} {total.found[name]:8}  {name}")

    worst = sorted((file for file in files if files[file][0].hits), key=lambda file: -files[file][0].hits)
    if options.worst and worst:
        print(f"\nfiles with the most hits (of {len(files)})")
    for file in worst[: options.worst]:
        score, hits = files[file]
        print(f"{score.rate:11.1f} {score.hits:8} {score.words:9}  {file}")
        if options.hits:
            for line, name, context in hits:
                print(f"    {file}:{line}: {name}: {context}")

    is_failed = options.limit is not None and any(
        score.rate > options.limit and score.words >= options.min_words for score in folders.values()
    )
    return 1 if is_failed else 0


if __name__ == "__main__":
    # Otherwise `| head` would end in a traceback.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
