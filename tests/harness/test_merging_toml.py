"""Our table in a TOML file of a user: added and removed, whatever else was written in between."""

import tomllib
from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from palaver.harness.setup import Made, has_toml, merged_toml, unmerged_toml

LINES = ('command = "pal"', 'args = ["mcp"]')
TABLE = "mcp_servers.palaver"
BEGIN = "# Palaver begins: 'pal uninstall codex' removes this"
END = "# Palaver ends"
OURS = f"[{TABLE}]\n" + "\n".join(LINES) + "\n"
tomls = st.sampled_from(
    [
        "",
        "\n",
        "# mine\n",
        'model = "m" # why\n',
        'model = "m"',
        '[mcp_servers.other]\ncommand = "x"\n',
        '[mcp_servers]\nother = { command = "x" }\n\n\n',
        '[projects."/a b"]\r\ntrust_level = "trusted"\r\n',
        '[[list]]\na = """\n# Palaver ends here\n"""\n',
    ]
)


@given(st.lists(tomls, max_size=2).map("".join))
def test_table_is_removed_without_a_trace(text: str) -> None:
    before = _read(text)
    assume(before is not None)

    added = merged_toml(text, "codex", TABLE, LINES)

    found = tomllib.loads(added.text)
    assert found["mcp_servers"].pop("palaver") == {"command": "pal", "args": ["mcp"]}
    assert {**found, "mcp_servers": {}} == {**(before or {}), "mcp_servers": {}}
    assert added.text.startswith(text)
    assert unmerged_toml(added.text, "codex", TABLE, added.made).text == (text or None)


# Foreign tables as another program may write them. No table name repeats, in any order.
foreign = st.permutations(
    [
        '[projects."/x [mcp_servers.palaver]"]\ntrust_level = "trusted"\n',
        '\n# theirs\n[mcp_servers.other]\ncommand = "other"\nargs = [\n  "[mcp_servers.palaver]", # a\n]\n',
        '[mcp_servers.palaver2]\ncommand = "p"\n',
        "[mcp_servers.\"pal.aver\"]\ncommand = 'x'\n\n\n",
        '[[skills.config]]\ntext = """\n[mcp_servers.palaver]\n# Palaver ends\n\\"""" \n',
        "[tui]\nweight = nan # x\nmore = '''\n[mcp_servers.palaver]'''''\n",
        '[hooks.state."/h/hooks.json:stop:0:0"]\ntrusted_hash = "sha256:1"\n',
        "[when]\nday = 1979-05-27\n# Palaver ends, they say\n",
    ]
).flatmap(lambda order: st.integers(0, len(order)).map(lambda count: order[:count]))
below = st.lists(
    st.sampled_from(
        [
            f'\n[{TABLE}.env]\nA = "1"\n',
            f'[{TABLE}.tools.send_message]\napproval_mode = "approve"\n',
            "\n[ mcp_servers . 'palaver' . y ] # z\n",
            f"[[{TABLE}.list]]\na = 1\n[[{TABLE}.list]]\na = 2\n",
        ]
    ),
    unique=True,
)
inside = st.sampled_from(
    ["", "startup_timeout_sec = 30\n", "# a note\nenabled = true\n", 'x = """\n[a]\n"""\n']
)
begins = st.sampled_from(["", f"{BEGIN}\n", "# Palaver: 'pal uninstall codex' removes this table\n"])
ends = st.sampled_from(["", f"{END}\n", f"{END}"])


@given(foreign, st.data(), below, inside, begins, ends, st.booleans(), st.sampled_from(["", "\n", "\n\n"]))
def test_foreign_tables_are_kept_anywhere_and_ours_is_removed(
    tables: Sequence[str],
    data: st.DataObject,
    more: Sequence[str],
    settings: str,
    begin: str,
    end: str,
    is_crlf: bool,
    gap: str,
) -> None:
    first = data.draw(st.integers(0, len(tables)))
    second = data.draw(st.integers(first, len(tables)))
    ours = begin + OURS + settings + "".join(more)
    text = "".join((*tables[:first], gap, ours, *tables[first:second], end))
    text += ("" if text.endswith("\n") else "\n") + "".join(tables[second:])
    text = text.replace("\n", "\r\n") if is_crlf else text
    kept = "".join(tables).replace("\n", "\r\n") if is_crlf else "".join(tables)
    made = (Made(path=(TABLE,), inside=gap.replace("\n", "\r\n") if is_crlf else gap),)

    removed = unmerged_toml(text, "codex", TABLE, made)

    left = removed.text or ""
    assert removed.missing == ()
    assert _shown(_read(left)) == _shown(_read(kept))
    assert "".join(left.split()) == "".join(kept.split())
    assert BEGIN not in left
    assert unmerged_toml(left, "codex", TABLE, made).text == (left or "")


