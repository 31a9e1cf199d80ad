"""Examples of the source document about delivery: the eight steps, filtering, and read receipts."""

import re

from tests.daemon.stage import Home, check_output, run_as_person
from tests.source.agents import Pair, hear, hear_texts, meet, say, state_of

# Delivery flow


def test_step_1_send_prints_the_seq_and_the_recipients(bus: Home) -> None:
    luna, _ = meet(bus, "luna", "nova")

    output = luna.ok("send", "@nova", "--", "hello").out

    (event,) = bus.events("--type", "message")
    assert output == f"sent #{event['seq']} to nova\n"


def test_step_2_mentions_are_resolved_to_agent_names(bus: Home) -> None:
    luna, _, _ = meet(bus, "luna", "api-nova", "kira")

    say(luna, "@nova", "--", "hello")

    (event,) = bus.events("--type", "message")
    assert event["to"] == ["@nova"]
    assert (event["payload"]["scope"], event["payload"]["mentions"]) == ("mentions", ["api-nova"])
    assert event["payload"]["delivered_to"] == ["api-nova"]


def test_step_3_message_is_stored_before_it_is_delivered(bus: Home) -> None:
    luna, _ = meet(bus, "luna", "nova")

    sent = say(luna, "@nova", "--", "hello")

    assert [event["seq"] for event in bus.events("--type", "message")] == [sent["seq"]]
    assert bus.events("--type", "delivery") == []
    assert state_of(luna, sent["seq"], "nova") == "queued"


def test_step_4_every_waiting_recipient_is_woken(bus: Home) -> None:
    luna, nova, kira = meet(bus, "luna", "nova", "kira")
    waiting = [shell.begin("recv", "--follow", "--json") for shell in (nova, kira)]
    say(luna, "@all", "--", "are you there?")
    # After its first line each client only waits.
    first = [one.line() for one in waiting]

    say(luna, "@nova", "@kira", "--", "wake up")

    second = [one.line() for one in waiting]
    assert ["are you there?" in line for line in first] == [True, True]
    assert ["wake up" in line for line in second] == [True, True]


def test_step_5_recipient_can_ask_for_messages_after_a_seq(pair: Pair) -> None:
    luna, nova = pair
    seqs = [say(luna, "@nova", "--", text)["seq"] for text in ("one", "two", "three")]

    after = nova.ok("recv", "--after", str(seqs[0]), "--json").lines

    assert [line["seq"] for line in after] == seqs[1:]


def test_step_6_messages_to_others_are_not_delivered(bus: Home) -> None:
    luna, nova, _ = meet(bus, "luna", "nova", "kira")

    say(luna, "@kira", "--", "for kira alone")
    say(luna, "@all", "--", "for all")
    say(luna, "@nova", "--", "for nova alone")

    assert hear_texts(nova) == ["for all", "for nova alone"]


def test_step_7_message_is_delivered_in_the_form_that_agents_read(pair: Pair) -> None:
    luna, nova = pair
    seq = say(luna, "@nova", "--", "hello")["seq"]

    heard = hear(nova)

    assert heard == f"<pal>[new message #{seq}] luna → nova: hello</pal>"


def test_step_8_delivered_message_is_recorded_and_not_repeated(pair: Pair) -> None:
    luna, nova = pair
    first = say(luna, "@nova", "--", "first")["seq"]
    hear(nova)

    say(luna, "@nova", "--", "second")

    assert hear_texts(nova) == ["second"]
    assert state_of(luna, first, "nova") == "seen"


def test_delivered_message_is_not_repeated_by_the_next_daemon(bus: Home) -> None:
    luna, nova = meet(bus, "luna", "nova")
    say(luna, "@nova", "--", "first")
    hear(nova)

    bus.kill()
    say(luna, "@nova", "--", "second")

    assert hear_texts(nova) == ["second"]


# Filtering


def test_sender_does_not_get_its_own_broadcast(bus: Home) -> None:
    luna, nova = meet(bus, "luna", "nova")

    say(luna, "@all", "--", "from me")
    say(nova, "@all", "--", "from nova")

    assert hear_texts(luna) == ["from nova"]


