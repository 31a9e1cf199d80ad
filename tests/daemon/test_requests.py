"""Requests and their answers, and messages whose recipient or text is missing, as `pal` shows them."""

import json

import pytest
from tests.daemon.stage import Home, Shell, run_as_person

import palaver


def joined(home: Home, name: str) -> Shell:
    """Return a shell that has joined under a name."""
    shell = home.shell()
    shell.ok("join", "--name", name)
    return shell


@pytest.fixture
def luna(bus: Home) -> Shell:
    """A shell that has joined as luna."""
    return joined(bus, "luna")


@pytest.fixture
def nova(bus: Home) -> Shell:
    """A shell that has joined as nova."""
    return joined(bus, "nova")


def asked(sender: Shell, to: str, *words: str) -> int:
    """Send a request; return its seq."""
    seq = sender.ok("send", to, "--intent", "request", *words, "--json", "--", "can you?").json["seq"]
    assert isinstance(seq, int)
    return seq


def noticed(shell: Shell) -> str:
    """Wait for the next message to a shell; return its text."""
    (line,) = shell.ok("recv", "--wait", "--timeout", "5", "--json").lines
    text = line["text"]
    assert isinstance(text, str)
    return text


def refused(shell: Shell, *words: str) -> str:
    """Run a command that must be refused, and sends nothing; return its error."""
    before = shell.home.texts()
    result = shell.pal(*words)
    assert result.status != 0
    assert shell.home.texts() == before
    return result.err


# An agent that has left


def test_sender_is_notified_at_once_that_the_agent_has_left(bus: Home, luna: Shell, nova: Shell) -> None:
    nova.ok("leave")

    sent = luna.ok("send", "@nova", "--intent", "request", "--", "can you?")
    seq = bus.events("--type", "message")[0]["seq"]

    assert sent.out.startswith(f"sent #{seq} to nova (exited ")
    assert sent.out.endswith(" ago; it waits until nova comes back)\n")
    assert noticed(luna) == f"@luna nova is now stopped (request #{seq})"


def test_json_of_a_send_has_the_state_of_an_agent_that_has_left(luna: Shell, nova: Shell) -> None:
    nova.ok("leave")

    (one,) = luna.ok("send", "@nova", "--json", "--", "for later").json["exited"]

    assert (one["agent"], one["state"], one["resumable"]) == ("nova", "exited", False)
    assert one["since"] > 0


def test_resume_is_suggested_only_to_a_sender_that_may_resume(bus: Home, luna: Shell) -> None:
    bus.ok("run", "--name", "nova", "--detach", "--", "sleep", "600")
    run_as_person(bus, "kill", "nova")

    by_person = run_as_person(bus, "send", "@nova", "--intent", "request", "--", "can you?")
    by_agent = luna.ok("send", "@nova", "--", "can you?")

    assert "it waits until nova comes back: pal resume nova)" in by_person.out
    assert by_agent.out.endswith("it waits until nova comes back)\n")


# Agents that report no state


def test_agent_that_waits_again_after_reading_counts_as_idle(luna: Shell, nova: Shell) -> None:
    seq = asked(luna, "@nova")
    nova.ok("recv", "--wait")

    waiting = nova.begin("recv", "--wait")

    assert noticed(luna) == f"@luna nova is now idle (request #{seq})"
    luna.ok("send", "@nova", "--", "never mind")
    assert "never mind" in waiting.end().out


def test_agent_that_follows_its_messages_counts_as_idle_after_a_pause(luna: Shell, nova: Shell) -> None:
    following = nova.begin("recv", "--follow", "--json")

    seq = asked(luna, "@nova")

    assert json.loads(following.line())["seq"] == seq
    assert noticed(luna) == f"@luna nova is now idle (request #{seq})"


def test_agent_that_answers_before_it_waits_again_causes_no_notice(luna: Shell, nova: Shell) -> None:
    seq = asked(luna, "@nova")
    nova.ok("recv")
    nova.ok("send", "--reply-to", str(seq), "--", "yes")
    nova.begin("recv", "--wait")

    assert noticed(luna) == "yes"
    asked(luna, "@nova")
    assert "nova is now" not in luna.ok("recv", "--json").out


