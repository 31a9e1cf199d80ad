"""Requests that any program can send as a line: names, messages, status, the log, tools. Pure."""

from typing import Annotated

import msgspec

from palaver.model.lines.op import WireOp
from palaver.model.place import Place

Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=10**15)]


class WhoamiOp(WireOp, frozen=True, kw_only=True, tag="whoami"):
    """Return the caller's identity."""

    name: str = ""


class JoinOp(WireOp, frozen=True, kw_only=True, tag="join"):
    """Open a name on this connection. `secret` is that of an earlier join, to resume the same agent."""

    name: str = ""
    tag: str = ""
    role: str = "worker"
    harness: str = ""
    runtime: str = ""
    version: str = ""
    secret: str = ""


class LeaveOp(WireOp, frozen=True, kw_only=True, tag="leave"):
    """Release a name."""

    name: str = ""
    reason: str = "left"


class SendOp(WireOp, frozen=True, kw_only=True, tag="send"):
    """Send a text. With `mentions`, `@words` in it are recipients too. The same `id` again is sent once."""

    text: str
    name: str = ""
    to: tuple[str, ...] = ()
    mentions: bool = False
    intent: str = ""
    thread: str = ""
    reply_to: str = ""
    priority: str = ""
    expires_ms: Milliseconds = 0
    id: str = ""
    bundle_id: str = ""
    yes: bool = False
    dry_run: bool = False
    expects_reply: bool = False


class PutOp(WireOp, frozen=True, kw_only=True, tag="put"):
    """Store a foreign envelope and route it without reading its payload."""

    envelope: msgspec.Raw
    name: str = ""


class ListenOp(WireOp, frozen=True, kw_only=True, tag="listen"):
    """Push the name's mail as it comes; each message waits for its `ack`."""

    name: str = ""


class UnlistenOp(WireOp, frozen=True, kw_only=True, tag="unlisten"):
    """Stop pushing; messages without an acknowledgement are open again."""

    name: str = ""


class AckOp(WireOp, frozen=True, kw_only=True, tag="ack"):
    """Acknowledge these messages as seen."""

    messages: tuple[Place, ...]
    name: str = ""


class StatusOp(WireOp, frozen=True, kw_only=True, tag="status"):
    """Report the activity of the name."""

    state: str
    name: str = ""
    detail: str = ""
    tool: str = ""
    command: str = ""
    file: str = ""


class EventsOp(WireOp, frozen=True, kw_only=True, tag="events"):
    """Read the log; with `follow`, push new events as they come."""

    name: str = ""
    types: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    senders: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    rooms: tuple[str, ...] = ()
    after: Place = 0
    last: Place | None = None
    search: str = ""
    limit: Place = 1000
    follow: bool = False


class ToolOp(WireOp, frozen=True, kw_only=True, tag="tool"):
    """Call one of the tools that models call, with the same parameters. The same `key` again runs once."""

    tool: str
    name: str = ""
    arguments: dict[str, object] = msgspec.field(default_factory=dict)
    cwd: str = ""
    key: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{32})?$")] = ""


class ListOp(WireOp, frozen=True, kw_only=True, tag="list"):
    """List the agents; with `agent` only that one, with its queue."""

    name: str = ""
    agent: str = ""


class ReceiptsOp(WireOp, frozen=True, kw_only=True, tag="receipts"):
    """Return the receipts of a message."""

    message: str
    name: str = ""
