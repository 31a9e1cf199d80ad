"""Short summaries of events, for lists and notices. Pure and total: no payload makes it fail."""

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from palaver.protocol.envelope import Event
from palaver.protocol.message import MESSAGE, readable_text


def summary(event: Event) -> str:
    """Return a summary of an event without its type, sender and seq, which are shown next to it."""
    field = event.payload.get
    match event.type:
        case "status":
            file = field("file")
            return _with(field("state"), field("detail"), field("tool"), file and f"in {file}")
        case "agent.hello":
            return _with("joined", field("runtime"), field("version"))
        case "agent.bye":
            return _with("left", field("reason"))
        case "life":
            return _with(field("action"), field("reason"), field("version"), field("text"))
        case "agent.paused" | "agent.unpaused":
            return str(field("agent"))
        case "delivery":
            seqs = field("messages")
            numbers = [f"#{seq}" for seq in seqs] if isinstance(seqs, (list, tuple)) else []
            said = f"{field('state')} {', '.join(numbers)}"
            return _with(said, field("lane"), field("grade"), field("reason"))
        case "bundle":
            return readable_text(event)
        case "member_joined" | "member_left" | "kick" | "close" | "note_resolved":
            return _with(field("room"), field("from"), field("path"), field("note"), field("reason"))
        case "release":
            return _turn(event.payload, holder=field("from"))
        case "claim" | "takeover" | "pass" | "reservation_expired":
            return _turn(event.payload)
        case "note_added":
            return f"{field('room')}: {field('text')}"
        case "task.create":
            assignee = field("assignee")
            return _with(field("title"), assignee and f"for {assignee}")
        case "task.update":
            assignee = field("assignee")
            changes = (field("status"), field("title"), assignee and f"for {assignee}")
            return _with(field("task_id"), *changes)
        case "task.complete":
            return _with(field("task_id"), field("summary"))
        case "sub.added":
            said = f"{field('id')} for {field('owner')}"
            return _with(said, field("preset"), *_filters(field("filter")), field("once") and "once")
        case "sub.removed":
            return _with(field("id"), field("reason"))
        case "redacted":
            return f"the text of #{field('event')}"
        case "setting.changed":
            old = field("old")
            return _with(f"{field('key')} = {field('value')}", old is not None and f"was {old}")
    text = readable_text(event)
    return text if event.type == MESSAGE else text.removeprefix(event.type).lstrip()


def _filters(wanted: object) -> list[str]:
    """Return each filter as its name and words."""
    found = wanted.items() if isinstance(wanted, Mapping) else ()
    return [
        f"{name} {' '.join(map(str, words))}" if isinstance(words, (list, tuple)) else f"{name} {words}"
        for name, words in found
    ]


def _turn(payload: Mapping[str, object], holder: object = None) -> str:
    """Return a summary of a stick event: room and turn, recipient, reason, and status."""
    field = payload.get
    whose, handoff = field("reserved_for"), field("handoff")
    status = handoff.get("status") if isinstance(handoff, Mapping) else None
    why = (field("cause"), field("reason"), status)
    held = holder and f"held by {holder}"
    return _with(field("room"), f"turn {field('turn_id')}", held, whose and f"for {whose}", *why)


def _with(word: object, *details: object) -> str:
    said = ", ".join(str(detail) for detail in details if detail)
    return f"{word} ({said})" if said else str(word)


# --------------------
# The log as a page of Markdown: a heading for each thread and each event. Pure.
#
#     ## Thread pr-123
#
#     ### #42 luna → nova, request, 2026-03-01 09:00:03
#
#     ```text
#     can you review this?
#     ```
#
# Bodies, names and types are shown literally and never become markup: a body is in a fence that is longer
# than any in it, and in a heading every special character is escaped.

_SHORTEST_FENCE: Final = 3
_BACKTICKS: Final = re.compile(r"`+")
_SIGNS: Final = re.compile(r"[\\`*_{}\[\]<>&#|~!^$]")
_BREAKS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\s]+")

_encode: Final = msgspec.json.Encoder().encode


def begin_page(title: str, note: str) -> str:
    """Return the head of a page."""
    return f"# {escape_inline(title)}\n\n{escape_inline(note)}\n"


class MarkdownPage:
    """Formats events one after another, and remembers the current thread."""

    def __init__(self, format_time: Callable[[int], str]) -> None:
        """`format_time` formats a time in Unix milliseconds for the reader."""
        self._format_time = format_time
        self._thread: str | None = None
        self._seen: set[str] = set()

    def add(self, event: Event) -> str:
        """Return the next part of the page: a heading if the thread changes, and the event."""
        return f"{self._thread_heading(event)}\n### {self._heading(event)}\n{_body(event)}"

    def _thread_heading(self, event: Event) -> str:
        thread = event.payload.get("thread")
        name = thread if isinstance(thread, str) else ""
        if name == self._thread:
            return ""
        is_first = name not in self._seen
        self._thread = name
        self._seen.add(name)
        if not name:
            return "" if is_first and len(self._seen) == 1 else "\n## No thread\n"
        return f"\n## Thread {escape_inline(name)}{'' if is_first else ' (continued)'}\n"

    def _heading(self, event: Event) -> str:
        to = f" → {', '.join(event.to)}" if event.to else ""
        kind = _word(event, "intent") if event.type == MESSAGE else event.type
        answers = f"answers #{reply}" if (reply := _word(event, "reply_to")) else ""
        parts = (f"{event.sender}{to}", kind, answers, self._format_time(event.ts))
        # The seq is ours; everything else came from a caller.
        return f"#{event.seq} {', '.join(escape_inline(part) for part in parts if part)}"


def escape_inline(text: str) -> str:
    """Return a text on one line in which Markdown finds no markup."""
    return _SIGNS.sub(r"\\\g<0>", _BREAKS.sub(" ", text).strip())


def fenced(text: str, language: str = "text") -> str:
    """Put a text into a fence that nothing in it can close."""
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=0)
    fence = "`" * max(_SHORTEST_FENCE, longest + 1)
    end = "" if text.endswith("\n") or not text else "\n"
    return f"{fence}{language}\n{text}{end}{fence}\n"


def _body(event: Event) -> str:
    text = event.payload.get("text")
    if event.type == MESSAGE and isinstance(text, str) and not event.payload.get("command"):
        return f"\n{fenced(text)}" if text else ""
    if not event.payload:
        return ""
    return f"\n{fenced(msgspec.json.format(_encode(event.payload), indent=2).decode(), 'json')}"


def _word(event: Event, key: str) -> str:
    found = event.payload.get(key)
    return found if isinstance(found, str) else ""