# Answers without --reply-to


def test_direct_message_back_answers_the_only_open_request(luna: Shell, nova: Shell) -> None:
    seq = asked(luna, "@nova")
    nova.ok("recv")

    sent = nova.ok("send", "@luna", "--", "it is done")

    answer = seq + 2
    assert sent.out == f"sent #{answer} to luna, as the answer to #{seq}\n"
    assert f"answered (by #{answer}, without --reply-to)" in luna.ok("receipts", str(seq)).out
    (line,) = luna.ok("receipts", str(seq), "--json").json["receipts"]
    assert (line["state"], line["answer"], line["implied"]) == ("answered", answer, True)
    assert luna.ok("events", "subs").out.startswith("no subscriptions")


def test_answer_after_the_notice_is_an_answer_too(luna: Shell, nova: Shell) -> None:
    seq = asked(luna, "@nova")
    nova.ok("recv")
    nova.ok("status", "set", "idle")
    assert "nova is now idle" in noticed(luna)

    nova.ok("send", "@luna", "--", "it is done")

    (line,) = luna.ok("receipts", str(seq), "--json").json["receipts"]
    assert line["state"] == "answered"


def test_direct_message_back_answers_none_of_two_open_requests(luna: Shell, nova: Shell) -> None:
    first, second = asked(luna, "@nova"), asked(luna, "@nova")
    nova.ok("recv")

    nova.ok("send", "@luna", "--", "it is done")

    for seq in (first, second):
        (line,) = luna.ok("receipts", str(seq), "--json").json["receipts"]
        assert line["state"] == "seen"


def test_messages_that_cross_do_not_answer_each_other(luna: Shell, nova: Shell) -> None:
    seq = asked(luna, "@nova")

    sent = nova.ok("send", "@luna", "--intent", "request", "--", "can you, too?")

    assert sent.out == f"sent #{seq + 1} to luna\n"
    (line,) = luna.ok("receipts", str(seq), "--json").json["receipts"]
    assert line["state"] == "queued"
    assert f"w{seq}-nova" in luna.ok("events", "subs").out


@pytest.mark.parametrize("command", ["inbox", "recv --peek", "show SEQ"])
def test_request_that_a_command_has_shown_can_be_answered(command: str, luna: Shell, nova: Shell) -> None:
    seq = asked(luna, "@nova")
    nova.ok(*command.replace("SEQ", str(seq)).split())

    sent = nova.ok("send", "@luna", "--", "it is done")

    assert sent.out == f"sent #{seq + 1} to luna, as the answer to #{seq}\n"


async def test_program_that_acknowledges_after_its_answer_has_answered(bus: Home) -> None:
    async with palaver.connect("luna", home=bus.path) as luna, palaver.connect("nova", home=bus.path) as nova:
        request = await luna.send("@nova", "can you?", intent="request")
        message = await anext(nova.messages())

        answer = await nova.send("@luna", "it is done")
        await message.ack()

        assert answer.answers == request.seq
        (line,) = await luna.receipts(request.seq)
        assert (line.state, line.answer) == ("answered", answer.seq)


def test_message_to_others_answers_nothing(bus: Home, luna: Shell, nova: Shell) -> None:
    kira = joined(bus, "kira")
    seq = asked(luna, "@nova")
    nova.ok("recv")

    nova.ok("send", "@luna", "@kira", "--", "to both")
    nova.ok("send", "@kira", "--", "to kira")
    nova.ok("send", "@all", "--", "to all")

    (line,) = kira.ok("receipts", str(seq), "--json").json["receipts"]
    assert line["state"] == "seen"


# Requests from scripts


@pytest.mark.parametrize("to", [(), ("@script",)])
def test_request_of_a_script_can_be_answered(bus: Home, nova: Shell, to: tuple[str, ...]) -> None:
    seq = bus.ok("send", "@nova", "--intent", "request", "--json", "--", "is it green?").json["seq"]
    assert f"pal send --reply-to {seq} --" in nova.ok("recv").out

    sent = nova.ok("send", *to, "--reply-to", str(seq), "--", "yes")

    assert sent.out == (f"stored as #{seq + 2}, the answer to #{seq}; a script has no mailbox\n")
    (line,) = bus.ok("receipts", str(seq), "--json").json["receipts"]
    assert (line["state"], line["answer"]) == ("answered", seq + 2)
    assert bus.ok("show", str(line["answer"]), "--json").json["text"] == "yes"


