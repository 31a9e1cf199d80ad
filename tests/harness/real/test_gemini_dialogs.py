"""Dialogs of Gemini CLI: recognized, named, and never typed into."""

import json
from collections.abc import Iterator

import pytest
from tests.daemon.stage import run_as_person
from tests.harness.real.gemini_stage import GeminiStage, gemini_stage
from tests.harness.real.harness_stage import PATIENCE_S, reply, send, tool
from tests.harness.real.install import installed

pytestmark = pytest.mark.harness

TRUST = "dialog: Do you trust the files in this folder?"
LOOP = "dialog: A potential loop was detected"


@pytest.fixture
def gemini() -> Iterator[GeminiStage]:
    """A home with a running bus in which Gemini CLI can be started."""
    with gemini_stage(installed("gemini")) as stage:
        yield stage


def change(gemini: GeminiStage, section: str, **given: object) -> None:
    """Change the user's settings before it is started."""
    found = json.loads(gemini.settings.read_bytes())
    found.setdefault(section, {}).update(given)
    gemini.settings.write_text(json.dumps(found))


def asks(gemini: GeminiStage, question: str) -> str:
    """Wait until the bus knows a question, and return the screen."""
    gemini.until(lambda: gemini.state() == ("blocked", question))
    gemini.until(lambda: gemini.gates()["terminal"] == "dialog")
    return gemini.screen()


def dialog_on(screen: str) -> str:
    """Return the box of the dialog: Gemini CLI may still draw lines above it."""
    return screen.rpartition("╭")[2]


def test_message_comes_after_the_folder_trust_dialog(gemini: GeminiStage) -> None:
    gemini.script.add(reply("I am awake"))
    change(gemini, "security", folderTrust={"enabled": True})
    gemini.start()
    luna = gemini.friend()
    before = asks(gemini, TRUST)

    urgent = send(luna, "@nova", "--interrupt", "--", "an urgent one")
    gemini.until(lambda: gemini.receipt(urgent)["state"] == "held")

    assert gemini.receipt(urgent)["reason"] == "dialog"
    assert dialog_on(gemini.screen()) == dialog_on(before)
    assert f"nova is blocked: {TRUST}" in gemini.home.ok("pending").out
    assert TRUST in gemini.home.ok("list").out
    assert TRUST in gemini.home.ok("status", "nova").out

    gemini.answer_dialog(gemini.sit_down(last=b"Trust folder"), "● 1. Trust folder")

    gemini.told("an urgent one")
    gemini.until_seen(urgent)


def test_loop_dialog_blocks_the_agent_until_a_person_has_chosen(gemini: GeminiStage) -> None:
    same = tool("list_directory", dir_path=".")
    gemini.script.add(*[reply("", same)] * 8, reply("read"))
    gemini.start("--approval-mode", "yolo", "-i", "go on")
    asks(gemini, LOOP)

    seq = send(gemini.friend(), "@nova", "--interrupt", "--", "are you there?")
    gemini.until(lambda: gemini.receipt(seq)["state"] == "held")

    # The rest of the screen may change: Gemini CLI writes a prompt itself while the dialog is open.
    assert gemini.receipt(seq)["reason"] == "dialog"
    assert "are you there?" not in gemini.screen()
    assert f"nova is blocked: {LOOP}" in gemini.home.ok("pending").out

    gemini.answer_dialog(gemini.sit_down(last=b"Disable loop"), "● 1. Keep loop")

    gemini.told("are you there?")
    gemini.until_seen(seq)
    gemini.until_idle()


def test_open_menu_is_not_typed_into(gemini: GeminiStage) -> None:
    gemini.script.add(reply("read"))
    gemini.start()
    person = gemini.sit_down()
    person.press(b"/theme")
    gemini.until(lambda: "> /theme" in gemini.screen())
    gemini.until(lambda: gemini.gates()["terminal"] == "draft")
    while gemini.gates()["terminal"] == "draft":
        person.press(b"\r")
        gemini.wait(lambda: gemini.gates()["terminal"] != "draft", PATIENCE_S)
    before = asks(gemini, "dialog: Select Theme")

    seq = send(gemini.friend(), "@nova", "--interrupt", "--", "are you there?")
    gemini.until(lambda: gemini.receipt(seq)["state"] == "held")

    assert dialog_on(gemini.screen()) == dialog_on(before)

    person.press(b"\x1b")

    gemini.told("are you there?")
    gemini.until_seen(seq)


def test_login_dialogs_are_not_typed_into(gemini: GeminiStage) -> None:
    found = json.loads(gemini.settings.read_bytes())
    del found["security"]["auth"]
    gemini.settings.write_text(json.dumps(found))
    gemini.launch(
        *("env", "-u", "GEMINI_API_KEY", "pal", "gemini", "--name", "nova", "--detach"),
    )
    asks(gemini, "dialog: How would you like to authenticate for this project?")
    seq = send(gemini.friend(), "@nova", "--interrupt", "--", "a secret")
    gemini.until(lambda: gemini.receipt(seq)["state"] == "held")

    person = gemini.sit_down(last=b"Vertex")
    person.press(b"\x1b[B")
    gemini.until(lambda: "● 2. Use Gemini API Key" in gemini.screen())
    person.press(b"\r")

    asks(gemini, "dialog: Enter Gemini API Key")
    assert "a secret" not in gemini.screen()
    assert gemini.receipt(seq)["state"] == "held"


def test_permission_request_can_be_decided_only_at_its_terminal(gemini: GeminiStage) -> None:
    made = gemini.project / "made.txt"
    gemini.script.add(reply("", tool("run_shell_command", command=f"touch {made}")), reply("made"))
    assert run_as_person(gemini.home, "config", "set", "approvals", "1").status == 0
    gemini.home.ok("down")
    gemini.home.ok("up")
    gemini.start("--approval-mode", "default", "-i", "make it")
    asks(gemini, f"permission: touch {made}")

    shown = gemini.home.ok("pending").out
    (pending,) = gemini.home.ok("pending", "--json").lines
    approved = run_as_person(gemini.home, "approve", "nova")

    assert f"nova is blocked: permission: touch {made}" in shown
    assert "nova is blocked until a person answers in its own terminal" in shown
    assert "pal attach nova" in shown
    assert (pending["id"], pending["answerable"], pending["text"]) == (
        None,
        False,
        f"permission: touch {made}",
    )
    assert approved.status == 1
    assert "nova asks in its own terminal and cannot be answered from here" in approved.err
    assert "pal attach nova" in approved.err
    assert not made.exists()
