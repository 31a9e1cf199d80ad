"""Agents as people read them: a table, and below each the receipts of what it wrote lately."""

from collections.abc import Mapping, Sequence
from typing import Final

from palaver.doors.argv.style import Column, Paint, ago, display_width, lay_out, safe, truncate

AgentView = Mapping[str, object]
Recent = Mapping[str, object]

_INDENT: Final = "    "
_LIMIT_TEXT: Final = 30


def agent_table(
    views: Sequence[AgentView], now_ms: int, *, is_verbose: bool, width: int | None, paint: Paint
) -> list[str]:
    """Lay agents out, a line each; verbose also with its seat, and below it what it wrote lately."""
    columns = [
        Column(title="NAME", least=8, paint=paint.bold),
        Column(title="STATUS", least=18),
        Column(title="FOR", is_right=True),
        Column(title="UNREAD", is_right=True),
        Column(title="ROLE"),
        Column(title="HARNESS"),
    ]
    if is_verbose:
        columns += [Column(title="PID", is_right=True), Column(title="DETAIL")]
    rows = [_row(view, now_ms, is_verbose=is_verbose) for view in views]
    head, *lines = lay_out(columns, rows, width=width, paint=paint)
    shown = [head]
    for line, view in zip(lines, views, strict=True):
        shown.append(line)
        if is_verbose:
            shown += recent_lines(view["recent"], now_ms, width=width, paint=paint)
    return shown


def state_words(view: AgentView, now_ms: int) -> str:
    """Word a state, with what lets one doubt it: that the agent is away, or has long said nothing."""
    state = str(view["state"])
    if "stale" in view:
        return f"{state} (stale {_age(view, now_ms)})"
    is_away = not view["present"] and "left" not in view
    return f"{state} (away)" if is_away else state


def recent_lines(recent: object, now_ms: int, *, width: int | None, paint: Paint) -> list[str]:
    """Word the receipts of messages: `#42(2m): "hello" read by nova, kira [2/3]`, indented, a line each."""
    assert isinstance(recent, list)
    return [_INDENT + paint.dim(_recent_line(one, now_ms, width)) for one in recent]


def _recent_line(recent: Recent, now_ms: int, width: int | None) -> str:
    moment, names = recent["ts"], recent["read_by"]
    assert isinstance(moment, int)
    assert isinstance(names, list)
    text = truncate(safe(" ".join(str(recent["text"]).split())), _LIMIT_TEXT)
    head = f'#{recent["seq"]}({ago(now_ms - moment)}): "{text}" read by '
    tail = f" [{len(names)}/{recent['total']}]"
    readers = safe(", ".join(names)) or "nobody"
    if width is not None:
        room = width - display_width(_INDENT + head + tail)
        readers = truncate(readers, max(room, 1))
    return head + readers + tail


def _row(view: AgentView, now_ms: int, *, is_verbose: bool) -> list[str]:
    row = [
        str(view["name"]),
        state_words(view, now_ms),
        _age(view, now_ms),
        str(view["unread"] or ""),
        str(view["role"]),
        str(view["harness"] or ""),
    ]
    if is_verbose:
        row += [str(view.get("pid", "")), str(view["detail"] or "")]
    return row


def _age(view: AgentView, now_ms: int) -> str:
    since = view["since"]
    assert isinstance(since, int)
    return ago(now_ms - since)
