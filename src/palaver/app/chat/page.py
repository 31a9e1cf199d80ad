"""The display of a chat: events of a room as lines, delivery marks, the line at the bottom. Pure.

All foreign text is made safe before it is shown. Nothing depends on colour.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from palaver.app.chat.conversation import ChatState, is_message
from palaver.protocol.display import Paint, display_width, safe, truncate
from palaver.protocol.query import RoomEvent

_LEAST_TEXT: Final = 10
_WORDS: Final = {
    "queued": "waiting",
    "submitted": "on its way",
    "seen": "seen",
    "answered": "answered",
    "held": "held",
    "refused": "refused",
    "expired": "expired",
    "dead": "no such recipient",
}
"""The ledger's states as marks."""

Clock = Callable[[int], str]
"""Unix milliseconds to a short time of day."""


class _MessageContent(msgspec.Struct, frozen=True, kw_only=True):
    body: object = ""
    delivery_hint: object = None


class ChatPage:
    """Lines for one reader. `me` is their name in the room."""

    def __init__(self, me: str, paint: Paint, clock: Clock) -> None:
        self._me = me
        self._paint = paint
        self._clock = clock

    def lines(self, event: RoomEvent, width: int) -> list[str]:
        """Return an event of the room, wrapped; lines after the first are indented."""
        if is_message(event):
            return self._message(event, width)
        return [
            self._paint.dim(line)
            for line in wrap(f"{self._time(event)} · {happening(event, self._paint)}", width, 8)
        ]

    def _message(self, event: RoomEvent, width: int) -> list[str]:
        content = msgspec.convert(event.payload or {}, _MessageContent)
        sender, to = self._name(event.from_agent_id), self._recipients(event)
        is_interrupt = content.delivery_hint == "interrupt"
        head = f"{sender} → {to}" if to else sender
        if is_interrupt:
            head = f"! {head}"
        time = self._time(event)
        body = self._paint.safe(str(content.body), keep_lines=True)
        first, *rest = wrap(f"{time} {head}: {body}", width, 2)
        plain = f"{time} {head}:"
        if first.startswith(plain):
            shown = self._paint.yellow(head) if is_interrupt else self._paint.bold(head)
            first = f"{self._paint.dim(time)} {shown}:{first[len(plain) :]}"
        return [first, *rest]

    def _recipients(self, event: RoomEvent) -> str:
        return ", ".join(self._name(name) for name in _recipients(event))

    def _name(self, name: str | None) -> str:
        return "you" if name == self._me else self._paint.name(str(name))

    def _time(self, event: RoomEvent) -> str:
        return self._clock(event.created_at)


def _recipients(event: RoomEvent) -> tuple[str, ...]:
    to = event.to_agent_id
    return (to,) if isinstance(to, str) else to or ()


def happening(event: RoomEvent, paint: Paint) -> str:
    """Return an event that is not a message as a sentence."""
    who, to = paint.name(event.from_agent_id or ""), ", ".join(map(paint.name, _recipients(event)))
    why = f" {paint.safe(f'({event.reason})')}" if event.reason else ""
    match event.event_type:
        case "member_joined":
            return f"{who} joined"
        case "member_left":
            return f"{who} left{why}"
        case "claim":
            return f"{to or who} has the stick, turn {event.turn_id}"
        case "release":
            return f"{who} released the stick{f', {to} is next' if to else ''}{why}"
        case "pass":
            return f"{who} passed the stick to {to}"
        case "takeover":
            return f"{who} took over the stick from {to}{why}"
        case "reservation_expired":
            return f"{to} did not take the stick; it goes to the next member"
        case "kick":
            return f"{who} removed {to}{why}"
        case "close":
            return f"{who} closed the room{why}"
        case "note_added":
            return f"{who} added a note"
        case "note_resolved":
            return f"{who} resolved a note"
        case kind:
            return f"{paint.safe(kind)} {who}{f' → {to}' if to else ''}{why}"


def marks_line(seq: int, marks: Mapping[str, str]) -> str:
    """Return the delivery marks of a message for each recipient; empty without marks."""
    words = [f"{safe(name)} {_WORDS.get(state, safe(state))}" for name, state in marks.items()]
    return f"#{seq} {' · '.join(words)}" if words else ""


def stick_line(state: ChatState) -> str:
    """Return the room's stick and members in one line."""
    present = sum(member.present for member in state.members)
    if state.room_state == "closed":
        stick = "the room is closed"
    elif state.owner_agent_id:
        stick = f"{safe(state.owner_agent_id)} has the stick"
    elif state.reserved_for:
        stick = f"the stick is reserved for {safe(state.reserved_for)}"
    else:
        stick = "the stick is free"
    return f"{stick} · {present} of {len(state.members)} here"


def wrap(text: str, width: int, indent: int) -> list[str]:
    """Break a text into lines of at most `width` columns, at spaces if possible.

    Its own line ends are kept. In a pane too narrow for words a word is broken.
    """
    indent = indent if width - indent >= _LEAST_TEXT else 0
    lines: list[str] = []
    for paragraph in text.split("\n"):
        rest = paragraph if not lines else " " * indent + paragraph
        while display_width(rest) > width:
            head = _head(rest, width)
            cut = head.rfind(" ")
            if cut <= indent:
                cut = len(head)
            lines.append(rest[:cut].rstrip())
            rest = " " * indent + rest[cut:].lstrip(" ")
        lines.append(rest.rstrip())
    return lines


def _head(text: str, width: int) -> str:
    """Return as many characters as fit, and at least one."""
    columns = 0
    for index, char in enumerate(text):
        columns += display_width(char)
        if columns > width:
            return text[: max(index, 1)]
    return text


def input_line(prompt: str, text: str, cursor: int, width: int) -> tuple[str, int]:
    """Return the prompt with as much of the typed line as fits, and the cursor's column.

    The part around the cursor is shown; line ends within a pasted text are shown as signs.
    """
    prompt = prompt if width - display_width(prompt) >= _LEAST_TEXT else "> "
    room = max(width - display_width(prompt) - 1, 1)
    shown = safe(text.replace("\n", "⏎"))
    before = safe(text[:cursor].replace("\n", "⏎"))
    start = 0
    while display_width(before[start:]) > room:
        start += 1
    column = display_width(prompt) + display_width(before[start:])
    return prompt + _head(shown[start:], room) if shown[start:] else prompt, column


class Bottom:
    """The lines below the conversation that are redrawn: a status, marks, and the input.

    It returns the characters that erase them and draw them again.
    """

    def __init__(self) -> None:
        self._widths: list[int] | None = None
        self._column = 0

    def erase(self, width: int) -> str:
        """Erase the lines, in a terminal that may have become narrower; the cursor is then at their start.

        Terminals rewrap a line that does not fit any more, so it may have more rows than were drawn.
        """
        if self._widths is None:
            return ""
        rows = sum(max(1, -(-drawn // width)) for drawn in self._widths) + self._column // width
        self._widths = None
        up = f"\x1b[{rows}A" if rows else ""
        return f"\r{up}\x1b[J"

    def draw(
        self, above: Sequence[str], prompt: str, column: int, width: int, dim: Callable[[str], str] = str
    ) -> str:
        """Draw the lines from the cursor on; `dim` paints the lines above the input after they are cut."""
        lines = [truncate(line, width) for line in above if line]
        self._widths, self._column = [display_width(line) for line in lines], column
        move = f"\r\x1b[{column}C" if column else "\r"
        return "\r\n".join([*map(dim, lines), prompt]) + move
