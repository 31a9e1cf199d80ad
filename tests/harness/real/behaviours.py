"""Checks for an agent in a terminal: a real harness, or a program that replaces one."""

from tests.harness.real.harness_stage import HarnessStage, send

_NEXT_KEY_S = 10.0
"""Seconds after which a person presses another key, because the harness shows none of the others."""


def wakes_one_that_rests(stage: HarnessStage, lane: str) -> tuple[int, str]:
    """Check that a message wakes an idle agent once; return its seq and the conversation of the model."""
    stage.begin(lane=lane)
    luna = stage.friend()

    seq = send(luna, "@nova", "--intent", "request", "--", "please look at the build")

    asked = stage.told("please look at the build")
    assert stage.count("please look at the build", asked) == 1
    receipt = stage.until_seen(seq)
    assert (receipt["lane"], receipt["grade"]) == (lane, stage.grades[lane])
    return seq, asked


def leaves_a_dialog_as_it_is(stage: HarnessStage, lane: str) -> None:
    """Check that a dialog stays unchanged and later messages arrive once, after it.

    Until then the ledger shows the reason for the delay.
    """
    stage.begin_asking(lane)
    luna = stage.friend()
    stage.until(lambda: stage.state()[0] == "blocked")
    stage.until(lambda: "dialog" in stage.gates().values())  # a hook may report it before its screen does
    before = stage.until_drawn()

    normal = send(luna, "@nova", "--", "a normal one")
    urgent = send(luna, "@nova", "--interrupt", "--", "an urgent one: y")
    stage.until(lambda: stage.receipt(urgent)["state"] == "held")

    assert stage.receipt(urgent)["reason"] == "dialog"
    assert stage.receipt(normal)["state"] == "queued"
    stage.until(lambda: f"#{urgent} is held for nova" in luna.ok("recv", "--json", "--peek").out)
    assert stage.until_drawn() == before
    assert not stage.has_leave()

    stage.give_leave()  # The permitted call may be stopped at once by the interrupt.

    stage.until_seen(urgent)
    stage.until_seen(normal)
    stage.told("an urgent one: y")
    stage.told("a normal one")
    stage.until_idle()
    asked = stage.all_told()
    assert [stage.count(text, asked) for text in ("a normal one", "an urgent one: y")] == [1, 1]


def leaves_a_draft_as_it_was(stage: HarnessStage, lane: str) -> None:
    """Check that a draft of a person stays in the composer and is sent when the person sends it."""
    stage.begin(asks=True, lane=lane)
    luna = stage.friend()
    person = stage.sit_down()
    person.press(b"half a thou")
    # On a busy machine Codex sometimes leaves first keys unread: its main thread waits for a lock, and the
    # thread that waits for keys does not see them.
    if not stage.wait(lambda: stage.composer("half a thou") in stage.screen(), _NEXT_KEY_S):
        person.press(b" \x7f")
    stage.until(lambda: stage.composer("half a thou") in stage.screen())

    seq = send(luna, "@nova", "--", "are you there?")
    if lane == "native":
        stage.until_seen(seq)
        stage.until_idle()
    else:
        stage.until(lambda: stage.gates()["terminal"] == "draft")
        assert stage.receipt(seq)["state"] == "queued"

    # One look is not enough: it may show a frame that is drawn only in part.
    stage.until(lambda: stage.composer("half a thou") in stage.screen())

    stage.type_keys(person, "ght", after="half a thou")
    person.press(b"\r")

    stage.told("half a thought")
    assert stage.count("are you there?", stage.told("are you there?")) == 1
    stage.until_seen(seq)
