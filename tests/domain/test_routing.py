from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.domain import routing
from palaver.domain.routing import Directory, Resolved, is_recipient, no_rooms, resolve, resolve_exactly
from palaver.errors import AmbiguousRecipient, BadRequest, UnknownRecipient
from palaver.protocol.agents import Agent
from palaver.protocol.envelope import Draft, matches_recipient

_ROLES = {"vigo": "operator", "dira": "observer"}


def _agent(name: str) -> Agent:
    text, _, device = name.partition(":")
    tag, _, base = text.rpartition("-")
    return Agent(name=name, base=base, tag=tag, role=_ROLES.get(name, "worker"), device=device)


class _Everyone:
    """A directory, and the presence of its agents."""

    def __init__(self, *names: str, absent: Sequence[str] = ()) -> None:
        self.directory = Directory(_agent(name) for name in names)
        self._absent = absent

    def is_present(self, name: str) -> bool:
        return name not in self._absent

    def resolve(self, *tokens: str, sender: str = "mila", mentions: Sequence[str] = ()) -> Resolved:
        return resolve(tokens, self.directory, sender=sender, is_present=self.is_present, mentions=mentions)


_LUNAS = _Everyone("luna", "api-luna", "luna:BOXE", "api-nova", "luna_reviewer_1")


@pytest.mark.parametrize(
    ("token", "recipients"),
    [
        ("@luna", ("luna", "api-luna", "luna:BOXE")),
        ("LUNA", ("luna", "api-luna", "luna:BOXE")),
        ("@api-luna", ("api-luna",)),
        ("@luna:BOXE", ("luna:BOXE",)),
        ("@luna:boxe", ("luna:BOXE",)),
        ("@api-", ("api-luna", "api-nova")),
        ("@api-*", ("api-luna", "api-nova")),
        ("@no", ("api-nova",)),
        ("@lu", ("luna", "api-luna", "luna:BOXE")),
        ("@luna_reviewer_1", ("luna_reviewer_1",)),
        ("@luna_reviewer_", ("luna_reviewer_1",)),
        ("@luna_rev", ("luna_reviewer_1",)),
        ("@Luna_r", ("luna_reviewer_1",)),
        ("@all", ("luna", "api-luna", "luna:BOXE", "api-nova", "luna_reviewer_1")),
        ("@human", ("human",)),
    ],
)
def test_token_reaches_the_agents_it_names(token: str, recipients: tuple[str, ...]) -> None:
    assert _LUNAS.resolve(token).recipients == recipients


def test_name_with_a_device_also_finds_tagged_agents_there() -> None:
    there = _Everyone("api-luna:BOXE", "web-luna:BOXE", "luna")

    assert there.resolve("luna:BOXE").recipients == ("api-luna:BOXE", "web-luna:BOXE")
    assert there.resolve("api-luna:BOXE").recipients == ("api-luna:BOXE",)
    with pytest.raises(UnknownRecipient):
        there.resolve("api-luna")


def test_device_of_this_home_may_be_named() -> None:
    directory = Directory([Agent(name="api-luna", base="luna", tag="api", device="BOXE")])

    resolved = resolve(["api-luna:BOXE"], directory, sender="mila", is_present=lambda _: True)

    assert resolved.recipients == ("api-luna",)


@pytest.mark.parametrize(
    ("device", "names"), [("HERE", ("luna", "api-luna")), ("BOXE", ("luna:BOXE", "api-luna:BOXE"))]
)
def test_every_device_is_read_in_the_same_way(device: str, names: tuple[str, str]) -> None:
    luna, api_luna = names
    directory = Directory(
        [
            Agent(name="luna", base="luna", device="HERE"),
            Agent(name="api-luna", base="luna", tag="api", device="HERE"),
            Agent(name="luna:BOXE", base="luna", device="BOXE", remote=True),
            Agent(name="api-luna:BOXE", base="luna", tag="api", device="BOXE", remote=True),
        ]
    )

    def found(token: str, sender: str = "mila") -> tuple[str, ...]:
        return resolve([token], directory, sender=sender, is_present=lambda _: True).recipients

    assert found(f"@luna:{device}") == found(f"luna:{device.lower()}") == (luna,)
    assert found(f"@api-luna:{device}") == (api_luna,)
    assert found(f"@luna:{device}", sender=luna) == (luna,)
    with pytest.raises(UnknownRecipient):
        found(f"@nova:{device}")


