"""Registration, capabilities, SASL and the commands that read or change who is where."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doors.irc.door_stage import IrcClient, IrcStage, commands, opened_irc, plain, shown

from palaver.broker.context import Seated
from palaver.doors.irc.channels import IrcUser
from palaver.doors.irc.commands import _COMMANDS, _is_matching, _pattern
from palaver.doors.irc.connection import IrcLimits
from palaver.doors.irc.irc_wire import CAPABILITIES, COMMANDS, LIMIT_MONITOR, LIMIT_MULTILINE_LINES, fold
from palaver.protocol.agents import Caller, Standing, caller_for
from palaver.protocol.requests import JoinRoom, SetTopic

# --------------------
# Registration


def test_every_command_of_the_protocol_has_a_handler() -> None:
    assert _COMMANDS.keys() == COMMANDS


async def test_greeting_has_its_numerics_in_order(irc: IrcStage) -> None:
    bob = await irc.connect()

    lines = await bob.register("bob")

    assert commands(lines)[:10] == [
        *("001", "002", "003", "004", "005"),
        *("251", "252", "253", "254", "255"),
    ]
    assert commands(lines)[10] == "375"
    assert "CASEMAPPING=ascii" in lines[4].params


async def test_without_credentials_and_guests_the_reply_explains_the_login(irc: IrcStage) -> None:
    irc.change(irc_guests="off")
    bob = await irc.connect()

    await bob.register("bob")
    refused = await bob.rest()

    assert refused[-1].command == "ERROR"
    assert "pal irc code" in refused[-1].params[0]


async def test_refusal_without_credentials_is_464(irc: IrcStage) -> None:
    irc.change(irc_guests="off")
    bob = await irc.connect()

    (refused,) = await bob.register("bob")

    assert refused.command == "464"
    assert "SASL PLAIN" in refused.params[-1]


@pytest.mark.parametrize("nick", ["luna", "LUNA", "human", "pal", "bob", "BOB"])
async def test_guest_may_not_have_a_nick_that_is_taken(irc: IrcStage, nick: str) -> None:
    await irc.agent("luna")
    await irc.guest("bob")
    ann = await irc.connect()

    refused = await ann.register(nick)
    ann.send("NICK ann")

    assert shown(refused) == [("433", "*", nick, "Nickname is already in use")]
    assert (await ann.until("376"))[0].params[0] == "ann"


@pytest.mark.parametrize("nick", ["luna", "human", "bob"])
async def test_guest_may_not_change_to_a_nick_that_is_taken(irc: IrcStage, nick: str) -> None:
    await irc.agent("luna")
    await irc.guest("bob")
    ann = await irc.guest("ann")

    lines = await ann.ask(f"NICK {nick}", "NICK", "NICK a!b", "NICK :\x1bx", "NICK ann")

    assert commands(lines) == ["433", "431", "432", "432"]
    assert lines[3].params[1] == "␛x"


async def test_sasl_plain_logs_in(irc: IrcStage) -> None:
    secret = await irc.token("luna")
    luna = await irc.connect()

    lines = await luna.log_in("luna", secret)

    replies = {line.command: line.params for line in lines}
    assert replies["900"][2] == "luna"
    assert "903" in replies
    assert replies["001"][0] == "luna"
    assert irc.presence.is_present("luna")


async def test_connection_makes_its_agent_present_until_it_ends(irc: IrcStage) -> None:
    luna = await irc.program("luna")
    bob = await irc.guest("bob")
    await bob.ask("JOIN #a")
    await luna.ask("JOIN #a")
    assert irc.presence.is_present("luna")

    await luna.close()
    await bob.until("QUIT", "PART")

    assert not irc.presence.is_present("luna")


@pytest.mark.parametrize(
    "response",
    [
        plain("luna", "wrong"),
        plain("nova", "{secret}"),
        plain("luna", ""),
        "!!!!",
        "AAAA",
        "+",
        plain("luna", "x", authzid="nova"),
    ],
)
async def test_wrong_sasl_response_gets_904(irc: IrcStage, response: str) -> None:
    await irc.token("luna")
    luna = await irc.connect()

    lines = await luna.ask("CAP REQ sasl", "AUTHENTICATE PLAIN", f"AUTHENTICATE {response}")

    assert commands(lines) == ["CAP", "AUTHENTICATE", "904"]


async def test_equal_authorization_name_is_accepted(irc: IrcStage) -> None:
    secret = await irc.token("luna")
    luna = await irc.connect()
    response = plain("luna", secret, authzid="Luna")

    await luna.ask("CAP REQ sasl")
    lines = await luna.ask("AUTHENTICATE plain", f"AUTHENTICATE {response}", "AUTHENTICATE PLAIN")

    assert commands(lines) == ["AUTHENTICATE", "900", "903", "907"]


async def test_other_ends_of_sasl_have_their_numerics(irc: IrcStage) -> None:
    luna = await irc.connect()

    lines = await luna.ask(
        "AUTHENTICATE PLAIN",
        "CAP REQ sasl",
        "AUTHENTICATE SCRAM-SHA-256",
        "AUTHENTICATE PLAIN",
        "AUTHENTICATE *",
        "AUTHENTICATE PLAIN",
        f"AUTHENTICATE {'A' * 401}",
        "AUTHENTICATE PLAIN",
        *[f"AUTHENTICATE {'A' * 400}"] * 3,
        "AUTHENTICATE",
    )

    codes = [code for code in commands(lines) if code != "AUTHENTICATE"]
    assert codes == ["904", "CAP", "908", "904", "906", "905", "904", "461"]


async def test_sasl_response_may_come_in_parts(irc: IrcStage) -> None:
    luna = await irc.connect()
    response = plain("x" * 300, "y")

    lines = await luna.ask(
        "CAP REQ sasl",
        "AUTHENTICATE PLAIN",
        f"AUTHENTICATE {response[:400]}",
        f"AUTHENTICATE {response[400:]}",
    )

    assert commands(lines) == ["CAP", "AUTHENTICATE", "904"]
    assert "wrong name or password" in lines[-1].params[-1]


async def test_three_wrong_passwords_end_the_connection(irc: IrcStage) -> None:
    luna = await irc.connect()
    luna.send("CAP REQ sasl", *["AUTHENTICATE PLAIN", f"AUTHENTICATE {plain('luna', 'wrong')}"] * 4)

    lines = await luna.rest()

    assert commands(lines).count("904") == 3
    assert lines[-1].command == "ERROR"


async def test_password_with_a_name_logs_in(irc: IrcStage) -> None:
    secret = await irc.token("luna")
    luna = await irc.connect()

    luna.send(f"PASS luna:{secret}", "NICK luna", "USER x 0 * :x")

    assert (await luna.until("376", "ERROR"))[-1].command == "376"


async def test_password_without_a_name_uses_the_nick(irc: IrcStage) -> None:
    secret = await irc.token("luna")
    luna = await irc.connect()

    luna.send(f"PASS {secret}", "NICK Luna", "USER x 0 * :x")

    assert (await luna.until("376", "ERROR"))[0].params[0] == "luna"


async def test_wrong_password_ends_the_connection(irc: IrcStage) -> None:
    luna = await irc.connect()

    luna.send("PASS wrong", "NICK luna", "USER x 0 * :x")

    assert commands(await luna.rest()) == ["464", "ERROR"]


async def test_person_logs_in_with_a_code_once(irc: IrcStage) -> None:
    code = irc.accounts.codes.issue()
    first, second = await irc.connect(), await irc.connect()

    lines = await first.log_in("human", code)
    refused = await second.ask("CAP REQ sasl", "AUTHENTICATE PLAIN", f"AUTHENTICATE {plain('human', code)}")

    assert lines[-1].command == "376"
    assert commands(refused)[-1] == "904"


async def test_nick_of_an_account_is_its_name(irc: IrcStage) -> None:
    secret = await irc.token("luna")
    luna = await irc.connect()

    lines = await luna.log_in("luna", secret, nick="somebody")
    after = await luna.ask("NICK other", "NICK luna")

    assert next(line for line in lines if line.command == "001").params[0] == "luna"
    assert shown(after)[0][0] == "NOTICE"
    assert shown(after)[1][:3] == ("FAIL", "NICK", "NOT_YOU")
    assert len(after) == 2


async def test_account_may_not_have_the_nick_of_another_agent(irc: IrcStage) -> None:
    await irc.agent("nova")
    secret = await irc.token("luna")
    luna = await irc.connect()

    refused = await luna.log_in("luna", secret, nick="nova")
    luna.send("NICK luna")
    await luna.until("376")
    later = await luna.ask("NICK nova", "NICK human")

    assert refused[-1].params == ("*", "nova", "Nickname is already in use")
    assert commands(later) == ["433", "433"]


async def test_commands_before_the_registration_get_451(irc: IrcStage) -> None:
    bob = await irc.connect()

    lines = await bob.ask("JOIN #a", "PRIVMSG x :y", "FOO", "PONG")

    assert commands(lines) == ["451", "451", "451"]


async def test_repeated_registration_gets_462(irc: IrcStage) -> None:
    bob = await irc.guest("bob")

    lines = await bob.ask("USER a b c d", "PASS x", "USER", "PASS", "AUTHENTICATE PLAIN")

    assert commands(lines) == ["462", "462", "461", "461", "462"]


async def test_empty_real_name_gets_461(irc: IrcStage) -> None:
    bob = await irc.connect()

    assert commands(await bob.ask("NICK bob", "USER bob 0 * :")) == ["461"]


async def test_end_of_the_negotiation_aborts_sasl(irc: IrcStage) -> None:
    bob = await irc.connect()

    lines = await bob.ask("CAP REQ sasl", "AUTHENTICATE PLAIN", "CAP END")

    assert commands(lines) == ["CAP", "AUTHENTICATE", "906"]


async def test_user_name_and_real_name_are_made_safe(irc: IrcStage) -> None:
    bob = await irc.connect()
    bob.send("NICK bob", "USER \x1b@! 0 * :\x02Bob\x03,4 \x1b[31m\u202e")
    await bob.until("376")

    (who, _) = await bob.ask("WHO bob")

    assert who.params[2] == "user"
    assert who.params[-1] == "0 Bob,4 ␛[31m\\u202e"


# --------------------
# Capabilities


async def test_capabilities_have_values_from_302_on(irc: IrcStage) -> None:
    bob = await irc.connect()

    old, new = await bob.ask("CAP LS", "CAP LS 302")

    assert old.params[-1].split() == list(CAPABILITIES)
    assert "sasl=PLAIN" in new.params[-1].split()


async def test_capabilities_are_all_or_none(irc: IrcStage) -> None:
    bob = await irc.connect()

    lines = await bob.ask(
        "CAP LS 302",
        "CAP REQ :batch nothing",
        "CAP LIST",
        "CAP REQ :batch setname",
        "CAP REQ :-batch",
        "CAP REQ :-cap-notify",
        "CAP LIST",
        "CAP FOO",
        "CAP",
    )

    assert [line.params[1:] for line in lines[1:]] == [
        ("NAK", "batch nothing"),
        ("LIST", "cap-notify"),
        ("ACK", "batch setname"),
        ("ACK", "-batch"),
        ("NAK", "-cap-notify"),
        ("LIST", "cap-notify setname"),
        ("FOO", "Invalid CAP command"),
        ("CAP", "Not enough parameters"),
    ]


async def test_repeated_capabilities_are_acknowledged_once(irc: IrcStage) -> None:
    bob = await irc.guest("bob")

    lines = await bob.ask(f"CAP REQ :{'labeled-response ' * 28}", "CAP LS 302", "CAP LS")

    assert lines[0].params[1:] == ("ACK", "labeled-response")
    assert "sasl" in lines[2].params[-1].split()


async def test_registration_waits_for_the_end_of_the_negotiation(irc: IrcStage) -> None:
    bob = await irc.connect()

    before = await bob.ask("CAP REQ batch", "NICK bob", "USER b 0 * :b")
    bob.send("CAP END")

    assert commands(before) == ["CAP"]
    assert (await bob.until("376"))[0].command == "001"


# --------------------
# Labels


async def test_labels_mark_no_one_or_many_lines(irc: IrcStage) -> None:
    bob = await irc.guest("bob", "labeled-response", "batch")

    lines = await bob.ask("@label=a PONG x", "@label=b PING y", "@label=c MOTD", "@label=d FOO", "PING z")

    assert (lines[0].command, lines[0].tags) == ("ACK", {"label": "a"})
    assert (lines[1].command, lines[1].tags) == ("PONG", {"label": "b"})
    assert (lines[2].params[1:], lines[2].tags) == (("labeled-response",), {"label": "c"})
    name = lines[2].params[0][1:]
    assert {line.tags["batch"] for line in lines[3:9]} == {name}
    assert lines[9].params == (f"-{name}",)
    assert lines[10].tags == {"label": "d"}
    assert lines[11].tags == {}


async def test_label_that_is_too_long_is_ignored(irc: IrcStage) -> None:
    bob = await irc.guest("bob", "labeled-response", "batch")

    (line,) = await bob.ask(f"@label={'x' * 65} PING y")

    assert line.tags == {}


async def test_label_belongs_only_to_the_reply(irc: IrcStage) -> None:
    ann, bob = await irc.guest("ann"), await irc.guest("bob", "labeled-response", "batch")
    await ann.ask("JOIN #a")

    lines = await bob.ask("@label=x JOIN #a")

    assert lines[0].tags == {"label": "x"}
    assert [line.tags for line in await ann.ask()] == [{}]


async def test_label_of_refused_lines_is_in_the_reply(irc: IrcStage) -> None:
    bob = await irc.guest("bob", "labeled-response", "batch")
    bob.write(b"@label=a PRIVMSG #a :\xff\r\n@label=b PRIVMSG #a :" + b"x" * 600 + b"\r\n")

    lines = await bob.ask()

    assert [(line.command, line.tags) for line in lines] == [
        ("FAIL", {"label": "a"}),
        ("417", {"label": "b"}),
    ]


# --------------------
# Texts in several lines


async def test_multiline_batch_is_one_message_with_the_label(irc: IrcStage) -> None:
    caps = ("draft/multiline", "batch", "message-tags", "echo-message", "labeled-response")
    bob = await irc.guest("bob", *caps)
    await bob.ask("JOIN #a")

    lines = await bob.ask(
        "@label=x BATCH +1 draft/multiline #a",
        "@batch=1 PRIVMSG #a :one",
        "@batch=1;draft/multiline-concat PRIVMSG #a : and",
        "@batch=1 PRIVMSG #a :two",
        "BATCH -1",
    )

    assert lines[0].tags["label"] == "x"
    assert lines[0].params[1:] == ("draft/multiline", "#a")
    assert "".join(line.params[-1] for line in lines[1:-1]) == "one andtwo"
    sent = await irc.payloads("message")
    assert [one["text"] for one in sent] == ["one and\ntwo"]


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (["@batch=1 PRIVMSG #b :x"], "MULTILINE_INVALID_TARGET"),
        (["@batch=1 JOIN #b"], "MULTILINE_INVALID"),
        (["@batch=1 PRIVMSG #a :x", "@batch=1 NOTICE #a :x"], "MULTILINE_INVALID"),
        (["@batch=1;draft/multiline-concat PRIVMSG #a :x"], "MULTILINE_INVALID"),
        (["@batch=1 PRIVMSG #a :"], "MULTILINE_INVALID"),
        (["@batch=2 PRIVMSG #a :x"], "MULTILINE_INVALID"),
        ([], "MULTILINE_INVALID"),
        (["@batch=1 PRIVMSG #a :x"] * (LIMIT_MULTILINE_LINES + 1), "MULTILINE_MAX_LINES"),
        ([f"@batch=1 PRIVMSG #a :{'x' * 480}"] * 2185, "MULTILINE_MAX_BYTES"),
    ],
)
async def test_wrong_batch_is_refused_once_and_as_a_whole(irc: IrcStage, sent: list[str], code: str) -> None:
    bob = await irc.guest("bob", "draft/multiline", "batch", "message-tags")
    await bob.ask("JOIN #a", "JOIN #b")

    lines = await bob.ask("BATCH +1 draft/multiline #a", *sent, "@batch=1 PRIVMSG #a :", "BATCH -1")

    assert lines[0].params[:2] == ("BATCH", code)
    assert {line.command for line in lines} == {"FAIL"}
    assert await irc.payloads("message") == []


async def test_invalid_utf8_refuses_the_whole_batch(irc: IrcStage) -> None:
    bob = await irc.guest("bob", "draft/multiline", "batch", "message-tags")
    await bob.ask("JOIN #a", "BATCH +1 draft/multiline #a", "@batch=1 PRIVMSG #a :x")
    bob.write(b"@batch=1 PRIVMSG #a :\xff\r\n")

    lines = await bob.ask("BATCH -1")

    assert [line.params[:2] for line in lines] == [("PRIVMSG", "INVALID_UTF8")]
    assert await irc.payloads("message") == []


async def test_other_batches_are_refused(irc: IrcStage) -> None:
    bob = await irc.guest("bob", "draft/multiline", "batch", "message-tags")

    lines = await bob.ask(
        "BATCH +1 foo #a",
        "BATCH -1",
        "BATCH +1 draft/multiline",
        "BATCH +1 draft/multiline #a",
        "BATCH +2 draft/multiline #a",
        "BATCH",
    )

    codes = [line.params[1] for line in lines]
    assert codes == ["UNKNOWN_TYPE", "UNKNOWN_BATCH", "MULTILINE_INVALID", "MULTILINE_INVALID", "BATCH"]


# --------------------
# Channels and users


async def test_bad_channels_get_403(irc: IrcStage) -> None:
    bob = await irc.guest("bob")

    lines = await bob.ask(
        "JOIN x", "JOIN #", f"JOIN #{'x' * 100}", "JOIN #a\x1bb", "JOIN #\u202e", "JOIN :#a b", "PART #no"
    )

    assert commands(lines) == ["403"] * 7
    assert "\x1b" not in lines[3].params[1]


async def test_number_of_channels_is_limited(tmp_path: Path) -> None:
    async with opened_irc(tmp_path, IrcLimits(channels=2)) as irc:
        bob = await irc.guest("bob")

        lines = await bob.ask("JOIN #a,#b", "JOIN #c", "JOIN #a")

        assert [line.command for line in lines if line.command in ("JOIN", "405")] == ["JOIN", "JOIN", "405"]


async def test_join_zero_leaves_all_channels(irc: IrcStage) -> None:
    bob = await irc.guest("bob")
    await bob.ask("JOIN #a,#b")

    assert shown(await bob.ask("JOIN 0")) == [("PART", "#a"), ("PART", "#b")]


async def test_part_of_a_channel_without_being_in_it(irc: IrcStage) -> None:
    ann, bob = await irc.guest("ann"), await irc.guest("bob")
    await ann.ask("JOIN #a")

    assert commands(await bob.ask("PART #a", "PART #general", "PART #b")) == ["442", "442", "403"]


async def test_topics_are_read_and_modes_can_only_be_read(irc: IrcStage) -> None:
    bob = await irc.guest("bob")
    await bob.ask("JOIN #general,#a")

    lines = await bob.ask(
        "TOPIC #general",
        "TOPIC #a",
        "TOPIC #agent-luna :new",
        "TOPIC #nothing",
        "TOPIC #nothing :new",
        "MODE #general",
        "MODE #general +b",
        "MODE #general +t",
        "MODE #nothing",
        "MODE bob",
        "MODE bob +o",
        "MODE ann",
        "MODE human",
    )

    expected = ["332", "333", "331", "442", "403", "403", "324", "329", "368", "482", "403", "221", "501"]
    assert commands(lines) == [*expected, "401", "401"]
    assert lines[6].params == ("bob", "#general", "+n")


# --------------------
# Topics


async def test_topic_is_set_shown_and_kept_with_who_and_when(irc: IrcStage) -> None:
    ann, bob = await irc.guest("ann", "server-time"), await irc.guest("bob")
    luna = await irc.program("luna")
    for client in (ann, luna, bob):
        await client.ask("JOIN #Ops")
    irc.clock.advance(90)
    set_ms = irc.clock.now_ms()

    replies = await bob.ask("TOPIC #ops :deploy at five")
    irc.clock.advance(60)
    listed = await bob.ask("LIST #ops", "TOPIC #OPS")
    await bob.ask("PART #ops")
    again = await bob.ask("JOIN #OPS")

    assert shown(replies) == [("TOPIC", "#Ops", "deploy at five")]
    for client in (ann, luna):
        line = (await client.until("TOPIC"))[-1]
        assert (line.source, line.params) == ("bob!bob@palaver", ("#Ops", "deploy at five"))
    assert listed[1].params == ("bob", "#Ops", "3", "deploy at five")
    expected = [("332", "bob", "#Ops", "deploy at five"), ("333", "bob", "#Ops", "bob", str(set_ms // 1000))]
    assert shown(listed[3:]) == expected
    assert shown(again[1:3]) == expected
    (payload,) = await irc.payloads("setting.changed")
    assert payload == {"key": "topic", "value": "deploy at five", "old": "", "channel": "#ops"}


async def test_empty_topic_shows_that_of_the_bus_again(irc: IrcStage) -> None:
    ann, bob = await irc.guest("ann"), await irc.guest("bob")
    own = (await ann.ask("JOIN #general,#a"))[1].params[-1]
    await bob.ask("JOIN #general,#a", "TOPIC #general :mine", "TOPIC #a :mine")
    await ann.ask()

    await bob.ask("TOPIC #general :", "TOPIC #a :\x02 \x0f")

    assert shown(await ann.ask()) == [("TOPIC", "#general", own), ("TOPIC", "#a", "")]
    read = shown(await ann.ask("TOPIC #general", "TOPIC #a"))
    assert read[0] == ("332", "ann", "#general", own)
    assert read[1][:4] == ("333", "ann", "#general", "pal")
    assert read[2][0] == "331"


async def test_same_topic_again_is_not_shown_to_others(irc: IrcStage) -> None:
    ann, bob = await irc.guest("ann"), await irc.guest("bob")
    await ann.ask("JOIN #a")
    await bob.ask("JOIN #a", "TOPIC #a :one")
    await ann.ask()

    assert commands(await bob.ask("TOPIC #a :one")) == ["332", "333"]
    assert commands(await bob.ask("TOPIC #a :", "TOPIC #a :")) == ["TOPIC", "331"]
    assert shown(await ann.ask()) == [("TOPIC", "#a", "")]


async def test_topic_has_the_label_and_the_account_of_its_client(irc: IrcStage) -> None:
    luna = await irc.program("luna", "labeled-response", "batch", "account-tag")
    await luna.ask("JOIN #a")

    (line,) = await luna.ask("@label=7 TOPIC #a :x")

    assert (line.command, line.tags) == ("TOPIC", {"label": "7", "account": "luna"})


async def test_other_connection_of_an_account_gets_the_topic_without_the_label(irc: IrcStage) -> None:
    caps = ("labeled-response", "batch")
    secret = await irc.token("luna")
    first, second = await irc.connect(), await irc.connect()
    for client in (first, second):
        await client.log_in("luna", secret, *caps)
    await first.ask("JOIN #a")

    await first.ask("@label=7 TOPIC #a :x")

    line = (await second.until("TOPIC"))[-1]
    assert (line.params, line.tags) == (("#a", "x"), {})


async def test_topic_of_another_door_is_shown(irc: IrcStage) -> None:
    bob = await irc.guest("bob")
    await bob.ask("JOIN #A")
    luna = caller_for(await irc.agent("luna"))
    gone = Caller(name="irc/local/zed", standing=Standing.GUEST, kind="external")

    await irc.broker.submit(luna, SetTopic(channel="#a", text="one"))
    await irc.broker.submit(gone, SetTopic(channel="#a", text="two"))

    lines = await bob.ask()
    assert shown(lines) == [("TOPIC", "#A", "one"), ("TOPIC", "#A", "two")]
    assert [line.source for line in lines] == ["luna!luna@palaver", "zed!zed@palaver"]


async def test_guest_that_may_only_read_sets_no_topic(irc: IrcStage) -> None:
    irc.change(irc_guests="read")
    bob = await irc.guest("bob")
    await bob.ask("JOIN #a")

    assert commands(await bob.ask("TOPIC #a :x", "TOPIC #a")) == ["482", "331"]
    assert await irc.payloads("setting.changed") == []


async def test_agent_outside_a_room_does_not_set_its_topic(irc: IrcStage, tmp_path: Path) -> None:
    seated = await irc.broker.submit(
        caller_for(await irc.agent("nova")), JoinRoom(workspaces=(str(tmp_path),))
    )
    assert isinstance(seated, Seated)
    luna, bob = await irc.program("luna"), await irc.guest("bob")
    for client in (luna, bob):
        await client.ask(f"JOIN #{seated.room.id}")
    await luna.until("JOIN")

    assert commands(await luna.ask(f"TOPIC #{seated.room.id} :x")) == ["482"]
    assert commands(await bob.ask(f"TOPIC #{seated.room.id} :x")) == ["TOPIC"]


async def test_long_topic_is_cut_between_characters_without_control_ones(irc: IrcStage) -> None:
    bob = await irc.guest("bob")
    await bob.ask("JOIN #a")

    (line,) = await bob.ask("TOPIC #a :\x02b\x1b[2J\t\x0304,05\u202e" + "ü" * 200)

    text = line.params[1]
    assert text.startswith("b[2J\\u202eü")
    assert len(text.encode()) in (389, 390)
    assert (await bob.ask("TOPIC #a"))[0].params[-1] == text


async def test_who_finds_by_channel_nick_and_mask(irc: IrcStage) -> None:
    await irc.agent("luna", role="operator")
    ann, bob = await irc.guest("ann"), await irc.guest("bob")
    await ann.ask("JOIN #a", "AWAY :out")

    lines = await bob.ask(
        "WHO #a", "WHO luna", "WHO a*", "WHO *", "WHO", "WHO * o", "WHO nobody", "WHO #\x1b"
    )

    found: list[list[str]] = [[]]
    for line in lines:
        if line.command == "315":
            found.append([])
        else:
            found[-1].append(f"{line.params[1]} {line.params[5]} {line.params[6]}")
    assert found[:3] == [["#a ann G"], ["#general luna H@"], ["* ann G"]]
    assert found[3] == found[4] == ["* ann G", "* bob H", "* luna H@"]
    assert found[5:] == [["* luna H@"], [], [], []]


async def test_whox_returns_the_fields_in_their_order(irc: IrcStage) -> None:
    await irc.agent("luna")
    bob = await irc.guest("bob")

    lines = await bob.ask("WHO luna %afnt,42", "WHO bob %tcuihsnfdlaor,7", "WHO bob %")

    assert lines[0].params == ("bob", "42", "luna", "H+", "luna")
    assert (await bob.ask("WHO luna :%tn, :x"))[0].params == ("bob", "0", "luna")
    expected = ("7", "*", "bob", "255.255.255.255", "palaver", "pal", "bob", "H", "0", "0", "0", "n/a")
    assert lines[2].params == ("bob", *expected, "bob of the test")
    assert commands(lines[4:]) == ["315"]


async def test_whois_shows_account_away_and_idle(irc: IrcStage) -> None:
    luna = await irc.program("luna")
    await luna.ask("JOIN #a", "AWAY :out")
    irc.clock.advance(90)
    bob = await irc.guest("bob")

    lines = await bob.ask("WHOIS pal LUNA", "WHOIS nobody", "WHOIS :", "WHOIS")

    replies = {line.command: line.params for line in lines[:7]}
    assert replies["330"][2] == "luna"
    assert replies["301"][2] == "out"
    assert replies["317"][2] == "90"
    assert commands(lines[7:]) == ["401", "318", "401", "318", "461"]


async def test_list_shows_channels_of_bus_and_clients(irc: IrcStage) -> None:
    await irc.agent("luna")
    bob = await irc.guest("bob")
    await bob.ask("JOIN #Work")

    everything = await bob.ask("LIST")
    some = await bob.ask("LIST #w*,#none", "LIST #GENERAL")

    assert [line.params[1:3] for line in everything[1:-1]] == [
        ("#Work", "1"),
        ("#agent-luna", "1"),
        ("#general", "1"),
    ]
    assert [line.params[1] for line in some if line.command == "322"] == ["#Work", "#general"]


async def test_monitor_lists_and_limits(irc: IrcStage) -> None:
    bob = await irc.guest("bob")
    many = ",".join(f"n{number}" for number in range(60))
    more = ",".join(f"m{number}" for number in range(60))

    lines = await bob.ask(f"MONITOR + {many}", f"MONITOR + {more}")
    listed = await bob.ask(
        "MONITOR L", "MONITOR - n0", "MONITOR S", "MONITOR C", "MONITOR L", "MONITOR +", "MONITOR x"
    )

    full = next(line for line in lines if line.command == "734")
    assert full.params[1] == str(LIMIT_MONITOR)
    assert full.params[2].startswith("m40,m41")
    names = [line.params[1].split(",") for line in listed if line.command == "732"]
    assert sum(map(len, names)) == LIMIT_MONITOR
    assert commands(listed)[-4:] == ["731", "733", "461", "461"]


async def test_userhost_and_ison_answer_also_for_agents(irc: IrcStage) -> None:
    await irc.agent("luna")
    bob = await irc.guest("bob")

    lines = await bob.ask("AWAY :x", "USERHOST bob luna none", "ISON BOB none luna", "ISON none")

    assert lines[1].params[1] == "bob=-bob@palaver luna=+luna@palaver"
    assert [line.params[1] for line in lines[2:]] == ["bob luna", ""]


async def test_server_describes_itself(irc: IrcStage) -> None:
    bob = await irc.guest("bob")

    lines = await bob.ask("VERSION", "TIME", "INFO", "HELP", "HELP login", "HELP \x1b", "LUSERS")

    replies = {line.command: line.params for line in lines}
    assert replies["351"][1] == "palaver-1.2.3"
    assert replies["391"][2].endswith("UTC")
    assert replies["524"][1] == "␛"
    assert {"005", "371", "374", "704", "705", "706", "251", "255"} <= replies.keys()


async def test_names_without_a_channel_and_of_bad_ones(irc: IrcStage) -> None:
    bob = await irc.guest("bob")

    assert commands(await bob.ask("NAMES", "NAMES x", "NAMES #none")) == ["366", "366", "366"]


async def test_messages_without_target_or_text(irc: IrcStage) -> None:
    bob = await irc.guest("bob", "message-tags")

    lines = await bob.ask(
        "PRIVMSG", "PRIVMSG #a", "PRIVMSG #a :", "NOTICE", "NOTICE x", "PRIVMSG a,b,c,d,e :x", "TAGMSG"
    )

    assert commands(lines) == ["411", "412", "412", "407", "461"]


async def test_guest_that_may_only_read_writes_nothing(irc: IrcStage) -> None:
    irc.change(irc_guests="read")
    ann, bob = await irc.guest("ann"), await irc.guest("bob", "message-tags")
    await ann.ask("JOIN #a")
    await bob.ask("JOIN #a")
    await ann.ask()

    lines = await bob.ask("PRIVMSG #a :x", "NOTICE #a :x", "@+x=y TAGMSG #a")

    assert [line.command for line in lines if line.command == "PRIVMSG"] == []
    assert {"NOTICE", "TAGMSG"} <= {line.params[0] for line in lines if line.command == "FAIL"}
    assert await ann.ask() == []
    assert await irc.payloads("message") == []


async def test_tagmsg_needs_message_tags(irc: IrcStage) -> None:
    bob = await irc.guest("bob")

    assert commands(await bob.ask("TAGMSG #a")) == ["421"]


async def test_ping_needs_a_token(irc: IrcStage) -> None:
    bob = await irc.guest("bob")

    assert commands(await bob.ask("PING", "PING :")) == ["409", "409"]


async def test_ping_of_a_full_line_is_answered(irc: IrcStage) -> None:
    bob = await irc.guest("bob")

    (line,) = await bob.ask(f"PING {'x' * 505}")

    assert line.params[-1] == "x" * len(line.params[-1])
    assert len(line.params[-1]) > 450


# --------------------
# Masks

_NICKS = st.text(st.sampled_from("abAB[]{}^|_-1"), min_size=1, max_size=8)


@given(_NICKS)
def test_every_nick_matches_itself_as_a_mask(nick: str) -> None:
    user = IrcUser(nick=nick, user="u", realname="", account="", prefix="", since_ms=0)

    assert _is_matching(user, _pattern(fold(nick)))
    assert _is_matching(user, _pattern("*"))
    assert _is_matching(user, _pattern("?" * len(nick)))
    assert not _is_matching(user, _pattern(f"{fold(nick)}x"))


async def test_failure_of_a_command_is_a_reply(irc: IrcStage, monkeypatch: pytest.MonkeyPatch) -> None:
    bob: IrcClient = await irc.guest("bob")

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("palaver.doors.irc.channels.Hub.channels", fail)
    lines = await bob.ask("LIST", "TIME")

    assert commands(lines) == ["321", "FAIL", "391"]
