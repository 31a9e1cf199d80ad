"""`pal chat` as a person uses it: on a real terminal, and in a pipe."""

import re
import shlex
import subprocess
from collections.abc import Iterator

import pytest
from tests.daemon.crew import HANDOFF, Agent, Crew
from tests.daemon.stage import Home, Result, run_script_as_person
from tests.daemon.tmux import HAS_TMUX, Pane, in_folder, pane
from tests.limits import LIMIT_S

needs_tmux = pytest.mark.skipif(not HAS_TMUX, reason="tmux is not installed, and these look at its panes")

FIRST = "the parser test is red again"


@pytest.fixture
def crew(bus: Home) -> Crew:
    return Crew(bus)


@pytest.fixture
def luna(crew: Crew) -> Agent:
    """A Codex agent that has already sent a message."""
    agent = crew.member("luna", "codex")
    agent.ok("send", "--room", "shop", "--", FIRST)
    return agent


@pytest.fixture
def nova(crew: Crew) -> Agent:
    return crew.member("nova", "claude")


@pytest.fixture
def chat(bus: Home, crew: Crew, luna: Agent, nova: Agent) -> Iterator[Pane]:
    """The person's terminal, with the chat open."""
    with pane(bus, in_folder(crew.folder, "chat"), columns=100, rows=30) as opened:
        opened.shows(FIRST, "the stick is free  2 of 2 here")
        yield opened


# On a terminal


@needs_tmux
def test_chat_opens_with_earlier_messages_and_shows_new_ones(chat: Pane, luna: Agent, nova: Agent) -> None:
    chat.type("half a lin")

    nova.ok("send", "luna", "--room", "shop", "--", "that is mine")
    luna.claim()

    chat.shows("nova → luna", "that is mine", "luna has the stick  2 of 2 here")
    # The line being typed stays below the new messages, unchanged.
    chat.shows("half a lin")


@needs_tmux
def test_line_goes_to_the_room_or_to_the_named_members(
    crew: Crew, chat: Pane, luna: Agent, nova: Agent
) -> None:
    chat.say("hello everybody")
    chat.shows("  hello everybody")
    chat.say("@luna look at this")
    chat.shows("you → luna", "  look at this")
    chat.say("!@nova stop, please")
    chat.shows("you → nova", "interrupt", "  stop, please")

    mail = nova.ok("recv", "--json").lines
    sent = sorted((one["text"], one["priority"], one["from"]) for one in mail)
    assert sent == [("hello everybody", "normal", "human"), ("stop, please", "interrupt", "human")]
    texts = [one["text"] for one in luna.ok("recv", "--json").lines]
    assert sorted(texts) == ["hello everybody", "look at this"]
    members = luna.state()["members"]
    assert [member["agent_id"] for member in members] == ["luna", "nova"]


@needs_tmux
def test_line_with_an_unknown_name_is_not_sent(crew: Crew, chat: Pane, luna: Agent) -> None:
    before = len(crew.events("message"))

    chat.say("@lunq can you look?")
    chat.shows("not sent: ", "@lunq can you look?")
    assert len(crew.events("message")) == before

    # The whole line is kept: after the name is corrected it is sent.
    chat.press("Home", "Right", "Right", "Right", "Right", "DC")
    chat.type("a")
    chat.press("Enter")
    chat.shows("you → luna", "  can you look?")
    assert luna.ok("recv", "--json").json["text"] == "can you look?"


@needs_tmux
def test_marks_say_why_a_message_waits_and_when_it_was_seen_and_answered(chat: Pane, luna: Agent) -> None:
    chat.say("@luna how far are you?")
    chat.shows("○ waiting: luna: ")
    asked = luna.ok("recv", "--json").json["seq"]
    chat.shows("✓ seen: luna")

    luna.ok("send", "room", "--reply-to", str(asked), "--", "nearly there")

    chat.shows("nearly there", "↩ answered: luna")