def test_word_is_a_recipient_if_it_names_an_agent_or_a_group() -> None:
    directory = _LUNAS.directory

    found = [
        word for word in ("luna", "@LUNA", "lu", "api-", "all", "human") if is_recipient(directory, word)
    ]
    others = [
        word
        for word in ("", "hello", "agent/luna", "luna is", "#luna", "x" * 999)
        if is_recipient(directory, word)
    ]

    assert found == ["luna", "@LUNA", "lu", "api-", "all", "human"]
    assert others == []


def test_beginning_of_several_names_is_a_recipient() -> None:
    assert is_recipient(_Everyone("luna", "lumi").directory, "lu")


@pytest.mark.parametrize(
    "token", ["@luna_reviewer", "@luna_x", "@api-lu", "api-luna:XXXX", "@web-", "nobody", "#x", "room"]
)
def test_unused_name_or_tag_is_unknown(token: str) -> None:
    with pytest.raises(UnknownRecipient) as caught:
        _LUNAS.resolve(token)

    assert list(caught.value.unmatched) == [token]


def test_every_unknown_name_is_reported_with_its_nearest() -> None:
    with pytest.raises(UnknownRecipient) as caught:
        _LUNAS.resolve("@lunna", "api-nova", "zzz", "@l")

    assert caught.value.unmatched == {"@lunna": ["luna", "api-luna", "luna:BOXE"], "zzz": []}


def test_prefix_of_several_base_names_is_ambiguous() -> None:
    there = _Everyone("luna", "lumo", "api-luna", "lux_1", "nova", "nola")

    with pytest.raises(AmbiguousRecipient) as caught:
        there.resolve("nova", "@lu", "@no")

    assert (caught.value.address, caught.value.candidates) == ("@lu", ["lumo", "luna"])


def test_complete_base_name_is_not_treated_as_a_prefix() -> None:
    assert _Everyone("luna", "lunar").resolve("@luna").recipients == ("luna",)


def test_repeated_name_finds_agents_that_came_or_left_meanwhile() -> None:
    there = _Everyone("luna", "nova")
    found = [there.resolve("@lu").recipients]

    found.append(there.resolve("@lu").recipients)
    there.directory.put(_agent("api-luna"))
    found.append(there.resolve("@lu").recipients)
    there.directory.drop("luna")
    found.append(there.resolve("@lu").recipients)

    assert found == [("luna",), ("luna",), ("luna", "api-luna"), ("api-luna",)]


def test_repeated_group_and_repeated_mention_are_resolved_again() -> None:
    absent: list[str] = []
    there = _Everyone("api-luna", "api-nova", absent=absent)
    before = there.resolve("@api-luna", "@api-").recipients, there.resolve(mentions=["@api-luna"]).to

    absent.append("api-nova")
    after = there.resolve("@api-luna", "@api-").recipients, there.resolve().recipients

    assert before == (("api-luna", "api-nova"), ("@api-luna",))
    assert after == (("api-luna",), ("api-luna",))


def test_number_of_remembered_names_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "_LIMIT_NAMED", 2)
    there = _Everyone("luna", "nova", "kira")

    found = [there.resolve(f"@{name}").recipients for name in ("luna", "nova", "kira", "luna")]

    assert found == [("luna",), ("nova",), ("kira",), ("luna",)]
    assert len(there.directory.named) == 2


def test_prefix_in_a_text_is_unknown() -> None:
    assert _LUNAS.resolve(mentions=["@luna"]).recipients == ("luna", "api-luna", "luna:BOXE")
    with pytest.raises(UnknownRecipient):
        _LUNAS.resolve(mentions=["@lu"])


def test_invalid_address_is_a_bad_request() -> None:
    with pytest.raises(BadRequest):
        _LUNAS.resolve("two words")


def test_without_tokens_a_broadcast_reaches_all_present_others() -> None:
    there = _Everyone("luna", "nova", "kira", absent=["kira"])

    assert there.resolve(sender="luna") == Resolved(recipients=("nova",), scope="broadcast")


