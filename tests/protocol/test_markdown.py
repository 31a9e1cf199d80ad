"""A page of Markdown shows every event, and no text of an event becomes markup."""

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from palaver.protocol.envelope import Event
from palaver.protocol.summary import MarkdownPage, begin_page, escape_inline, fenced

TEXTS = st.one_of(
    st.text(max_size=40),
    st.lists(
        st.sampled_from(["```", "````", "`", "~~~", "\n", "\r", "# ", "> ", "<b>", "    ", "a", "|"])
    ).map("".join),
)


def event(seq: int = 42, *, type: str = "message", **payload: object) -> Event:
    return Event(
        seq=seq, id="id", type=type, sender="luna", to=("nova",), ts=7, device="BOXE", payload=payload
    )


def page() -> MarkdownPage:
    return MarkdownPage(lambda ts: f"at {ts}")


def unfenced(block: str) -> tuple[str, str]:
    """Parse a fence as CommonMark does, up to the first line of as many backticks. Return text and rest."""
    head, _, rest = block.partition("\n")
    opening = re.match(r"`{3,}(?=[^`]*$)", head)
    assert opening is not None
    closing = re.search(rf"(?:^|(?<=[\r\n])) {{0,3}}`{{{len(opening[0])},}}[ \t]*(?=\r|\n|$)", rest)
    assert closing is not None
    return rest[: closing.start()], rest[closing.end() :]


def test_message_has_a_heading_and_its_text_in_a_fence() -> None:
    shown = page().add(event(text="can you review this?", intent="request", reply_to="40"))

    assert shown == (
        "\n### #42 luna → nova, request, answers \\#40, at 7\n\n```text\ncan you review this?\n```\n"
    )


def test_threads_are_headings_and_a_continued_one_says_so() -> None:
    made = page()
    threads = [None, "pr-1", "pr-1", "b", "pr-1", None]

    shown = "".join(made.add(event(text="x", thread=name)) for name in threads)

    assert re.findall(r"^## .*$", shown, re.MULTILINE) == [
        "## Thread pr-1",
        "## Thread b",
        "## Thread pr-1 (continued)",
        "## No thread",
    ]


def test_other_events_show_their_payload_as_json() -> None:
    shown = page().add(event(type="status", state="idle", thread=3))

    heading, _, block = shown.lstrip("\n").partition("\n\n")
    text, rest = unfenced(block)
    assert heading == "### #42 luna → nova, status, at 7"
    assert json.loads(text) == {"state": "idle", "thread": 3}
    assert rest == "\n"


def test_message_with_a_command_shows_all_its_fields() -> None:
    shown = page().add(event(text="x", command="deploy", payload={"to": "prod"}))

    assert '"command": "deploy"' in shown
    assert '"to": "prod"' in shown


def test_event_without_content_is_only_a_heading() -> None:
    assert page().add(event(type="agent.bye")) == "\n### #42 luna → nova, agent.bye, at 7\n"
    assert page().add(event(text="")) == "\n### #42 luna → nova, at 7\n"


def test_event_without_recipients_names_only_its_sender() -> None:
    made = Event(seq=1, id="id", type="life", sender="luna", to=(), ts=7, device="BOXE", payload={})

    assert page().add(made) == "\n### #1 luna, life, at 7\n"


def test_page_begins_with_a_title_and_a_note() -> None:
    assert begin_page("Log of <b>", "Secrets *are* redacted.") == (
        "# Log of \\<b\\>\n\nSecrets \\*are\\* redacted.\n"
    )


@given(TEXTS)
def test_body_cannot_close_its_fence(body: str) -> None:
    text, rest = unfenced(fenced(body) + "behind")

    assert text == (body if body.endswith("\n") or not body else body + "\n")
    assert rest == "\nbehind"


@given(TEXTS)
def test_inline_text_is_one_line_with_every_sign_escaped(text: str) -> None:
    shown = escape_inline(text)

    assert len(shown.splitlines()) <= 1
    assert not re.search(r"[`*_\[\]<>&#|~!]", re.sub(r"\\.", "", shown))


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_every_heading_on_a_page_is_generated(body: str, thread: str, sender: str, kind: str) -> None:
    made = Event(
        seq=1,
        id="id",
        type=kind or "message",
        sender=sender or "x",
        to=(thread, body),
        ts=7,
        device="BOXE",
        payload={"text": body, "thread": thread, "intent": kind, "reply_to": body},
    )

    shown = page().add(made)

    outside = re.split(r"[\r\n]+", shown.partition("\n\n```")[0].strip("\r\n"))
    assert len(outside) == 1 + bool(thread)
    assert outside[-1].startswith("### #1 ")
    assert all(line.startswith("## Thread") for line in outside[:-1])
