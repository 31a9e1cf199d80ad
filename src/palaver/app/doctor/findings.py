"""The findings about a harness, and how they are shown: to people, to programs, as a page. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from palaver.harness.opencode.launch import too_old

CHECKS: Final[Mapping[str, str]] = {
    "starts": "'pal HARNESS' starts it and detects when it is idle",
    "tools": "it offers the palaver tools to its model",
    "idle": "a message wakes it when it is idle; no person has to press a key",
    "busy": "a message reaches it while it works, in the same turn",
    "seen": "the receipt says that the message was in a request to its model",
    "subagents": "a sub-agent that it starts has a name, and a message to it is in its own request",
    "ends": "after it is killed, none of its processes is running",
}
"""The checks of a self-test, in this order."""

ADVICE: Final[Mapping[str, str]] = {
    "starts": "run it once without Palaver: it may ask a question at its start, or lack a program",
    "tools": "check whether a policy of your organisation forbids MCP servers",
    "idle": "messages wait until it runs 'pal recv' or the inbox tool; check whether its hooks are forbidden",
    "busy": "messages arrive after its turn; check whether its hooks are forbidden",
    "seen": "messages arrive, but receipts stay 'submitted': its hooks or events have changed",
    "subagents": "its sub-agents act as their parent, so write to the parent; its hooks or events have "
    "changed",
    "ends": "end the remaining processes yourself; 'ps' shows them",
}
"""Advice for each failed check."""
NONE: Final = "none"
"""The result of a check that does not apply to a harness: not a failure."""


_WELL: Final = ("ok", NONE)


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """One self-test of one harness."""

    harness: str
    version: str
    date: str
    results: Mapping[str, str]
    """For each check `ok`, `none`, or why it failed."""
    lanes: Mapping[str, str] = msgspec.field(default_factory=dict)
    """For `idle` and `busy` the lane that the message took."""

    @property
    def is_well(self) -> bool:
        return all(self.results.get(check) in _WELL for check in CHECKS)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A harness on this machine."""

    harness: str
    path: str
    version: str
    """Empty if unknown."""
    trouble: str = ""
    """Why the version is unknown: how the request for it ended."""
    tried: Tried | None = None
    """The result of the self-test just run."""


def what_works(found: Found, proven: Sequence[Tried]) -> tuple[str, str]:
    """Return what is known of a version, and what to do if nothing is known."""
    if found.trouble:
        return (
            f"its version is unknown: {found.trouble}",
            "run it once without Palaver to see what is missing",
        )
    if found.harness == "opencode" and (trouble := too_old(found.version)):
        return trouble, "update it: 'npm install -g opencode-ai@latest', or as you installed it"
    known = [one for one in proven if one.harness == found.harness]
    for one in known:
        if one.version == found.version:
            works = [check for check in CHECKS if one.results.get(check) == "ok"]
            fails = [check for check in CHECKS if one.results.get(check, NONE) not in _WELL]
            sentence = f"tested on {one.date}: {', '.join(works) or 'nothing'} work"
            return sentence + (f", {', '.join(fails)} do not" if fails else ""), ""
    versions = ", ".join(one.version for one in known) or "no version"
    return (
        f"this version has not been tested; tested: {versions}",
        f"'pal doctor --self-test --harness {found.harness}' tests it",
    )


def found_view(found: Found, proven: Sequence[Tried]) -> dict[str, object]:
    """Return a harness as programs read it."""
    known, advice = what_works(found, proven)
    view: dict[str, object] = {
        "harness": found.harness,
        "path": found.path,
        "version": found.version or None,
        "known": known,
        "advice": advice or None,
    }
    if found.tried is not None:
        view["self_test"] = {
            check: {
                "ok": result in _WELL,
                "said": result,
                "advice": None if result in _WELL else ADVICE[check],
            }
            for check, result in found.tried.results.items()
        }
        view["lanes"] = found.tried.lanes
    return view


def found_lines(found: Found, proven: Sequence[Tried]) -> list[tuple[bool, str]]:
    """Return a harness as people read it: lines, each with whether all is well."""
    known, advice = what_works(found, proven)
    version = found.version or "of unknown version"
    is_shown = found.tried is not None and found.tried.is_well
    lines = [(not advice or is_shown, f"{found.harness} {version} ({found.path}): {known}")]
    if found.tried is None:
        return [*lines, (False, f"  {advice}")] if advice else lines
    for check, result in found.tried.results.items():
        lane = f" ({found.tried.lanes[check]})" if check in found.tried.lanes else ""
        if result == NONE:
            lines.append((True, f"  {check}: this harness does not have the feature"))
        elif result == "ok":
            lines.append((True, f"  {check}{lane}: {CHECKS[check]}"))
        else:
            lines.append((False, f"  {check}: {result}\n       {ADVICE[check]}"))
    return lines


def page_of(proven: Sequence[Tried]) -> str:
    """Write the compatibility page."""
    heads = ["harness", "version", "tested on", *CHECKS]
    rows = []
    for one in proven:
        cells = []
        for check in CHECKS:
            result = one.results.get(check)
            lane = f" ({one.lanes[check]})" if check in one.lanes else ""
            known = {None: "not tested", "ok": f"yes{lane}", NONE: NONE}
            cells.append(known.get(result, "**no**"))
        rows.append(f"| {' | '.join([one.harness, one.version, one.date, *cells])} |")
    meanings = [f"| `{check}` | {meaning} |" for check, meaning in CHECKS.items()]
    return "\n".join(
        [
            "# Compatibility",
            "",
            "Results of `pal doctor --self-test` with the real programs and a scripted model.",
            "`make compat` generates this page from such a run; do not edit it by hand.",
            "",
            f"| {' | '.join(heads)} |",
            f"|{'---|' * len(heads)}",
            *rows,
            "",
            "The lane that carried the message is in parentheses: `native`, `hook` or `terminal`. `none`",
            "means that the harness lacks this feature: the sub-agents of Gemini CLI act as the agent.",
            "",
            "| check | it works when |",
            "|---|---|",
            *meanings,
            "",
            "For a version that is not listed, run `pal doctor --self-test`. It shows what works on your",
            "machine, and how to fix each failure.",
            "",
        ]
    )