def test_groups_reach_present_agents_and_names_also_absent_ones() -> None:
    there = _Everyone("luna", "vigo", "dira", "api-kira", absent=["luna", "dira", "api-kira"])

    assert there.resolve("luna").recipients == ("luna",)
    assert there.resolve("@operators").recipients == ("vigo",)
    resolved = there.resolve("@observers", "@api-", "@all", "@x-*", "@workers")
    assert resolved.recipients == ("vigo",)
    assert resolved.empty_groups == ("@observers", "@api-", "@x-*", "@workers")
    assert resolved.scope == "broadcast"


def test_sender_is_included_only_by_its_own_full_name() -> None:
    assert _LUNAS.resolve("@luna", sender="luna").recipients == ("api-luna", "luna:BOXE")
    assert _LUNAS.resolve("@api-luna", sender="api-luna").recipients == ("api-luna",)
    assert _LUNAS.resolve("@api-", sender="api-luna").recipients == ("api-nova",)
    assert _LUNAS.resolve("@all", sender="api-nova").recipients == (
        "luna",
        "api-luna",
        "luna:BOXE",
        "luna_reviewer_1",
    )
    assert _Everyone("luna", "nova").resolve("luna", sender="luna").recipients == ("luna",)
    assert _LUNAS.resolve("@human", sender="human").recipients == ("human",)


def test_base_name_of_only_the_sender_reaches_no_agent() -> None:
    resolved = _Everyone("api-luna").resolve("luna", "@lu", sender="api-luna")

    assert (resolved.recipients, resolved.empty_groups) == ((), ("luna", "@lu"))


def test_unknown_token_is_reported_as_written() -> None:
    with pytest.raises(UnknownRecipient) as caught:
        _LUNAS.resolve("@LUNNA", "@APO-")

    assert list(caught.value.unmatched) == ["@LUNNA", "@APO-"]


def test_several_tokens_are_a_union_in_their_order() -> None:
    resolved = _LUNAS.resolve("@api-", "LUNA", "@luna", "@Human", mentions=["@api-nova"])

    assert resolved.to == ("@api-", "luna", "@luna", "@human", "@api-nova")
    assert resolved.recipients == ("api-luna", "api-nova", "luna", "luna:BOXE", "human")
    assert resolved.scope == "mentions"


def test_room_reaches_its_members_except_the_sender() -> None:
    rooms = {None: ["luna", "mila"], "ops": ["mila"]}
    directory = Directory()

    resolved = resolve(["room", "#ops"], directory, sender="mila", is_present=bool, rooms=rooms.get)

    assert resolved.recipients == ("luna",)
    assert resolved.empty_groups == ("#ops",)
    with pytest.raises(UnknownRecipient):
        resolve(["#dev"], directory, sender="mila", is_present=bool, rooms=rooms.get)


_PROJECT = _Everyone("researcher", "writer", "impl", "impl_acme", absent=["writer"])


@pytest.mark.parametrize(
    ("sender", "path", "recipients"),
    [
        ("writer", "agent/researcher", ("researcher",)),
        ("mila", "agent/writer", ("writer",)),
        ("mila", "//agent//Researcher/", ("researcher",)),
        ("researcher", "agent/**", ("impl", "impl_acme")),
        ("impl", "agent/impl/**", ("impl_acme",)),
        ("impl", "agent/impl", ("impl",)),
        ("impl_acme", "agent/impl/acme", ("impl_acme",)),
        ("mila", "agent/impl/*", ("impl_acme",)),
        ("writer", "agent/ghost", ()),
    ],
)
def test_path_reaches_the_agents_that_match_it(sender: str, path: str, recipients: tuple[str, ...]) -> None:
    resolved = _PROJECT.resolve(path, sender=sender)

    assert resolved.recipients == recipients
    assert resolved.scope == "path"
    assert resolved.dead == (() if recipients else resolved.paths)


def test_broadcast_path_without_other_agents_is_dead() -> None:
    resolved = _Everyone("solo").resolve("agent/**", sender="solo")

    assert (resolved.recipients, resolved.dead) == ((), ("agent/**",))


@pytest.mark.parametrize(("path", "dead"), [("irc/local/#dev", ()), ("irc/other/#dev", ("irc/other/#dev",))])
def test_channel_of_the_irc_door_without_a_subscriber_is_not_dead(path: str, dead: tuple[str, ...]) -> None:
    resolved = _Everyone("luna").resolve(path, sender="luna")

    assert (resolved.recipients, resolved.dead, resolved.paths) == ((), dead, (path,))


