"""The source document on the way of a message: the eight steps, what is filtered, and who has read it."""

import re

from tests.daemon.stage import Home
from tests.source.agents import Pair, hear, hear_texts, meet, say, state_of

# Delivery flow


def test_step_1_the_send_command_says_what_was_sent_and_to_whom(bus: Home) -> None:
    luna, _ = meet(bus, "luna", "nova")

    said = luna.ok("send", "@nova", "--", "hello").out

    (event,) = bus.events("--type", "message")
    assert said == f"sent #{event['seq']} to nova\n"


def test_step_2_mentions_are_resolved_to_the_names_of_agents(bus: Home) -> None:
    luna, _, _ = meet(bus, "luna", "api-nova", "kira")

    say(luna, "@nova", "--", "hello")

    (event,) = bus.events("--type", "message")
    assert event["to"] == ["@nova"]
    assert (event["payload"]["scope"], event["payload"]["mentions"]) == ("mentions", ["api-nova"])
    assert event["payload"]["delivered_to"] == ["api-nova"]


def test_step_3_the_message_is_in_the_log_before_anybody_has_it(bus: Home) -> None:
    luna, _ = meet(bus, "luna", "nova")

    sent = say(luna, "@nova", "--", "hello")

    assert [event["seq"] for event in bus.events("--type", "message")] == [sent["seq"]]
    assert bus.events("--type", "delivery") == []
    assert state_of(luna, sent["seq"], "nova") == "queued"


def test_step_4_everybody_who_waits_and_is_meant_is_woken(bus: Home) -> None:
    luna, nova, kira = meet(bus, "luna", "nova", "kira")
    waiting = [shell.begin("recv", "--follow", "--json") for shell in (nova, kira)]
    say(luna, "--", "are you there?")
    # Who has written out the first message has nothing left to do but to wait.
    first = [one.line() for one in waiting]

    say(luna, "@nova", "@kira", "--", "wake up")

    second = [one.line() for one in waiting]
    assert ["are you there?" in line for line in first] == [True, True]
    assert ["wake up" in line for line in second] == [True, True]


def test_step_5_a_recipient_can_ask_for_what_came_after_a_place(pair: Pair) -> None:
    luna, nova = pair
    seqs = [say(luna, "@nova", "--", text)["seq"] for text in ("one", "two", "three")]

    after = nova.ok("recv", "--after", str(seqs[0]), "--json").lines

    assert [line["seq"] for line in after] == seqs[1:]


def test_step_6_what_was_for_somebody_else_is_not_given(bus: Home) -> None:
    luna, nova, _ = meet(bus, "luna", "nova", "kira")

    say(luna, "@kira", "--", "for kira alone")
    say(luna, "--", "for all")
    say(luna, "@nova", "--", "for nova alone")

    assert hear_texts(nova) == ["for all", "for nova alone"]


def test_step_7_the_message_is_given_in_the_form_that_agents_read(pair: Pair) -> None:
    luna, nova = pair
    seq = say(luna, "@nova", "--", "hello")["seq"]

    heard = hear(nova)

    assert heard == f"<pal>[new message #{seq}] luna → nova: hello</pal>"


def test_step_8_what_was_given_is_written_down_and_not_given_again(pair: Pair) -> None:
    luna, nova = pair
    first = say(luna, "@nova", "--", "first")["seq"]
    hear(nova)

    say(luna, "@nova", "--", "second")

    assert hear_texts(nova) == ["second"]
    assert state_of(luna, first, "nova") == "seen"


def test_what_was_given_is_not_given_again_by_the_next_daemon(bus: Home) -> None:
    luna, nova = meet(bus, "luna", "nova")
    say(luna, "@nova", "--", "first")
    hear(nova)

    bus.kill()
    say(luna, "@nova", "--", "second")

    assert hear_texts(nova) == ["second"]


# Filtering