@needs_tmux
def test_chat_commands_show_their_results(crew: Crew, chat: Pane, luna: Agent, nova: Agent) -> None:
    luna.claim()
    luna.ok("stick", "pass", "nova", *HANDOFF)
    nova.shell.close()
    luna.sees_away("nova")

    for line, texts in (
        ("/who", ("Members of", "luna  ", "nova  ")),
        ("/events", ("pal events --room", "nova")),
        ("/help", ("routing is not privacy", "/who")),
    ):
        chat.say(line)
        chat.shows(*texts)
        chat.press("Escape")
        chat.becomes(lambda screen: not any("Esc closes" in shown for shown in screen))
    chat.say("/dance")
    chat.shows("/dance is not a command")
    chat.say("//etc is a folder")
    chat.shows("  /etc is a folder")
    chat.say("/quit")
    chat.shows("ended with 0")


@needs_tmux
def test_all_shows_what_members_write_outside_the_room(chat: Pane, luna: Agent) -> None:
    luna.ok("send", "nova", "--", "just between us")
    luna.ok("send", "--room", "shop", "--", "to the room")
    chat.shows("to the room")
    assert not any("just between us" in line for line in chat.screen())

    chat.say("/all")

    chat.shows("just between us", "with what members write elsewhere")


@needs_tmux
def test_request_to_the_person_from_outside_the_room_is_in_the_top_line(chat: Pane, luna: Agent) -> None:
    luna.ok("send", "@human", "--intent", "request", "--", "which port?")

    chat.shows("| luna: which port?")


@needs_tmux
@pytest.mark.parametrize("key", ["C-d", "C-c"])
def test_key_ends_the_chat_and_restores_the_terminal(bus: Home, crew: Crew, luna: Agent, key: str) -> None:
    script = (
        f"stty -a >before; {in_folder(crew.folder, 'chat')}; stty -a >after; cmp before after && echo same"
    )
    with pane(bus, f"cd {shlex.quote(str(crew.folder))} && {script}") as chat:
        chat.shows(FIRST, "the stick is free")

        chat.press(key)

        chat.shows("same", "ended with 0")


@needs_tmux
def test_narrow_pane_without_colour_shows_every_text_completely(
    bus: Home, crew: Crew, luna: Agent, nova: Agent
) -> None:
    whole = (
        "this is a sentence that needs three lines",
        "and so is this one, which is longer than the pane",
    )
    nova.ok("send", "luna", "--room", "shop", "--interrupt", "--", whole[0])
    with pane(bus, in_folder(crew.folder, "chat"), columns=40, rows=20, env={"NO_COLOR": "1"}) as chat:
        chat.shows("nova → luna", "interrupt")

        chat.say("@luna @nova and so is this one, which is longer than the pane")

        chat.shows("you → luna, nova")
        screen = chat.becomes(lambda screen: has_whole(screen, *whole))
        assert len(screen) <= 20
        assert all(len(line) <= 40 for line in screen)
        assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", "".join(chat.screen(with_colours=True)))


def has_whole(screen: list[str], *texts: str) -> bool:
    """Return whether each text is shown completely, over as many lines as it needs."""
    shown = " ".join(line.strip() for line in screen)
    return all(text in shown for text in texts)


@needs_tmux
def test_chat_continues_after_a_crash_and_waits_while_the_bus_is_stopped(
    bus: Home, chat: Pane, luna: Agent
) -> None:
    bus.kill()
    luna.ok("send", "--room", "shop", "--", "after the crash")
    chat.shows("after the crash")
    chat.say("still here")
    chat.shows("  still here")

    bus.ok("down")
    chat.shows("bus away", "  still here")
    bus.ok("up")
    luna.ok("send", "--room", "shop", "--", "after the stop")

    chat.shows("bus up", "after the stop")


@needs_tmux
def test_paste_of_several_lines_is_one_message(chat: Pane, luna: Agent) -> None:
    chat.type("\x1b[200~@luna first\nsecond\x1b[201~")
    chat.shows("@luna first", "second")
    chat.press("Enter")

    chat.shows("you → luna", "  first", "  second")
    assert luna.ok("recv", "--json").json["text"] == "first\nsecond"


# In a pipe


def in_pipe(home: Home, crew: Crew, content: str) -> Result:
    """Run the person's `pal chat` with lines from a pipe."""
    path = home.spare_path()
    path.write_text(content)
    folder = shlex.quote(str(crew.folder))
    return run_script_as_person(home, f"cd {folder} && cat {shlex.quote(str(path))} | pal chat")


