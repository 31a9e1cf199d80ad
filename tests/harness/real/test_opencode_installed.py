"""OpenCode, started without `pal` after `pal install opencode`, with a scripted model."""

import os
import signal
from collections.abc import Iterator

import pytest
from tests.harness.real.harness_home import LIMIT_S
from tests.harness.real.harness_stage import reply, send, tool
from tests.harness.real.install import installed
from tests.harness.real.opencode_installed_stage import InstalledStage, installed_stage

pytestmark = pytest.mark.harness


@pytest.fixture
def opencode() -> Iterator[InstalledStage]:
    """A home with a running bus, and an OpenCode that knows it."""
    with installed_stage(installed("opencode")) as stage:
        yield stage


def only_agent(opencode: InstalledStage) -> str:
    opencode.until(lambda: len(opencode.agents()) == 1)
    (name,) = opencode.agents().values()
    return name


def test_idle_session_is_woken_and_its_draft_is_unchanged(opencode: InstalledStage) -> None:
    opencode.script.add(reply("first"), reply("I am awake"))
    person = opencode.open_terminal("--prompt", "begin")
    opencode.requests(1)
    name = only_agent(opencode)
    opencode.until(lambda: opencode.state(name)[0] == "idle")
    person.press(b"half a thou")
    opencode.until(lambda: "half a thou" in opencode.shown(person))

    seq = send(opencode.friend(), f"@{name}", "--", "are you there?")

    assert "are you there?" in opencode.requests(2)[1].conversation
    conversation = opencode.script.main[0].conversation
    assert f"You are {name} on Palaver" in conversation
    assert "a message wakes you" in conversation
    receipt = opencode.until_seen(seq)
    assert (receipt["lane"], receipt["grade"]) == ("native", "context")
    opencode.until(lambda: "I am awake" in opencode.shown(person))
    assert "half a thou" in opencode.shown(person)
    assert len(opencode.companions()) == 1


def test_busy_session_gets_messages_and_its_dialog_is_unchanged(opencode: InstalledStage) -> None:
    made = opencode.project / "made.txt"
    opencode.script.add(
        reply("", tool("bash", command="echo the-result", description="x"), gate="busy"),
        reply("", opencode.asking_to_make(made)),
        reply("made"),
        reply("read"),
    )
    person = opencode.open_terminal("--prompt", "begin")
    opencode.requests(1)
    name = only_agent(opencode)
    luna = opencode.friend()
    opencode.until(lambda: opencode.state(name) == ("active", "thinking"))

    early = send(luna, f"@{name}", "--", "stop at the second")
    opencode.until(lambda: opencode.receipt(early)["state"] == "submitted")
    opencode.script.open("busy")

    asked = opencode.requests(2)[1].conversation
    assert "the-result" in asked
    assert "stop at the second" in asked
    assert opencode.until_seen(early)["grade"] == "context"

    opencode.until(lambda: opencode.state(name) == ("blocked", f"permission: edit: {made}"))
    opencode.until(lambda: "Allow once" in opencode.shown(person))
    late = send(luna, f"@{name}", "--", "a normal one")
    urgent = send(luna, f"@{name}", "--interrupt", "--", "an urgent one")
    opencode.until(lambda: opencode.receipt(urgent)["state"] == "held")
    assert opencode.receipt(urgent)["reason"] == "dialog"
    assert opencode.receipt(late)["state"] == "queued"
    (shown,) = opencode.home.ok("pending", "--json").lines
    assert (shown["agent"], shown["id"]) == (name, None)
    assert "Allow once" in opencode.shown(person)
    assert not made.exists()

    person.press(b"\r")

    assert opencode.until_seen(urgent)["grade"] == "context"
    assert opencode.until_seen(late)["grade"] == "context"
    assert made.exists()
    assert opencode.script.main[-1].conversation.count("a normal one") == 1