def test_sender_does_not_get_its_own_message_to_its_group(bus: Home) -> None:
    luna, nova = meet(bus, "api-luna", "api-nova")

    say(luna, "@api-", "--", "from me")
    say(nova, "@api-", "--", "from nova")

    assert hear_texts(luna) == ["from nova"]


def test_broadcast_is_delivered_to_all_others(bus: Home) -> None:
    luna, nova, kira = meet(bus, "luna", "nova", "kira")

    say(luna, "@all", "--", "hello")

    assert hear_texts(nova) == hear_texts(kira) == ["hello"]


def test_mention_is_delivered_to_the_mentioned_agents(bus: Home) -> None:
    luna, nova, kira = meet(bus, "luna", "nova", "kira")

    say(luna, "@nova", "--", "secret")
    say(luna, "@kira", "--", "public")

    assert hear_texts(nova) == ["secret"]
    assert hear_texts(kira) == ["public"]


def test_base_name_matches_on_any_device(bus: Home) -> None:
    luna, nova = meet(bus, "luna", "nova")
    check_output(run_as_person(bus, "join", "--remote", "luna:BOXE"))
    check_output(run_as_person(bus, "join", "--remote", "nova:BOXE"))

    sent = say(nova, "@luna", "--", "hello")

    assert sent["delivered_to"] == ["luna", "luna:BOXE"]
    assert hear_texts(luna) == ["hello"]
    assert [state_of(nova, sent["seq"], name) for name in ("luna", "luna:BOXE")] == ["seen", "queued"]


# Read receipts


def test_read_message_has_a_later_delivery_event(bus: Home) -> None:
    luna, nova = meet(bus, "luna", "nova")
    seq = say(luna, "@nova", "--", "hello")["seq"]

    hear(nova)

    (delivery,) = bus.events("--type", "delivery", "--after", str(seq))
    assert delivery["from"] == "nova"
    assert (delivery["payload"]["agent"], delivery["payload"]["messages"]) == ("nova", [seq])
    assert delivery["payload"]["state"] == "seen"


def test_receipts_show_the_state_for_each_recipient(bus: Home) -> None:
    luna, nova, _, mila = meet(bus, "luna", "nova", "kira", "mila")
    seq = say(luna, "@nova", "@kira", "@mila", "--", "hello")["seq"]
    hear(nova)
    say(mila, "--reply-to", str(seq), "--", "hello yourself")

    shown = luna.ok("receipts", str(seq)).out

    lines = shown.splitlines()
    assert [line.split()[:2] for line in lines if not line.startswith(" ")] == [
        ["nova", "seen"],
        ["kira", "queued"],
        ["mila", "answered"],
    ]
    reasons = [line.strip() for line in lines if line.startswith(" ")]
    assert reasons == [
        "not_fetched: kira has not called 'pal recv', and nothing can wake it",
        "what moves it: kira calls 'pal recv'",
    ]


def test_message_to_a_remote_agent_stays_queued(bus: Home) -> None:
    (luna,) = meet(bus, "luna")
    check_output(run_as_person(bus, "join", "--remote", "nova:BOXE"))

    seq = say(luna, "@nova:BOXE", "--", "hello")["seq"]

    assert state_of(luna, seq, "nova:BOXE") == "queued"


def test_verbose_list_shows_the_readers_of_a_message(bus: Home) -> None:
    luna, nova, kira, _ = meet(bus, "luna", "nova", "kira", "mila")
    seq = say(luna, "@all", "--", "hello")["seq"]
    hear(nova)
    hear(kira)

    shown = luna.ok("list", "-v").out

    (line,) = [one for one in shown.splitlines() if one.startswith("luna ")]
    receipt = re.search(rf'#{seq}\(\d+s\): "hello" read by (\w+), (\w+) \[2/3\]', line)
    assert receipt is not None, shown
    assert set(receipt.groups()) == {"nova", "kira"}