def test_one_does_not_get_ones_own_broadcast(bus: Home) -> None:
    luna, nova = meet(bus, "luna", "nova")

    say(luna, "--", "from me")
    say(nova, "--", "from nova")

    assert hear_texts(luna) == ["from nova"]


def test_one_does_not_get_what_one_wrote_to_a_group_of_ones_own(bus: Home) -> None:
    luna, nova = meet(bus, "api-luna", "api-nova")

    say(luna, "@api-", "--", "from me")
    say(nova, "@api-", "--", "from nova")

    assert hear_texts(luna) == ["from nova"]


def test_a_broadcast_is_delivered_to_everybody_else(bus: Home) -> None:
    luna, nova, kira = meet(bus, "luna", "nova", "kira")

    say(luna, "--", "hello")

    assert hear_texts(nova) == hear_texts(kira) == ["hello"]


def test_a_mention_is_delivered_to_those_mentioned(bus: Home) -> None:
    luna, nova, kira = meet(bus, "luna", "nova", "kira")

    say(luna, "@nova", "--", "secret")
    say(luna, "@kira", "--", "public")

    assert hear_texts(nova) == ["secret"]
    assert hear_texts(kira) == ["public"]


def test_a_base_name_matches_whatever_the_device(bus: Home) -> None:
    luna, nova = meet(bus, "luna", "nova")
    nova.ok("join", "--remote", "luna:BOXE")
    nova.ok("join", "--remote", "nova:BOXE")

    sent = say(nova, "@luna", "--", "hello")

    assert sent["delivered_to"] == ["luna", "luna:BOXE"]
    assert hear_texts(luna) == ["hello"]
    assert [state_of(nova, sent["seq"], name) for name in ("luna", "luna:BOXE")] == ["seen", "queued"]


# Read receipts


def test_a_message_is_read_when_a_delivery_stands_behind_it_in_the_log(bus: Home) -> None:
    luna, nova = meet(bus, "luna", "nova")
    seq = say(luna, "@nova", "--", "hello")["seq"]

    hear(nova)

    (delivery,) = bus.events("--type", "delivery", "--after", str(seq))
    assert delivery["from"] == "nova"
    assert (delivery["payload"]["agent"], delivery["payload"]["messages"]) == ("nova", [seq])
    assert delivery["payload"]["state"] == "seen"


def test_receipts_say_for_each_recipient_how_far_a_message_got(bus: Home) -> None:
    luna, nova, _, mila = meet(bus, "luna", "nova", "kira", "mila")
    seq = say(luna, "@nova", "@kira", "@mila", "--", "hello")["seq"]
    hear(nova)
    say(mila, "--reply-to", str(seq), "--", "hello yourself")

    shown = luna.ok("receipts", str(seq)).out

    assert [line.split()[:2] for line in shown.splitlines()] == [
        ["nova", "seen"],
        ["kira", "queued"],
        ["mila", "answered"],
    ]


def test_for_a_remote_agent_a_message_waits_until_its_own_machine_says_more(bus: Home) -> None:
    (luna,) = meet(bus, "luna")
    luna.ok("join", "--remote", "nova:BOXE")

    seq = say(luna, "@nova:BOXE", "--", "hello")["seq"]

    assert state_of(luna, seq, "nova:BOXE") == "queued"


def test_the_verbose_list_shows_who_has_read_ones_message(bus: Home) -> None:
    luna, nova, kira, _ = meet(bus, "luna", "nova", "kira", "mila")
    seq = say(luna, "--", "hello")["seq"]
    hear(nova)
    hear(kira)

    shown = luna.ok("list", "-v").out

    (line,) = [one for one in shown.splitlines() if one.startswith("luna ")]
    receipt = re.search(rf'#{seq}\(\d+s\): "hello" read by (\w+), (\w+) \[2/3\]', line)
    assert receipt is not None, shown
    assert set(receipt.groups()) == {"nova", "kira"}