def test_message_to_a_script_says_how_to_answer_it(bus: Home, nova: Shell) -> None:
    seq = bus.ok("send", "@nova", "--intent", "request", "--json", "--", "is it green?").json["seq"]
    nova.ok("recv")

    for words in (("@script",), ("@script", "@nova", "--reply-to", str(seq))):
        error = refused(nova, "send", *words, "--", "yes")
        assert error == (
            "pal: a script cannot be a recipient: --reply-to ID alone answers its message. Nothing was sent\n"
        )


# A forgotten text or recipient


@pytest.mark.parametrize("word", ["luna", "@luna", "lun", "workers"])
def test_name_without_a_text_is_refused_and_not_sent_to_all(nova: Shell, luna: Shell, word: str) -> None:
    error = refused(nova, "send", word)

    assert f"'{word}' is a recipient without a text: pal send @{word.strip('@')} -- TEXT" in error


@pytest.mark.parametrize("words", [("luna",), ("--", "luna")])
def test_script_does_not_broadcast_a_name(bus: Home, luna: Shell, words: tuple[str, ...]) -> None:
    assert bus.pal("send", *words).status != 0
    assert bus.pal("send", "luna", "--expects-reply").status != 0

    assert bus.texts() == []


def test_text_of_several_arguments_needs_a_separator(luna: Shell, nova: Shell) -> None:
    error = refused(luna, "send", "@nova", "hello", "out", "there")

    assert error == (
        "pal: no such agent: hello. If it belongs to the text, put -- before the text: "
        "pal send @nova -- hello out there\n"
    )


@pytest.mark.parametrize(
    ("to", "text"), [("nova", "hello there"), ("@nova", "ask @luna"), ("@nova luna room", "see there")]
)
def test_text_after_names_in_any_form_needs_a_separator(luna: Shell, nova: Shell, to: str, text: str) -> None:
    error = refused(luna, "send", *to.split(), *text.split())

    assert f"put -- before the text: pal send {to} -- {text}" in error


def test_proposed_command_is_quoted_for_a_shell(luna: Shell, nova: Shell) -> None:
    separated = refused(luna, "send", "#talk", "it", "isn't")
    without_text = refused(luna, "send", "#talk", "@claude-*")

    assert separated.endswith("""pal send '#talk' -- it 'isn'"'"'t'\n""")
    assert "pal send '#talk' '@claude-*' -- TEXT" in without_text


def test_wrong_name_among_recipients_gets_the_nearest_one(luna: Shell, nova: Shell) -> None:
    error = refused(luna, "send", "nova", "lunna", "please look")

    assert "no such agent: lunna (did you mean luna?). If it belongs to the text" in error


@pytest.mark.parametrize("words", [("@nova",), ("nova",), ("@nova", "--"), ()])
def test_pipe_without_an_option_says_how_to_send_it(bus: Home, nova: Shell, words: tuple[str, ...]) -> None:
    result = bus.pal("send", *words, content=b"from a pipe")

    assert result.status == 2
    to = "@nova " if words else ""
    assert f"Standard input is read only with --stdin: pal send {to}--stdin" in result.err
    assert bus.texts() == []


def test_dash_as_the_text_reads_standard_input(bus: Home, nova: Shell) -> None:
    bus.ok("send", "@nova", "-", content=b"from a pipe, not to @kira")

    assert nova.ok("recv", "--json").json["text"] == "from a pipe, not to @kira"


def test_two_recipients_without_a_text_are_refused(luna: Shell, nova: Shell) -> None:
    assert "pal send @nova @luna -- TEXT" in refused(nova, "send", "@nova", "@luna")


# Threads, and messages to all


def test_message_to_a_thread_goes_to_its_participants(bus: Home, luna: Shell, nova: Shell) -> None:
    kira, mila = joined(bus, "kira"), joined(bus, "mila")
    luna.ok("send", "@nova", "@kira", "--thread", "pr-1", "--", "please review")

    from_sender = luna.ok("send", "--thread", "pr-1", "--", "it is urgent")
    from_recipient = kira.ok("send", "--thread", "pr-1", "--", "I look")

    assert from_sender.out.endswith(" to nova, kira\n")
    assert from_recipient.out.endswith(" to luna, nova\n")
    assert mila.ok("recv", "--json").out == ""