def test_without_a_terminal_input_lines_are_sent_and_events_are_printed(
    bus: Home, crew: Crew, luna: Agent, nova: Agent
) -> None:
    done = in_pipe(bus, crew, "hello\n\n@nova you too\n/who\n")

    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].endswith(f"luna: {FIRST}")
    at = lines.index("luna  codex, here")  # events may come before or after it
    assert lines[at + 1] == "nova  claude, here"
    assert [one["text"] for one in nova.ok("recv", "--json").lines] == ["hello", "you too"]


def test_without_a_terminal_all_shows_what_members_write_outside_the_room(
    bus: Home, crew: Crew, luna: Agent, nova: Agent
) -> None:
    luna.ok("send", "nova", "--thread", "pr-1", "--", "just between us")
    process = bus.start("chat", "--room", "shop", stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline().decode().endswith(f"luna: {FIRST}\n")

    process.stdin.write(b"/all\n")
    process.stdin.flush()
    assert process.stdout.readline().decode().endswith("(outside) luna → nova: just between us\n")
    assert process.stdout.readline() == "· from now on also what members write outside the room\n".encode()
    nova.ok("send", "luna", "--", "not in the room")
    assert process.stdout.readline().decode().endswith("(outside) nova → luna: not in the room\n")

    process.stdin.write(b"/all\n")
    process.stdin.flush()
    assert process.stdout.readline() == "· only the room\n".encode()
    nova.ok("send", "luna", "--", "unseen")
    luna.ok("send", "--room", "shop", "--", "in the room")
    assert process.stdout.readline().decode().endswith("luna: in the room\n")
    process.stdin.close()
    assert process.wait(LIMIT_S) == 0


def test_chat_without_a_terminal_counts_the_entries_for_the_person(
    bus: Home, crew: Crew, luna: Agent
) -> None:
    process = bus.start("chat", "--room", "shop", stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline().decode().endswith(f"luna: {FIRST}\n")

    luna.ok("send", "@human", "--intent", "request", "--", "may I?")
    assert process.stdout.readline() == "· 1 needs you; 'pal pending' shows them\n".encode()
    luna.ok("send", "@human", "--intent", "request", "--", "and this?")
    assert process.stdout.readline() == "· 2 need you; 'pal pending' shows them\n".encode()

    process.stdin.close()
    assert process.wait(LIMIT_S) == 0


def test_without_a_terminal_a_refused_line_does_not_stop_later_lines(
    bus: Home, crew: Crew, luna: Agent, nova: Agent
) -> None:
    done = in_pipe(bus, crew, f"one\n@zed two\n/dance\n{'x' * 5000}\nthree\n/quit\nfour\n")

    assert done.status == 1
    first, second, third = done.err.splitlines()
    assert first == "pal: not sent: no such member: zed; the members are luna, nova"
    assert second.startswith("pal: /dance is not a command")
    assert third.startswith("pal: not sent: the message has 5000 bytes")
    assert [one["text"] for one in nova.ok("recv", "--json").lines] == ["one", "three"]


def test_without_a_terminal_chat_ends_with_the_bus_even_if_input_is_open(
    bus: Home, crew: Crew, luna: Agent
) -> None:
    process = bus.start("chat", "--room", "shop", stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline().decode().endswith(f"luna: {FIRST}\n")

    luna.ok("send", "--room", "shop", "--", "live")
    luna.claim()
    assert process.stdout.readline().decode().endswith("luna: live\n")
    assert process.stdout.readline().decode().endswith("· luna has the stick, turn 1\n")
    bus.ok("down")

    assert process.wait(LIMIT_S) == 1
    assert process.stderr is not None
    assert (
        process.stderr.read().decode()
        == "pal: the bus was stopped with 'pal down'; 'pal up' starts it again\n"
    )


def test_chat_without_a_room_is_refused(bus: Home) -> None:
    refused = bus.pal("chat", str(bus.path), "--json")

    assert (refused.status, refused.error["error"]) == (1, "room_not_found")