def test_foreign_path_also_reaches_a_subscribed_sender() -> None:
    directory = Directory([_agent("luna"), _agent("nova")])
    for name in ("luna", "nova"):
        directory.subscribe(name, "slack/t/#g")

    resolved = resolve(
        ["slack/t/#g", "slack/other", "luna"],
        directory,
        sender="luna",
        is_present=lambda _: False,
    )

    assert resolved.recipients == ("luna", "nova")
    assert (resolved.paths, resolved.dead) == (("slack/t/#g", "slack/other"), ("slack/other",))
    assert resolved.scope == "mentions"


def test_session_comes_first_and_adds_its_agent_as_handled() -> None:
    directory = Directory([_agent("luna"), _agent("nova")])
    directory.subscribe("luna+mon", "slack/**")
    directory.subscribe("luna+all", "slack/t/*")
    directory.subscribe("nova", "slack/t/#g")

    resolved = _absent(directory, "slack/t/#g", sender="script")

    assert resolved.recipients == ("luna+all", "luna+mon", "luna", "nova")
    assert resolved.handled == {"luna": ("all", "mon")}


def test_agent_that_the_sender_names_too_has_an_ordinary_copy() -> None:
    directory = Directory([_agent("luna")])
    directory.subscribe("luna+mon", "slack/**")

    resolved = resolve(["@luna", "slack/t"], directory, sender="script", is_present=lambda _: False)

    assert (resolved.recipients, resolved.handled) == (("luna", "luna+mon"), {})


def test_broadcast_path_excludes_the_sender_and_its_sessions() -> None:
    directory = Directory([_agent("luna"), _agent("nova")])
    directory.subscribe("luna+mon", "agent/**")
    directory.subscribe("luna", "agent/**")

    assert _absent(directory, "agent/nova", sender="luna").recipients == ("nova",)
    assert _absent(directory, "agent/luna", sender="luna").recipients == ("luna+mon", "luna")
    assert _absent(directory, "agent/LUNA", sender="luna").recipients == ("luna+mon", "luna")
    assert _absent(directory, "agent/nova", sender="nova").recipients == ("luna+mon", "luna", "nova")


def test_wildcard_reaches_absent_subscribers_but_only_present_own_paths() -> None:
    directory = Directory([_agent("luna"), _agent("nova"), _agent("kira")])
    directory.subscribe("luna", "agent/all/now")
    directory.subscribe("nova+mon", "agent/all/**")

    assert _absent(directory, "agent/**", sender="script").recipients == ("nova+mon", "luna", "nova")


def test_subscription_ends_when_it_is_removed() -> None:
    directory = Directory([_agent("luna")])
    directory.subscribe("luna", "slack/**")
    directory.unsubscribe("luna", "slack/**")
    directory.unsubscribe("luna", "never/was")

    assert _absent(directory, "slack/t", sender="script").dead == ("slack/t",)


def _absent(directory: Directory, path: str, *, sender: str) -> Resolved:
    return resolve([path], directory, sender=sender, is_present=lambda _: False)


def test_there_are_no_rooms_by_default() -> None:
    assert no_rooms("x") is None


names = st.sampled_from(["luna", "api-luna", "luna:BOXE", "nova", "api-nova", "kira_1", "vigo"])
tokens = st.sampled_from(
    [
        "luna",
        "@nova",
        "@api-",
        "@all",
        "@workers",
        "@api-*",
        "@human",
        "agent/**",
        "agent/luna",
        "@ki",
        "lu",
        "vigo",
    ]
)


@given(st.sets(names), st.sets(names), st.lists(tokens), names)
def test_recipients_are_unique_and_independent_of_token_order(
    known: set[str], present: set[str], written: list[str], sender: str
) -> None:
    directory = Directory(_agent(name) for name in sorted(known))

    def outcome(order: list[str]) -> frozenset[str] | str:
        try:
            resolved = resolve(order, directory, sender=sender, is_present=present.__contains__)
        except (UnknownRecipient, AmbiguousRecipient) as error:
            return error.code
        assert len(set(resolved.recipients)) == len(resolved.recipients)
        assert set(resolved.recipients) <= known | {"human"}
        return frozenset(resolved.recipients)

    assert outcome(written) == outcome(written[::-1])


