"""What any program can ask on a line: a name, messages, what it is doing, the log, tools. Pure."""

from typing import Annotated

import msgspec

from palaver.model.lines.op import WireOp
from palaver.model.place import Place

Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=10**15)]


class WhoamiOp(WireOp, frozen=True, kw_only=True, tag="whoami"):
    """Who am I here?"""

    name: str = ""


class JoinOp(WireOp, frozen=True, kw_only=True, tag="join"):
    """Open a name on this connection. `secret` is what an earlier join gave: the same one is back."""

    name: str = ""
    tag: str = ""
    role: str = "worker"
    harness: str = ""
    runtime: str = ""
    version: str = ""
    secret: str = ""


class LeaveOp(WireOp, frozen=True, kw_only=True, tag="leave"):
    """Give a name up."""

    name: str = ""
    reason: str = "left"


class SendOp(WireOp, frozen=True, kw_only=True, tag="send"):
    """Send a text. `mentions` asks for `@words` in it to be recipients too. The same `id` again is once."""

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
    """Store a foreign envelope and route it unread."""

    envelope: msgspec.Raw
    name: str = ""


class ListenOp(WireOp, frozen=True, kw_only=True, tag="listen"):
    """Push the name's mail as it comes; each message waits for its `ack`."""

    name: str = ""


class UnlistenOp(WireOp, frozen=True, kw_only=True, tag="unlisten"):
    """Push no more; what was not acknowledged is open again."""

    name: str = ""


class AckOp(WireOp, frozen=True, kw_only=True, tag="ack"):
    """These messages were seen."""

    messages: tuple[Place, ...]
    name: str = ""


class StatusOp(WireOp, frozen=True, kw_only=True, tag="status"):
    """Say what the name is doing."""

    state: str
    name: str = ""
    detail: str = ""
    tool: str = ""
    command: str = ""
    file: str = ""


class EventsOp(WireOp, frozen=True, kw_only=True, tag="events"):
    """Read the log; with `follow` pushes go on as events come."""

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
    """Call one of the tools that models call, with the same parameters. The same `key` again is done once."""

    tool: str
    name: str = ""
    arguments: dict[str, object] = msgspec.field(default_factory=dict)
    cwd: str = ""
    key: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{32})?$")] = ""


class ListOp(WireOp, frozen=True, kw_only=True, tag="list"):
    """Who is there; with `agent` that one alone, and what waits for it."""

    name: str = ""
    agent: str = ""


class ReceiptsOp(WireOp, frozen=True, kw_only=True, tag="receipts"):
    """What became of a message."""

    message: str
    name: str = ""