def test_new_thread_needs_a_recipient(luna: Shell, nova: Shell) -> None:
    assert "the thread pr-1 is new: name its recipients" in refused(
        luna, "send", "--thread", "pr-1", "--", "x"
    )
    assert "--thread requires a name" in refused(luna, "send", "@nova", "--thread", "", "--", "x")
    assert "a thread needs a name" in refused(luna, "send", "@nova", "--thread", " ", "--", "x")


def test_thread_without_other_participants_needs_a_recipient(luna: Shell) -> None:
    luna.ok("send", "@luna", "--thread", "notes", "--", "to myself")

    assert "the thread notes has no other participants" in refused(
        luna, "send", "--thread", "notes", "--", "x"
    )


def test_broadcast_needs_its_address_except_from_a_script(bus: Home, luna: Shell, nova: Shell) -> None:
    error = refused(luna, "send", "--", "lunch?")
    by_person = run_as_person(bus, "send", "lunch?")

    assert "the message has no recipient: name one, or @all" in error
    assert by_person.status == 1
    assert luna.ok("send", "@all", "--", "lunch?").out.endswith(" to nova\n")
    assert bus.ok("send", "--", "the build is green").out.endswith(" to luna, nova\n")


# Texts and names


@pytest.mark.parametrize("text", ["", " ", "\n\t "])
def test_text_of_blanks_is_refused(bus: Home, luna: Shell, nova: Shell, text: str) -> None:
    assert "the message is empty" in refused(luna, "send", "@nova", "--", text)


def test_device_of_this_machine_selects_the_agent_here(bus: Home, luna: Shell, nova: Shell) -> None:
    joined(bus, "api-luna")
    run_as_person(bus, "join", "--remote", "luna:BOXE")
    own = bus.ok("status", "--json").json["device"]

    for device, name in ((own, "luna"), (own.lower(), "luna"), ("BOXE", "luna:BOXE"), ("boxe", "luna:BOXE")):
        sent = nova.ok("send", f"@luna:{device}", "--dry-run", "--json", "--", "x").json
        assert sent["delivered_to"] == [name]
    assert luna.ok("send", f"@luna:{own}", "--dry-run", "--json", "--", "x").json["delivered_to"] == ["luna"]


def test_only_a_person_adds_remote_names(bus: Home, luna: Shell) -> None:
    for result in (
        luna.pal("join", "--remote", "nova:BOXE", "--json"),
        bus.pal("join", "--remote", "nova:BOXE", "--json"),
    ):
        assert (result.status, result.error["error"]) == (1, "not_allowed")

    assert run_as_person(bus, "join", "--remote", "nova:BOXE").status == 0


# A person and an agent that waits for an answer


def test_person_is_told_that_a_message_is_not_the_awaited_reply(bus: Home, luna: Shell, nova: Shell) -> None:
    seq = asked(luna, "@human")

    plain = run_as_person(bus, "send", "@luna", "--", "by the way")
    as_json = run_as_person(bus, "send", "@luna", "--json", "--", "by the way")
    to_other = run_as_person(bus, "send", "@nova", "--", "hello")
    of_agent = nova.ok("send", "@luna", "--", "hello")

    assert plain.err == (
        f"pal: luna waits for an answer to #{seq}; this message is not a reply to it. "
        f"Reply with: pal send --reply-to {seq} -- TEXT\n"
    )
    assert [one.err for one in (as_json, to_other, of_agent)] == ["", "", ""]
    assert luna.ok("receipts", str(seq), "--json").json["receipts"][0]["state"] == "queued"


def test_answered_request_causes_no_hint(bus: Home, luna: Shell) -> None:
    seq = asked(luna, "@human")

    reply = run_as_person(bus, "send", "--reply-to", str(seq), "--", "yes")
    later = run_as_person(bus, "send", "@luna", "--", "by the way")

    assert (reply.err, later.err) == ("", "")