@given(st.sets(names, min_size=1), names)
def test_full_name_with_a_tag_or_device_reaches_only_that_agent(known: set[str], sender: str) -> None:
    directory = Directory(_agent(name) for name in sorted(known))

    for name in known:
        if "-" in name or ":" in name:
            assert resolve([name], directory, sender=sender, is_present=bool).recipients == (name,)


_CREW = _Everyone("luna", "claude-1", "claude-x", "vigo", "dira", absent=["claude-x"])
_EXACT = st.sampled_from(
    ["@all", "@workers", "@operators", "@observers", "@claude-*", "luna", "vigo", "human"]
)


@given(st.lists(_EXACT, max_size=4))
def test_envelope_reaches_present_agents_that_the_wire_rules_select(to: list[str]) -> None:
    everyone = _Everyone("luna", "claude-1", "claude-x", "vigo", "dira")
    envelope = Draft(type="x", id="e1", sender="mila", to=tuple(to))

    found = resolve_exactly(to, everyone.directory, sender="mila", is_present=everyone.is_present)

    names = [*everyone.directory.all()]
    meant = {agent.name for agent in names if matches_recipient(envelope, agent.name, agent.role)}
    assert set(found.recipients) - {"human"} == meant
    assert found.to == tuple(to)


def test_envelope_group_reaches_present_agents_and_a_name_absent_ones() -> None:
    def names(*to: str) -> tuple[str, ...]:
        return resolve_exactly(to, _CREW.directory, sender="luna", is_present=_CREW.is_present).recipients

    assert names() == ("claude-1", "vigo", "dira")
    assert names("@claude-*") == ("claude-1",)
    assert names("claude-x", "luna") == ("claude-x", "luna")


def test_group_of_an_envelope_without_members_is_reported() -> None:
    nobody = _Everyone("luna")

    found = resolve_exactly(["@operators"], nobody.directory, sender="luna", is_present=nobody.is_present)
    broadcast = resolve_exactly([], nobody.directory, sender="luna", is_present=nobody.is_present)

    assert (found.recipients, found.empty_groups) == ((), ("@operators",))
    assert (broadcast.recipients, broadcast.empty_groups) == ((), ())


def test_tokens_that_match_no_agent_are_refused_together() -> None:
    tokens = ["@worker", "@luna", "@ALL", "@*", "Luna", "", "a b", "lun"]

    with pytest.raises(UnknownRecipient) as caught:
        resolve_exactly([*tokens, "luna"], _CREW.directory, sender="x", is_present=_CREW.is_present)

    near = caught.value.unmatched
    assert list(near) == tokens
    assert (near["lun"], near["@luna"], near["a b"]) == (["luna"], ["luna"], [])
    assert (near["@worker"], near["@ALL"]) == (["@workers"], ["@all"])


@pytest.mark.parametrize("is_exact", [False, True])
def test_number_of_looked_up_unknown_tokens_is_limited(*, is_exact: bool) -> None:
    tokens = [f"@lun{index}" for index in range(16_000)]
    crew = _Everyone(*(f"lun{letter}" for letter in "abc"))

    def find() -> Resolved:
        if is_exact:
            return resolve_exactly(tokens, crew.directory, sender="x", is_present=crew.is_present)
        return crew.resolve(mentions=tokens)

    with pytest.raises(UnknownRecipient) as caught:
        find()

    error = caught.value
    assert list(error.unmatched) == tokens[:100]
    assert [bool(near) for near in error.unmatched.values()] == [True] * 20 + [False] * 80
    assert error.unchecked == 15_900
    assert "@lun99 (15900 more not checked); nothing was sent" in str(error)


class _CountingDirectory(Directory):
    """Counts the searches for similar names."""

    searches = 0

    def nearest(self, name: str, n: int = 3) -> list[str]:
        self.searches += 1
        return super().nearest(name, n)


def test_repeated_unknown_token_is_looked_up_once() -> None:
    directory = _CountingDirectory([Agent(name="luna", base="luna")])

    with pytest.raises(UnknownRecipient):
        resolve_exactly(["@lunna"] * 100, directory, sender="x", is_present=bool)

    assert directory.searches == 1
