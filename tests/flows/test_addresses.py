"""Recipients of a message: every form of address, through every door."""

import asyncio

import pytest
from tests.flows.behaviours import behaviour
from tests.flows.door import Door, Refused, Seat
from tests.flows.door_cli import CliSeat

NAMES = ("luna", "api-luna", "api-nova", "luna_reviewer_1", "codex-7")

FORMS = {
    "@api-luna": ("api-luna",),
    "api-luna": ("api-luna",),
    "@luna": ("luna", "api-luna", "luna:BOXE"),
    "luna": ("luna", "api-luna", "luna:BOXE"),
    "@luna:BOXE": ("luna:BOXE",),
    "@api-": ("api-luna", "api-nova"),
    "@lu": ("luna", "api-luna", "luna:BOXE"),
    "@no": ("api-nova",),
    "@all": ("luna", "api-luna", "api-nova", "luna_reviewer_1", "codex-7"),
    "@workers": ("luna", "api-luna", "api-nova", "luna_reviewer_1", "codex-7"),
    "@worker": ("luna", "api-luna", "api-nova", "luna_reviewer_1", "codex-7"),
    "@observers": (),
    "@codex-*": ("codex-7",),
    "@codex-7": ("codex-7",),
    "@human": ("human",),
    "agent/codex-7": ("codex-7",),
    "agent/luna/reviewer_1": ("luna_reviewer_1",),
}


async def company(door: Door, *names: str) -> list[Seat]:
    """Join these agents one after the other."""
    return [await door.join(name) for name in names]


@behaviour("addresses")
async def test_every_form_of_address_means_the_same_at_every_door(door: Door, human: CliSeat) -> None:
    await company(door, *NAMES)
    pilo = await door.join("pilo")
    await human.pal("join", "--remote", "luna:BOXE")

    meant = {form: (await pilo.send([form], "hello")).delivered_to for form in FORMS}

    assert meant == FORMS


@behaviour("direct")
async def test_direct_message_reaches_only_its_recipient(door: Door) -> None:
    luna, nova, kira = await company(door, "luna", "nova", "kira")

    await luna.send(["@nova"], "secret")
    await luna.send(["@kira"], "public")

    assert [letter.text for letter in await nova.take()] == ["secret"]
    assert [letter.text for letter in await kira.take()] == ["public"]


@behaviour("no-recipient")
async def test_message_without_recipients_is_refused(door: Door) -> None:
    luna, nova = await company(door, "luna", "nova")

    with pytest.raises(Refused) as refused:
        await luna.send([], "hello all")
    sent = await luna.send(["@all"], "hello all of you")

    assert (refused.value.code, sent.delivered_to) == ("bad_request", ("nova",))
    (letter,) = await nova.take()
    assert (letter.text, letter.fields["scope"]) == ("hello all of you", "broadcast")


@behaviour("base-name")
async def test_base_name_means_every_agent_that_has_it(door: Door, human: CliSeat) -> None:
    luna, tagged, nova = await company(door, "luna", "api-luna", "nova")
    await human.pal("join", "--remote", "luna:BOXE")

    sent = await nova.send(["@luna"], "hello")

    assert sorted(sent.delivered_to) == ["api-luna", "luna", "luna:BOXE"]
    assert len(await luna.take()) == len(await tagged.take()) == 1


@behaviour("full-name")
async def test_full_name_means_one_agent(door: Door) -> None:
    luna, tagged, nova = await company(door, "luna", "api-luna", "nova")

    await nova.send(["api-luna"], "for the tagged one")

    assert [letter.text for letter in await tagged.take()] == ["for the tagged one"]
    assert await luna.take() == []


@behaviour("tag-group")
async def test_tag_means_every_agent_that_has_it_except_the_sender(door: Door) -> None:
    luna, nova, _ = await company(door, "api-luna", "api-nova", "kira")

    sent = await luna.send(["@api-"], "api people")

    assert sent.delivered_to == ("api-nova",)
    assert [letter.text for letter in await nova.take()] == ["api people"]


@behaviour("prefix")
async def test_unique_prefix_of_a_base_name_means_that_base_name(door: Door) -> None:
    luna, nova = await company(door, "luna", "api-nova")

    sent = await luna.send(["@nov"], "hello")

    assert sent.delivered_to == ("api-nova",)
    assert len(await nova.take()) == 1


@behaviour("ambiguous-prefix")
async def test_ambiguous_prefix_is_refused(door: Door) -> None:
    luna, luka, nova = await company(door, "luna", "luka", "nova")

    with pytest.raises(Refused) as refused:
        await nova.send(["@lu"], "hello")

    assert refused.value.code == "ambiguous_recipient"
    assert sorted(refused.value.details["candidates"]) == ["luka", "luna"]
    assert await luna.take() == await luka.take() == []


@behaviour("unknown-name")
async def test_unknown_name_is_refused_and_nothing_is_sent(door: Door) -> None:
    luna, nova = await company(door, "luna", "nova")

    with pytest.raises(Refused) as refused:
        await luna.send(["@nova", "@nowa", "@zzzz"], "hello")

    assert refused.value.code == "unknown_recipient"
    assert refused.value.details["unmatched"]["@nowa"][0] == "nova"
    assert set(refused.value.details["unmatched"]) == {"@nowa", "@zzzz"}
    assert await nova.take() == []


@behaviour("unknown-tag")
async def test_unknown_tag_is_refused(door: Door) -> None:
    (luna,) = await company(door, "luna")

    with pytest.raises(Refused) as refused:
        await luna.send(["@api-"], "hello")

    assert refused.value.code == "unknown_recipient"


