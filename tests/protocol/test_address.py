import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import BadRequest, RequestError
from palaver.protocol.address import (
    Address,
    Everyone,
    Glob,
    Human,
    Named,
    Path,
    RoleGroup,
    RoomAddress,
    TagGroup,
    check_path,
    find_mentions,
    find_named,
    format_address,
    parse_address,
    parse_tag,
)
from palaver.protocol.agents import RESERVED, ROLES

_words = {*RESERVED} - {"script", "claude", "codex", "gemini", "opencode"}
names = st.from_regex(r"([a-z][a-z0-9_-]{0,5}-)?[a-z0-9][a-z0-9_]{0,5}(:[A-Z0-9]{1,4})?", fullmatch=True)
addresses: st.SearchStrategy[Address] = st.one_of(
    st.builds(Named, name=names.filter(lambda name: name not in _words), explicit=st.booleans()),
    st.builds(TagGroup, tag=st.from_regex(r"[a-z][a-z0-9_-]*", fullmatch=True)),
    st.builds(RoleGroup, role=st.sampled_from(ROLES)),
    st.just(Everyone()),
    st.builds(Glob, prefix=st.from_regex(r"[a-z0-9_-]*-", fullmatch=True)),
    st.just(Human()),
    st.builds(RoomAddress, name=st.none() | st.from_regex(r"[a-z0-9._-]+", fullmatch=True)),
    st.builds(Path, path=st.text("aA*/:#@ ", max_size=20).map(lambda path: check_path(f"/x{path}"))),
)


@given(addresses)
def test_address_survives_formatting_and_parsing(address: Address) -> None:
    assert parse_address(format_address(address)) == address


@given(addresses.filter(lambda address: not isinstance(address, Path)))
def test_case_does_not_matter_in_an_address(address: Address) -> None:
    assert parse_address(format_address(address).upper()) == address


@given(st.from_regex(r"[a-z][a-z0-9_-]*", fullmatch=True).filter(lambda tag: not tag.endswith("-")))
def test_tag_is_found_in_each_of_its_spellings(tag: str) -> None:
    group = format_address(TagGroup(tag=tag))

    assert [parse_tag(text) for text in (tag, group, group.upper())] == [tag, tag, tag]


@given(st.text())
def test_parsed_address_has_one_spelling(token: str) -> None:
    try:
        address = parse_address(token)
    except RequestError:
        return

    assert parse_address(format_address(address)) == address


@pytest.mark.parametrize(
    ("token", "address"),
    [
        ("@luna", Named(name="luna", explicit=True)),
        ("API-Luna", Named(name="api-luna")),
        ("@luna:boxe", Named(name="luna:BOXE", explicit=True)),
        ("codex-7", Named(name="codex-7")),
        ("@7", Named(name="7", explicit=True)),
        ("claude-myrepo-a1b2c3d4", Named(name="claude-myrepo-a1b2c3d4")),
        ("@api-", TagGroup(tag="api")),
        ("@Workers", RoleGroup(role="worker")),
        ("@worker", RoleGroup(role="worker")),
        ("observers", RoleGroup(role="observer")),
        ("@all", Everyone()),
        ("@claude-*", Glob(prefix="claude-")),
        ("@-*", Glob(prefix="-")),
        ("human", Human()),
        ("room", RoomAddress()),
        ("#General", RoomAddress(name="general")),
        ("#größe", RoomAddress(name="größe")),
        ("/agent//Luna/", Path(path="agent/luna")),
        ("slack/Team/#x", Path(path="slack/Team/#x")),
    ],
)
def test_token_is_parsed_as_the_table_says(token: str, address: Address) -> None:
    assert parse_address(token) == address


@pytest.mark.parametrize(
    "token",
    [
        "",
        "@",
        "lu na",
        "@@luna",
        "@c*",
        "*",
        "-",
        "@7-",
        "#",
        "# x",
        "luna:",
        "lüna",
        "LÜNA",
        "luna\n",
        "a:b:c",
    ],
)
def test_invalid_address_is_refused(token: str) -> None:
    with pytest.raises(BadRequest, match="cannot be an address"):
        parse_address(token)


@pytest.mark.parametrize("token", ["[pal-events]", "@[pal-events]", "@[PAL-x", "system"])
def test_system_senders_cannot_be_addressed(token: str) -> None:
    with pytest.raises(BadRequest, match="system senders cannot be addressed"):
        parse_address(token)


@pytest.mark.parametrize(
    ("text", "mentions"),
    [
        ("no mention", []),
        ("@luna look", ["@luna"]),
        ("hey @nova, and @api-luna!", ["@nova", "@api-luna"]),
        ("(@luna) \"@nova\" '@kira's", ["@luna", "@nova", "@kira"]),
        ("@luna: look, @luna:BOXE: look", ["@luna", "@luna:BOXE"]),
        ("@luna:look", ["@luna"]),
        ("@luna. @luna again", ["@luna"]),
        ("all of @api- please, @workers", ["@api-", "@workers"]),
        ("mail x@luna.org or a.b+c-@luna", []),
        ("see slack/team/@joe and @types/node", []),
        ("@claude-* stop @all", ["@all"]),
        ("@luna:BOXE/x", []),
        ("@ luna", []),
        ("@lunä and @7pm", ["@lunä", "@7pm"]),
        ("line\n@luna\tend", ["@luna"]),
        ("@codex-7 @luna_reviewer_1", ["@codex-7", "@luna_reviewer_1"]),
    ],
)
def test_every_name_after_an_at_sign_is_a_mention(text: str, mentions: list[str]) -> None:
    assert find_mentions(text) == mentions


@given(
    st.lists(names.filter(lambda name: name[0].isalpha()), unique=True),
    st.sampled_from([" ", ", ", "\n", "; "]),
)
def test_names_written_into_a_text_are_found_again(written: list[str], between: str) -> None:
    tokens = [f"@{name}" for name in written]

    assert find_mentions(between.join(tokens)) == tokens


@given(st.text("@a-:/*.B ", max_size=30))
def test_mention_is_never_a_path_or_a_glob(text: str) -> None:
    for mention in find_mentions(text):
        assert mention in text
        assert not isinstance(parse_address(mention), Path | Glob)


def test_text_that_mentions_a_system_sender_is_refused() -> None:
    with pytest.raises(BadRequest, match="system senders"):
        find_mentions("thanks @[pal-events]")


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("luna: hello", ["@luna"]),
        ("luna, hello", ["@luna"]),
        ("@luna: hello @nova, and @luna", ["@luna", "@nova"]),
        ("api-luna:BOXE: hello", ["@api-luna:BOXE"]),
        ("luna:", ["@luna"]),
        ("luna:hello", []),
        ("hello luna: x", []),
        ("a@luna.example", []),
        ("http://x", []),
        ("", []),
    ],
)
def test_line_of_a_chat_names_agents_at_its_start_and_with_an_at_sign(line: str, named: list[str]) -> None:
    assert find_named(line) == named
