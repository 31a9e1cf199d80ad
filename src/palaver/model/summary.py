"""Short summaries of events, for lists and notices. Pure and total: no payload makes it fail."""

from collections.abc import Mapping

from palaver.model.envelope import Event
from palaver.model.message import MESSAGE, readable_text


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
