"""Tables of agents for people: a short one, and a long one with the receipts of their latest messages."""

from collections.abc import Mapping, Sequence
from typing import Final

from palaver.doors.argv.style import Column, Paint, Safe, ago, display_width, lay_out, truncate
from palaver.model.delivery import AgentState
from palaver.model.visible import exact

AgentView = Mapping[str, object]

_BELOW: Final = "└ "
_GAPS: Final = len("  " * 3)
_LEAST_ROOM: Final = 30
_LIMIT_TEXT: Final = 30
_LIMIT_ASKED: Final = 60
_LEAST_TEXT: Final = 8
"""Columns to which a text is shortened in a narrow terminal, before its readers are shortened."""


def short_table(views: Sequence[AgentView], now_ms: int, *, width: int | None, paint: Paint) -> list[str]:
    """Return a table with one line per agent below the titles."""
    columns = [
        Column(title="NAME", least=8, paint=paint.bold),
        Column(title="STATUS", least=8),
        Column(title="FOR", is_right=True),
        Column(title="UNREAD", is_right=True),
        Column(title="ROLE"),
        Column(title="HARNESS"),
    ]
    names = _indented(views)
    rows = [
        [
            name,
            _state_with_reason(view, now_ms),
            _age(view, now_ms),
            str(view["unread"] or ""),
            str(view["role"]),
            str(view["harness"] or ""),
        ]
        for name, view in zip(names, views, strict=True)
    ]
    return lay_out(columns, rows, width=width, paint=paint)


def _indented(views: Sequence[AgentView]) -> list[str]:
    """Return the names; each sub-agent is indented one step more than its parent above it."""
    depths: dict[object, int] = {}
    shown = []
    for view in views:
        depth = depths[view["name"]] = depths.get(view.get("parent"), -1) + 1
        shown.append(f"{'  ' * (depth - 1)}{_BELOW if depth else ''}{view['name']}")
    return shown


def long_table(
    views: Sequence[AgentView],
    own: Sequence[Mapping[str, object]],
    now_ms: int,
    *,
    name: str,
    width: int | None,
    paint: Paint,
) -> list[str]:
    """Return a table of agents with the receipts of their latest messages, and further details.

    `own` are the messages of a caller that is not in the list of agents; they are shown under `name`.
    """
    heads = [
        (name, state_words(view, now_ms), str(view["unread"]), view["recent"])
        for name, view in zip(_indented(views), views, strict=True)
    ]
    notes = [(_seat(view, now_ms), str(view.get("closed", ""))) for view in views]
    if own:
        heads.append((name, "(you)", "", list(own)))
        notes.append(("", ""))
    columns = [
        Column(title="NAME", least=8, paint=paint.bold),
        Column(title="STATUS", least=18),
        Column(title="UNREAD", is_right=True, least=6),
        Column(title="RECENT MESSAGES", least=_LEAST_ROOM),
    ]
    room = _room(columns, heads, width, paint)
    rows: list[list[str]] = []
    for (who, state, unread, recent), note in zip(heads, notes, strict=True):
        assert isinstance(recent, list)
        lines = [receipt_line(one, now_ms, room, paint) for one in recent] + [one for one in note if one]
        rows.append([who, state, unread, lines[0]])
        rows += [["", "", "", line] for line in lines[1:]]
    return lay_out(columns, rows, width=width, paint=paint)


def state_words(view: AgentView, now_ms: int) -> str:
    """Return the state in words, with a remark if the agent is away, asleep, paused or silent."""
    state = str(view["state"])
    if "stale" in view:
        paused = ", paused" if view.get("paused") else ""
        return f"{state} (stale {_age(view, now_ms)}{paused})"
    is_away = not view["present"] and "left" not in view
    doubts = ["away"] if is_away else []
    doubts += [word for word in ("asleep", "paused") if view.get(word)]
    return f"{state} ({', '.join(doubts)})" if doubts else state


def _state_with_reason(view: AgentView, now_ms: int) -> str:
    """Return the state in words; for an agent that waits for a person also its question."""
    words = state_words(view, now_ms)
    is_asking = view["state"] == AgentState.BLOCKED and view["detail"]
    return f"{words}: {truncate(exact(str(view['detail'])), _LIMIT_ASKED)}" if is_asking else words


def receipt_line(recent: Mapping[str, object], now_ms: int, room: int | None, paint: Paint) -> Safe:
    """Return the readers of a message as one line: `#42(2m): "hello" read by nova, kira [2/3]`.

    If there is too little room, the text is shortened first, then the names; the count never is.
    """
    moment, names = recent["ts"], recent["read_by"]
    assert isinstance(moment, int)
    assert isinstance(names, list)
    head, tail = f"#{recent['seq']}({ago(now_ms - moment)}): ", f" [{len(names)}/{recent['total']}]"
    text = truncate(paint.safe(" ".join(str(recent["text"]).split())), _LIMIT_TEXT)
    readers = str(paint.names(names)) or "nobody"
    if room is not None:
        left = room - display_width(f'{head}"" read by {tail}')
        text = truncate(text, max(left - display_width(readers), _LEAST_TEXT))
        readers = truncate(readers, max(left - display_width(text), 1))
    return Safe(f'{head}"{text}" read by {readers}{tail}')


def _room(
    columns: Sequence[Column], heads: Sequence[Sequence[object]], width: int | None, paint: Paint
) -> int | None:
    """Return the columns that are left for receipts; None if lines may have any length."""
    if width is None:
        return None
    used = 0
    for index, column in enumerate(columns[:-1]):
        used += max(
            display_width(paint.safe(str(word))) for word in (column.title, *(head[index] for head in heads))
        )
    return max(width - used - _GAPS, _LEAST_ROOM)


def _seat(view: AgentView, now_ms: int) -> str:
    """Return further details of an agent: age of its state, role, harness, process and status detail."""
    words = [f"for {_age(view, now_ms)}", str(view["role"]), str(view["harness"] or "")]
    words += [f"process {view['pid']}"] if "pid" in view else []
    words.append(exact(str(view["detail"] or "")))
    return ", ".join(word for word in words if word)


def _age(view: AgentView, now_ms: int) -> str:
    since = view["since"]
    assert isinstance(since, int)
    return ago(now_ms - since)
