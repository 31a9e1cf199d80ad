"""Examples of the source document about scopes and targets: recipients and errors."""

import pytest
from tests.daemon.stage import Home, Shell, check_output, run_as_person
from tests.source.agents import hear_texts, meet, say, why_refused


@pytest.fixture(scope="module")
def pilo(shared_bus: Home) -> Shell:
    """An agent that writes to luna (no tag), api-luna and api-nova (tag api)."""
    *_, pilo = meet(shared_bus, "luna", "api-luna", "api-nova", "pilo")
    return pilo


# Message types


def test_message_without_mentions_goes_to_all_active_agents(bus: Home) -> None:
    luna, nova, kira, mila = meet(bus, "luna", "nova", "kira", "mila")
    mila.ok("leave")

    sent = say(luna, "@all", "--", "hello all")

    assert sorted(sent["delivered_to"]) == ["kira", "nova"]
    assert hear_texts(nova) == hear_texts(kira) == ["hello all"]
    assert bus.ok("show", str(sent["seq"]), "--json").json["scope"] == "broadcast"


def test_mention_in_the_text_sends_the_message_to_that_agent(bus: Home) -> None:
    luna, nova, kira = meet(bus, "luna", "nova", "kira")

    sent = say(luna, "hey @nova can you help?")

    assert sent["delivered_to"] == ["nova"]
    assert hear_texts(nova) == ["hey @nova can you help?"]
    assert hear_texts(kira) == []
    assert bus.ok("show", str(sent["seq"]), "--json").json["scope"] == "mentions"


def test_explicit_target_sends_the_message_to_that_agent(bus: Home) -> None:
    luna, nova, kira = meet(bus, "luna", "nova", "kira")

    sent = say(luna, "@nova", "--", "hello")

    assert sent["delivered_to"] == ["nova"]
    assert hear_texts(nova) == ["hello"]
    assert hear_texts(kira) == []
    assert bus.ok("show", str(sent["seq"]), "--json").json["scope"] == "mentions"


# Target matching


def test_luna_matches_agents_with_and_without_a_tag(pilo: Shell) -> None:
    sent = say(pilo, "@luna", "--", "hello")

    assert sent["delivered_to"] == ["luna", "api-luna"]


def test_api_luna_matches_exactly_that_full_name(pilo: Shell) -> None:
    sent = say(pilo, "@api-luna", "--", "hello")

    assert sent["delivered_to"] == ["api-luna"]


def test_api_with_a_hyphen_matches_all_with_the_tag_api(pilo: Shell) -> None:
    sent = say(pilo, "@api-", "--", "hello")

    assert sent["delivered_to"] == ["api-luna", "api-nova"]


def test_full_name_wins_over_a_base_name_in_the_text(pilo: Shell) -> None:
    sent = say(pilo, "can @api-luna look at this?")

    assert sent["delivered_to"] == ["api-luna"]


def test_base_name_is_enough_for_a_tagged_agent(pilo: Shell) -> None:
    sent = say(pilo, "@nova", "--", "hello")

    assert sent["delivered_to"] == ["api-nova"]


# Underscore blocking


def test_luna_does_not_match_luna_reviewer_1(bus: Home) -> None:
    luna, reviewer, pilo = meet(bus, "luna", "luna_reviewer_1", "pilo")

    sent = say(pilo, "@luna", "--", "for the parent")
    say(pilo, "@luna_reviewer_1", "--", "for the child")

    assert sent["delivered_to"] == ["luna"]
    assert hear_texts(luna) == ["for the parent"]
    assert hear_texts(reviewer) == ["for the child"]


def test_prefix_does_not_match_past_an_underscore(bus: Home) -> None:
    pilo, _ = meet(bus, "pilo", "luna_reviewer_1")

    refused = pilo.pal("send", "@luna", "--json", "--", "hello")

    assert why_refused(refused)[0] == "unknown_recipient"


# Cross-device matching


def test_luna_matches_the_local_and_the_remote_agent(bus: Home) -> None:
    luna, pilo = meet(bus, "luna", "pilo")
    check_output(run_as_person(bus, "join", "--remote", "luna:BOXE"))

    sent = say(pilo, "@luna", "--", "both of you")

    assert sent["delivered_to"] == ["luna", "luna:BOXE"]
    assert hear_texts(luna) == ["both of you"]


def test_luna_with_a_device_matches_only_the_remote_agent(bus: Home) -> None:
    luna, pilo = meet(bus, "luna", "pilo")
    check_output(run_as_person(bus, "join", "--remote", "luna:BOXE"))

    sent = say(pilo, "@luna:BOXE", "--", "over there")
    say(pilo, "@luna", "--", "and here")

    assert sent["delivered_to"] == ["luna:BOXE"]
    assert hear_texts(luna) == ["and here"]


# Scope validation


def test_every_unknown_target_is_named(pilo: Shell) -> None:
    refused = pilo.pal("send", "@vexo", "@luna", "@zutu", "--json", "--", "hello")

    code, sentence = why_refused(refused)
    assert code == "unknown_recipient"
    assert set(refused.error["details"]["unmatched"]) == {"@vexo", "@zutu"}
    assert "@vexo" in sentence
    assert "@zutu" in sentence
    assert "@luna" not in sentence


def test_every_unknown_mention_is_named(pilo: Shell) -> None:
    refused = pilo.pal("send", "@vexo and @luna, and @zutu too", "--json")

    assert why_refused(refused)[0] == "unknown_recipient"
    assert set(refused.error["details"]["unmatched"]) == {"@vexo", "@zutu"}


def test_one_unknown_target_stops_the_whole_message(bus: Home) -> None:
    luna, pilo = meet(bus, "luna", "pilo")

    refused = pilo.pal("send", "@luna", "@vexo", "--json", "--", "lost")
    say(pilo, "@luna", "--", "sent")

    assert why_refused(refused)[0] == "unknown_recipient"
    assert hear_texts(luna) == ["sent"]
    assert bus.texts() == ["sent"]


# System mention protection


@pytest.mark.parametrize(
    "words",
    [("@[pal-events]", "--", "hello"), ("hello @[pal-events]",), ("@luna", "hello @[pal-events]")],
    ids=["target", "mention", "mention beside a target"],
)
def test_system_sender_cannot_be_mentioned(pilo: Shell, words: tuple[str, ...]) -> None:
    before = pilo.home.texts()

    refused = pilo.pal("send", "--json", *words)

    assert "system senders cannot be addressed" in why_refused(refused)[1]
    assert pilo.home.texts() == before


def test_name_of_a_system_sender_after_two_dashes_is_text(bus: Home) -> None:
    luna, pilo = meet(bus, "luna", "pilo")

    sent = say(pilo, "@luna", "--", "what is @[pal-events]?")

    assert sent["delivered_to"] == ["luna"]
    assert hear_texts(luna) == ["what is @[pal-events]?"]