@pytest.mark.parametrize(
    ("text", "is_there"),
    [
        (f"{OURS}[b]\n", True),
        ('mcp_servers = { palaver = { args = ["mcp"], command = "pal" } }', True),
        (f'{OURS}[{TABLE}.tools.send_message]\napproval_mode = "approve"\n', True),
        (f'[{TABLE}]\ncommand = "pal"\n', False),
        (f'[{TABLE}]\ncommand = "pal"\nargs = []\n', False),
        ("", False),
        ("mcp_servers = 1", False),
    ],
)
def test_table_is_found_when_it_contains_all_our_settings(text: str, *, is_there: bool) -> None:
    assert has_toml(text, TABLE, LINES) is is_there


def test_later_table_is_kept() -> None:
    added = merged_toml("a = 1\n", "codex", TABLE, LINES)

    removed = unmerged_toml(f"{added.text}\n[b]\nc = 2\n", "codex", TABLE, added.made)

    assert removed.text == "a = 1\n\n[b]\nc = 2\n"


def test_later_table_stays_on_its_own_line() -> None:
    added = merged_toml("a = 1", "codex", TABLE, LINES)

    removed = unmerged_toml(f"{added.text}[b]\nc = 2\n", "codex", TABLE, added.made)

    assert removed.text == "a = 1\n[b]\nc = 2\n"


def test_tables_inside_the_block_of_an_earlier_version_are_kept() -> None:
    made = (Made(path=(TABLE,), inside="\n"),)
    theirs = (
        '\n[projects]\n\n[projects."/x"]\ntrust_level = "trusted"\n\n[mcp_servers.other]\ncommand = "o"\n'
    )

    removed = unmerged_toml(f'model = "x"\n\n{BEGIN}\n{OURS}{theirs}{END}\n', "codex", TABLE, made)

    assert removed.text == f'model = "x"\n{theirs}'


def test_block_of_an_earlier_version_is_removed_without_a_trace() -> None:
    made = (Made(path=(TABLE,), inside="\n"),)

    removed = unmerged_toml(f'model = "x"\n\n{BEGIN}\n{OURS}{END}\n', "codex", TABLE, made)

    assert removed.text == 'model = "x"\n'


def test_table_without_its_comment_is_removed() -> None:
    added = merged_toml('model = "x"\n', "codex", TABLE, LINES)
    rewritten = f'model = "x"\n\n[mcp_servers.docs]\ncommand = "d"\n\n{OURS}'

    removed = unmerged_toml(rewritten, "codex", TABLE, added.made)

    assert removed.text == 'model = "x"\n\n[mcp_servers.docs]\ncommand = "d"\n'
    assert removed.missing == ()


def test_comment_after_the_last_setting_is_kept() -> None:
    removed = unmerged_toml(f"{OURS}\n# about b\n[b]\n", "codex", TABLE)

    assert removed.text == "\n# about b\n[b]\n"


def test_parts_of_an_array_of_tables_keep_their_places() -> None:
    text = '[[list]]\nname = "a"\n[b]\nc = 1\n[[list]]\nname = "d"\n'
    added = merged_toml(text, "codex", TABLE, LINES)

    removed = unmerged_toml(f"{added.text}[[list]]\n", "codex", TABLE, added.made)

    assert removed.text == f"{text}[[list]]\n"


@pytest.mark.parametrize(
    "text",
    [
        'mcp_servers.palaver.command = "pal"\n',
        'mcp_servers = { palaver = { command = "pal" } }\n',
        '[mcp_servers]\npalaver = { command = "pal" }\n',
        '[mcp_servers]\npalaver.command = "pal"\n',
        f'{OURS}[mcp_servers.palaver]\ncommand = "twice"\n',
        "a = ",
        "a = " + "[" * 5000,
        ".".join("a" * 5000) + " = 1",
    ],
)
def test_table_that_cannot_be_cut_out_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"remove it yourself|not valid TOML|nested too deeply"):
        unmerged_toml(text, "codex", TABLE)


@pytest.mark.parametrize("text", ["a = 1\n", "", " \r\n", f"{END}\n"])
def test_missing_table_is_reported(text: str) -> None:
    assert unmerged_toml(text, "codex", TABLE).missing == (TABLE,)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = ", "it is not valid TOML"),
        ("a = " + "[" * 5000, "it is nested too deeply"),
        (".".join("a" * 5000) + " = 1", "it is nested too deeply"),
        (
            '[mcp_servers.palaver]\ncommand = "x"\n',
            r"palaver already exists and was not written by Palaver; remove or rename it",
        ),
        (
            'mcp_servers = { palaver = { command = "x" } }\n',
            r"palaver already exists and was not written by Palaver",
        ),
        ("mcp_servers = {}\n", r"written in one line.*; write it as \[mcp_servers\.NAME\]"),
        ('mcp_servers = { other = { command = "x" } }\n', r"written in one line"),
        ('mcp_servers = "x"\n', "mcp_servers is not a table"),
    ],
)
def test_unsuitable_toml_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        merged_toml(text, "codex", TABLE, LINES)


def _read(text: str) -> dict[str, object] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _shown(value: object) -> object:
    """Return a comparable form: NaN does not equal itself, but its text does."""
    return {name: _shown(one) for name, one in value.items()} if isinstance(value, dict) else repr(value)