def test_sessions_of_one_process_never_get_each_others_messages(opencode: InstalledStage) -> None:
    opencode.script.default = reply("read")
    process = opencode.serve()
    try:
        first, second = opencode.begin_session("I am the first"), opencode.begin_session("I am the second")
        opencode.until(lambda: {first, second} <= opencode.agents().keys())
        names = opencode.agents()
        luna = opencode.friend()
        for name in names.values():
            opencode.until(lambda name=name: opencode.state(name)[0] == "idle")  # type: ignore[misc]  # the name is bound per iteration

        one = send(luna, f"@{names[first]}", "--", "for-number-one")
        two = send(luna, f"@{names[second]}", "--", "for-number-two")

        opencode.until_seen(one)
        opencode.until_seen(two)
        conversation = [request.conversation for request in opencode.script.main]
        assert all("I am the first" in text for text in conversation if "for-number-one" in text)
        assert all("I am the second" in text for text in conversation if "for-number-two" in text)
        whoami = tool(
            "bash", command=f"{opencode.shell_pal} --home {opencode.home.path} whoami --json", description="x"
        )
        opencode.script.add(reply("", whoami))
        send(luna, f"@{names[second]}", "--", "who are you?")
        assert f'\\"name\\":\\"{names[second]}\\"' in opencode.told('\\"kind\\":')
        opencode.until(lambda: opencode.state(names[second])[0] == "idle")
        opencode.script.add(reply("", tool("palaver_send", text="by a tool", to="@luna")))
        send(luna, f"@{names[first]}", "--", "say something")
        opencode.until(lambda: "by a tool" in opencode.home.texts())
        sent = [
            one for one in opencode.home.events("--type", "message") if one["payload"]["text"] == "by a tool"
        ]
        assert [one["from"] for one in sent] == [names[first]]
    finally:
        process.kill()
        process.wait()


def test_one_shot_session_is_not_promised_a_wake(opencode: InstalledStage) -> None:
    (opencode.project / "README").write_text("nothing\n")
    opencode.script.add(reply("", tool("read", filePath=str(opencode.project / "README")), gate="busy"))
    opencode.script.add(reply("done"))
    process = opencode.run_without_terminal("run", "begin")
    try:
        opencode.requests(1)
        name = only_agent(opencode)
        seq = send(opencode.friend(), f"@{name}", "--", "while you work")
        opencode.until(lambda: opencode.receipt(seq)["state"] == "submitted")
        opencode.script.open("busy")

        asked = opencode.requests(2)[1].conversation

        assert process.wait(LIMIT_S) == 0
        assert f"You are {name} on Palaver" in asked
        assert "while you work" in asked
        assert "Nothing wakes you" in asked
        assert "a message wakes you" not in asked
    finally:
        process.kill()
        process.wait()


def test_session_runs_without_a_daemon_and_joins_a_later_one(opencode: InstalledStage) -> None:
    opencode.script.add(reply("first"), reply("second"), reply("awake"))
    opencode.home.ok("down")
    process = opencode.serve()
    try:
        session = opencode.begin_session("nobody is there")
        opencode.requests(1)

        opencode.home.ok("up")
        opencode.until(lambda: session in opencode.agents())
        name = opencode.agents()[session]
        opencode.home.kill(signal.SIGKILL)
        opencode.ask(
            "POST", f"/session/{session}/prompt_async", {"parts": [{"type": "text", "text": "go on"}]}
        )
        opencode.requests(2)
        opencode.home.ok("up")

        opencode.until(lambda: opencode.agents().get(session) == name)
        seq = send(opencode.friend(), f"@{name}", "--", "welcome back")
        assert opencode.until_seen(seq)["grade"] == "context"
    finally:
        process.kill()
        process.wait()


def test_hung_daemon_does_not_delay_a_turn(opencode: InstalledStage) -> None:
    opencode.script.add(reply("first"))
    daemon = opencode.home.pid
    process = opencode.serve()
    os.kill(daemon, signal.SIGSTOP)
    try:
        opencode.begin_session("go on")

        opencode.requests(1)
    finally:
        os.kill(daemon, signal.SIGCONT)
        process.kill()
        process.wait()


def test_killed_server_leaves_no_process_and_no_agent(opencode: InstalledStage) -> None:
    opencode.script.add(reply("first"))
    process = opencode.serve()
    session = opencode.begin_session("go on")
    opencode.until(lambda: session in opencode.agents())

    process.kill()
    process.wait()

    opencode.until_gone()
    opencode.until(lambda: session not in opencode.agents())


def test_session_started_with_pal_gets_messages_once(opencode: InstalledStage) -> None:
    opencode.script.add(reply("first"), reply("second"))
    opencode.start("--prompt", "begin")
    opencode.requests(1)
    opencode.until(lambda: opencode.state()[0] == "idle")

    seq = send(opencode.friend(), "@nova", "--", "only once")

    assert opencode.until_seen(seq)["lane"] == "native"
    assert opencode.script.main[-1].conversation.count("only once") == 1
    assert list(opencode.agents().values()) == ["nova"]
    opencode.until(lambda: opencode.companions() == [])


def test_uninstall_restores_the_settings(opencode: InstalledStage) -> None:
    with_ours = opencode.settings.read_text()

    opencode.home.ok("uninstall", "opencode", "--yes")

    assert "palaver" in with_ours
    assert "palaver" not in opencode.settings.read_text()
    assert not (opencode.home.path / "install" / "opencode").exists()
