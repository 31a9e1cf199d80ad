"""Adding to the settings of a user and removing it again restores them byte for byte."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.harness.json_edit import Dialect, parse_json
from palaver.harness.setup import Addition, merged_json, unmerged_json

RELAXED = Dialect(comments=True, trailing_commas=True)
HOOK = {"hooks": [{"type": "command", "command": "exec pal hook gemini AfterTool", "timeout": 10}]}
ADDED = (
    Addition(path=("hooks", "AfterTool"), value=HOOK),
    Addition(path=("mcpServers",), name="palaver", value={"command": "pal", "args": ["mcp"]}),
)

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    scalars | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
events = st.dictionaries(st.sampled_from(["AfterTool", "Other"]), st.lists(values, max_size=3), max_size=2)
documents = st.tuples(
    st.dictionaries(st.text(), values, max_size=3),
    st.fixed_dictionaries(
        {}, optional={"hooks": events, "mcpServers": st.dictionaries(st.text(max_size=3), values, max_size=2)}
    ),
).map(lambda two: {**two[0], **two[1]})
blanks = st.text(" \t\n", max_size=3)
comments = st.sampled_from(["", "// mine\n", "/* mine */", " /* a\n b */ "])


@st.composite
def written(draw: st.DrawFn, value: object, *, is_relaxed: bool) -> str:
    """Write a document in any valid form."""

    def gap() -> str:
        text = draw(blanks)
        return text + draw(comments) + draw(blanks) if is_relaxed else text

    def write(value: object) -> str:
        if not isinstance(value, dict | list) or (isinstance(value, dict | list) and draw(st.booleans())):
            return json.dumps(value, ensure_ascii=draw(st.booleans()))
        if isinstance(value, dict):
            parts = [
                f"{gap()}{json.dumps(key)}{gap()}:{gap()}{write(one)}{gap()}" for key, one in value.items()
            ]
        else:
            parts = [f"{gap()}{write(one)}{gap()}" for one in value]
        more = "," if parts and is_relaxed and draw(st.booleans()) else ""
        ends = "{}" if isinstance(value, dict) else "[]"
        return f"{ends[0]}{','.join(parts)}{more}{gap()}{ends[1]}"

    return draw(st.sampled_from(["", "\ufeff"])) + gap() + write(value) + gap()


plain_texts = documents.flatmap(lambda value: written(value, is_relaxed=False)) | documents.flatmap(
    lambda value: st.sampled_from([None, 1, 2, 4, "\t"]).map(lambda indent: json.dumps(value, indent=indent))
)
relaxed_texts = documents.flatmap(lambda value: written(value, is_relaxed=True))


def check_both_ways(text: str, dialect: Dialect, additions: Sequence[Addition] = ADDED) -> None:
    added = merged_json(text, additions, dialect)
    again = merged_json(added.text, additions, dialect)
    removed = unmerged_json(added.text, additions, added.made, dialect)

    before, after = parse_json(text, dialect).value, parse_json(added.text, dialect).value
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    assert HOOK in after["hooks"]["AfterTool"]
    assert after["mcpServers"]["palaver"] == ADDED[1].value
    assert [name for name in after if name in before] == list(before)
    assert {key: after[key] for key in before if key not in ("hooks", "mcpServers")} == {
        key: before[key] for key in before if key not in ("hooks", "mcpServers")
    }
    assert again.text == added.text
    assert removed.missing == ()
    assert removed.text == text


@given(plain_texts)
def test_addition_is_removed_without_a_trace(text: str) -> None:
    check_both_ways(text, Dialect())


@given(relaxed_texts)
def test_comments_and_trailing_commas_are_kept(text: str) -> None:
    check_both_ways(text, RELAXED)


@given(documents, st.dictionaries(st.text(min_size=8), values, min_size=1, max_size=2))
def test_later_changes_of_the_user_are_kept(before: dict[str, object], more: dict[str, object]) -> None:
    added = merged_json(json.dumps(before, indent=2), ADDED)
    changed = {**json.loads(added.text), **more}

    removed = unmerged_json(json.dumps(changed), ADDED, added.made)

    assert removed.text is not None
    assert json.loads(removed.text) == {**before, **more}


@pytest.mark.parametrize("text", ["", " \n", "\n\n"])
def test_document_created_by_us_is_removed(text: str) -> None:
    added = merged_json(text, ADDED)

    assert json.loads(added.text)["mcpServers"] == {"palaver": {"command": "pal", "args": ["mcp"]}}
    assert unmerged_json(added.text, ADDED, added.made).text == (text or None)


def test_comment_stays_on_its_line() -> None:
    text = '{\n  "mcpServers": {\n    "mine": {} // my own\n  }\n}\n'

    added = merged_json(text, ADDED[1:], RELAXED)

    assert '"mine": {}, // my own\n    "palaver": {\n' in added.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"plugin": [ // mine\n "ours", "theirs" ]}', '{"plugin": [ // mine\n "theirs" ]}'),
        ('{"plugin": ["theirs", // mine\n "ours"]}', '{"plugin": ["theirs" // mine\n]}'),
        ('{"plugin": [ // mine\n "ours"]}', '{"plugin": [ // mine\n]}'),
    ],
)
def test_settings_after_a_removed_entry_do_not_join_a_comment(text: str, expected: str) -> None:
    removed = unmerged_json(text, (Addition(path=("plugin",), value="ours"),), (), RELAXED)

    assert removed.text == expected


def test_our_entry_is_recognized_by_its_command() -> None:
    added = merged_json("{}", ADDED)
    theirs = {"type": "command", "command": "theirs"}
    document = json.loads(added.text)
    document["hooks"]["AfterTool"][0]["hooks"][0]["timeout"] = 99
    document["hooks"]["AfterTool"][0]["hooks"].append(theirs)

    removed = unmerged_json(json.dumps(document), ADDED, added.made)

    assert removed.text is not None
    assert json.loads(removed.text) == {"hooks": {"AfterTool": [{"hooks": [theirs]}]}}


def test_missing_entries_are_reported() -> None:
    removed = unmerged_json('{"hooks": {"AfterTool": []}}', ADDED)

    assert removed.missing == ("mcpServers.palaver", "hooks.AfterTool")
    assert removed.text == '{"hooks": {"AfterTool": []}}'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"hooks": []}', "hooks is not an object"),
        ('{"hooks": {"AfterTool": {}}}', "hooks.AfterTool is not a list"),
        ('{"mcpServers": null}', "mcpServers is not an object"),
        ("[]", "it is not an object"),
        ('{"mcpServers": {"palaver": {"command": "other"}}}', "mcpServers.palaver already exists"),
        ('{"a": 1,}', "line 1 is not valid JSON"),
        ('{"a": 1 // no\n}', "line 1 is not valid JSON"),
        ('{\n"a" 1}', "line 2 is not valid JSON"),
        ('{"a": 1} x', "line 1 is not valid JSON"),
        ('{"a": tru}', "line 1 is not valid JSON"),
        ('{"a": "x', "line 1 is not valid JSON"),
        ('{"a": 1 "b": 2}', "line 1 is not valid JSON"),
        ("{1: 2}", "line 1 is not valid JSON"),
        ("[" * 5000, "line 1 is not valid JSON"),
    ],
)
def test_unsuitable_document_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        merged_json(text, ADDED)


@pytest.mark.parametrize("text", ["", "\n", " \r\n", "\ufeff"])
def test_blank_file_contains_no_entry_of_ours(text: str) -> None:
    removed = unmerged_json(text, ADDED)

    assert removed.text == text
    assert removed.missing == ("mcpServers.palaver", "hooks.AfterTool")
