"""Findings about a harness, from its self-test results."""

from pathlib import Path

import pytest
from tools.record_compatibility import with_tried

from palaver.app.doctor import (
    ADVICE,
    CHECKS,
    NONE,
    Found,
    Tried,
    found_lines,
    found_view,
    page_of,
    proven,
    what_works,
)

PAGE = Path(__file__).parents[2] / "docs/compatibility.md"


def tried(version: str = "1.0.0", harness: str = "claude", **results: str) -> Tried:
    return Tried(
        harness=harness,
        version=version,
        date="2026-01-02",
        results={**dict.fromkeys(CHECKS, "ok"), **results},
        lanes={"idle": "native"},
    )


def found(version: str = "1.0.0", *, now: Tried | None = None) -> Found:
    return Found(harness="claude", path="/bin/claude", version=version, tried=now)


def test_tested_version_is_known() -> None:
    summary, advice = what_works(found(), [tried(busy="it slept")])

    assert summary == "tested on 2026-01-02: starts, tools, idle, seen, subagents, ends work, busy do not"
    assert advice == ""


@pytest.mark.parametrize("known", [[], [tried("2.0.0")], [tried(harness="codex")]])
def test_untested_version_can_be_tested(known: list[Tried]) -> None:
    summary, advice = what_works(found(), known)

    assert summary.startswith("this version has not been tested; ")
    assert advice == "'pal doctor --self-test --harness claude' tests it"


def test_version_not_known_to_work_needs_attention() -> None:
    silent = Found(
        harness="claude", path="/bin/claude", version="", trouble="'--version' ended with status 3"
    )

    never, broken, known = (found_lines(one, [tried()]) for one in (found("9.9.9"), silent, found()))

    assert [ok for ok, _ in never] == [ok for ok, _ in broken] == [False, False]
    assert "ended with status 3" in broken[0][1]
    assert [ok for ok, _ in known] == [True]
    assert found_lines(found("9.9.9", now=tried("9.9.9")), [])[0][0]


def test_version_that_pal_cannot_start_must_be_updated() -> None:
    old = Found(harness="opencode", path="/bin/opencode", version="1.17.0")

    summary, advice = what_works(old, [])

    assert "too old for 'pal opencode'" in summary
    assert "opencode-ai@latest" in advice


def test_failed_check_has_advice() -> None:
    lines = found_lines(found(now=tried(idle="it slept")), [tried()])

    assert [line for ok, line in lines if not ok] == [f"  idle: it slept\n       {ADVICE['idle']}"]
    assert len(lines) == 1 + len(CHECKS)


def test_json_view_contains_the_same_findings() -> None:
    view = found_view(found("", now=tried(idle="it slept")), [])

    assert (view["version"], view["path"]) == (None, "/bin/claude")
    checks = view["self_test"]
    assert isinstance(checks, dict)
    assert checks["idle"] == {"ok": False, "said": "it slept", "advice": ADVICE["idle"]}
    assert checks["busy"] == {"ok": True, "said": "ok", "advice": None}


def test_harness_is_well_when_everything_was_tested_and_works() -> None:
    assert tried().is_well
    assert tried(subagents=NONE).is_well
    assert not tried(seen="no").is_well
    assert not Tried(harness="claude", version="1", date="d", results={"starts": "ok"}).is_well


def test_every_check_has_advice() -> None:
    assert ADVICE.keys() == CHECKS.keys()


def test_new_results_replace_old_ones_of_the_same_version() -> None:
    old = [tried("1.0.0"), tried("1.0.0", "codex")]

    kept = with_tried(old, [tried("1.0.0", idle="no"), tried("1.1.0")])

    assert [(one.harness, one.version) for one in kept] == [
        ("claude", "1.0.0"),
        ("claude", "1.1.0"),
        ("codex", "1.0.0"),
    ]
    assert kept[0].results["idle"] == "no"


def test_page_shows_tested_and_untested_checks() -> None:
    one = Tried(harness="codex", version="1.2.3", date="2026-01-02", results={"starts": "it did not"})

    page = page_of([tried(subagents=NONE), one])

    assert "| claude | 1.0.0 | 2026-01-02 | yes | yes | yes (native) | yes | yes | none | yes |" in page
    assert "| codex | 1.2.3 | 2026-01-02 | **no** |" + " not tested |" * 6 in page


def test_missing_feature_of_a_harness_is_not_a_failure() -> None:
    has_none = tried(subagents=NONE)

    summary, _ = what_works(found(), [has_none])
    lines = found_lines(found(now=has_none), [has_none])
    checks = found_view(found(now=has_none), [])["self_test"]

    assert summary == "tested on 2026-01-02: starts, tools, idle, busy, seen, ends work"
    assert (True, "  subagents: this harness does not have the feature") in lines
    assert all(is_well for is_well, _ in lines)
    assert isinstance(checks, dict)
    assert checks["subagents"] == {"ok": True, "said": NONE, "advice": None}


def test_documentation_page_matches_the_stored_results() -> None:
    assert PAGE.read_text() == page_of(proven())
    assert {one.harness for one in proven()} == {"claude", "codex", "opencode", "gemini"}