@behaviour("empty-group")
async def test_empty_group_is_stored_and_reported(door: Door) -> None:
    luna, nova = await company(door, "luna", "nova")

    sent = await luna.send(["@observers", "@nova"], "hello")

    assert sent.seq > 0
    assert (sent.empty_groups, sent.delivered_to) == (("@observers",), ("nova",))
    assert len(await nova.take()) == 1


@behaviour("role-group")
async def test_role_means_every_agent_that_has_it(door: Door) -> None:
    luna = await door.join("luna")
    watcher = await door.join("watcher", role="observer")

    plural = await luna.send(["@observers"], "one")
    singular = await luna.send(["@observer"], "two")

    assert plural.delivered_to == singular.delivered_to == ("watcher",)
    assert [letter.text for letter in await watcher.take()] == ["one", "two"]


@behaviour("everyone")
async def test_all_means_every_present_agent_except_the_sender(door: Door) -> None:
    luna, nova, kira = await company(door, "luna", "nova", "kira")

    sent = await luna.send(["@all"], "hello")

    assert sorted(sent.delivered_to) == ["kira", "nova"]
    assert [len(await seat.take()) for seat in (luna, nova, kira)] == [0, 1, 1]


@behaviour("glob")
async def test_pattern_means_every_full_name_with_that_beginning(door: Door) -> None:
    seats = await company(door, "claude-a1", "claude-b2", "codex-7", "nova")

    sent = await seats[3].send(["@claude-*"], "hello")

    assert sorted(sent.delivered_to) == ["claude-a1", "claude-b2"]
    assert [len(await seat.take()) for seat in seats] == [1, 1, 0, 0]


@behaviour("self")
async def test_only_the_own_full_name_addresses_the_sender(door: Door) -> None:
    luna, other = await company(door, "api-luna", "luna")

    by_full_name = await luna.send(["@api-luna"], "note to self")
    by_path = await luna.send(["agent/api-luna"], "and another")
    by_base_name = await luna.send(["@luna"], "to my namesake")

    assert by_full_name.delivered_to == by_path.delivered_to == ("api-luna",)
    assert by_base_name.delivered_to == ("luna",)
    assert [letter.text for letter in await luna.take()] == ["note to self", "and another"]
    assert len(await other.take()) == 1


@behaviour("human")
async def test_person_is_reached_and_can_reply(door: Door, human: CliSeat) -> None:
    (luna,) = await company(door, "luna")

    sent = await luna.send(["@human"], "may I?", intent="request")
    (letter,) = await human.take()
    await human.send(["@luna"], "you may", reply_to=str(sent.seq))

    assert (sent.delivered_to, letter.text) == (("human",), "may I?")
    (answer,) = await luna.take()
    assert (answer.sender, answer.fields["sender_kind"], answer.text) == ("human", "human", "you may")


@behaviour("remote")
async def test_device_means_only_the_remote_agent(door: Door, human: CliSeat) -> None:
    luna, nova = await company(door, "luna", "nova")
    await human.pal("join", "--remote", "luna:BOXE")

    sent = await nova.send(["@luna:boxe"], "over there")

    assert sent.delivered_to == ("luna:BOXE",)
    assert [step.state for step in await nova.receipts(str(sent.seq))] == ["queued"]
    assert await luna.take() == []


@behaviour("underscore")
async def test_subagent_is_not_its_parent(door: Door) -> None:
    luna, reviewer, nova = await company(door, "luna", "luna_reviewer_1", "nova")

    await nova.send(["@luna"], "for the parent")
    await nova.send(["@luna_reviewer_1"], "for the child")

    assert [letter.text for letter in await luna.take()] == ["for the parent"]
    assert [letter.text for letter in await reviewer.take()] == ["for the child"]


@behaviour("path")
async def test_path_reaches_the_agent_it_names(door: Door) -> None:
    luna, nova, reviewer = await company(door, "luna", "nova", "nova_reviewer_1")

    one = await luna.send(["agent/nova"], "to the agent")
    deep = await luna.send(["agent/nova/**"], "to all below")

    assert one.delivered_to == ("nova",)
    assert sorted(deep.delivered_to) == ["nova", "nova_reviewer_1"]
    assert [letter.fields["path"] for letter in await nova.take()] == ["agent/nova", "agent/nova/**"]
    assert [letter.text for letter in await reviewer.take()] == ["to all below"]


@behaviour("dead-path")
async def test_path_without_a_recipient_is_a_dead_letter(door: Door) -> None:
    (luna,) = await company(door, "luna")

    sent = await luna.send(["build/finished"], "anyone?")
    (notice,) = await luna.wait()

    assert (sent.delivered_to, sent.dead) == ((), ("build/finished",))
    assert [(step.name, step.state) for step in await luna.receipts(str(sent.seq))] == [
        ("build/finished", "dead")
    ]
    assert (notice.sender, notice.fields["sender_kind"]) == ("[pal-events]", "system")
    assert f"#{sent.seq}" in notice.text


@behaviour("case")
async def test_case_does_not_matter(door: Door) -> None:
    luna, nova = await company(door, "luna", "api-nova")

    sent = [await luna.send([form], "hello") for form in ("@API-Nova", "NOVA", "@API-", "Agent/API-nova")]

    assert {one.delivered_to for one in sent[:3]} == {("api-nova",)}
    assert len(await nova.take()) == 3


@behaviour("union")
async def test_several_recipients_are_a_union(door: Door) -> None:
    luna, nova, kira = await company(door, "luna", "api-nova", "api-kira")

    sent = await luna.send(["@api-", "@nova", "@all"], "hello")

    assert sorted(sent.delivered_to) == ["api-kira", "api-nova"]
    assert [len(found) for found in await asyncio.gather(nova.take(), kira.take())] == [1, 1]
