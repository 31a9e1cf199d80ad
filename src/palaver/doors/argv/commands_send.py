"""`pal send`: read recipients and text from the command line, and send the message."""

from collections.abc import Sequence

from msgspec import structs

from palaver.broker.outcome import Sent
from palaver.doors.argv.agent_end import wait_for_holder
from palaver.doors.argv.call import Call
from palaver.doors.argv.commands_bundle import with_bundle
from palaver.doors.argv.commands_rooms import named_room, room_of
from palaver.doors.argv.excerpts import let_client_take
from palaver.doors.argv.raw_outcome import say_outcome
from palaver.doors.hidden_keys import hide_keys
from palaver.doors.views import sent_view
from palaver.errors import BadRequest, UsageError
from palaver.model.message import is_raw
from palaver.model.request import Send
from palaver.model.text import LIMIT_BODY_BYTES


async def send(call: Call) -> int:
    """Store a message for its recipients, and report them."""
    parsed = call.parsed
    if parsed.has("--title") and not parsed.has("--dry-run") and let_client_take(call):
        return 0  # the client reads the transcripts first, and then repeats the command
    targets, text, has_mentions = await _read(call)
    expires_s = parsed.duration_s("--expires")
    request = Send(
        text=text,
        to=tuple(targets),
        has_mentions=has_mentions,
        intent=parsed.value("--intent") or "",
        thread=parsed.value("--thread") or "",
        reply_to=parsed.value("--reply-to") or "",
        priority="interrupt" if parsed.has("--interrupt") else parsed.value("--priority") or "",
        expires_in_ms=_milliseconds(expires_s),
        id=(parsed.value("--id") or "").upper(),
        bundle_id=parsed.value("--bundle") or "",
        is_confirmed=parsed.has("--yes"),
        is_dry_run=parsed.has("--dry-run"),
        expects_reply=parsed.has("--expects-reply"),
        room=await _room(call, targets),
    )
    if parsed.has("--raw"):
        request = _as_keys(call, request)
        await wait_for_holder(call, request.recipient)  # only the holder knows whether the prompt hides keys
        request = await hide_keys(call.services.holds, request)
    request = await with_bundle(call, request)
    sent = await call.services.broker.submit(call.caller, request, key=call.asked.key)
    assert isinstance(sent, Sent)
    if request.raw and sent.event is not None and is_raw(sent.event):  # --id may name an earlier text
        return await say_outcome(call, sent)
    if call.is_json:
        await call.say_json(sent_view(sent))
    else:
        await call.say(call.safe(_sentence(sent), keep_lines=True))
    return 0


async def _room(call: Call, targets: Sequence[str]) -> str:
    """Return the room of the message: the one that --room names, or for the recipient `room` the caller's.

    Return an empty string if the message is not for a room. Raises RoomNotFound if the caller has no room.
    """
    named = call.parsed.value("--room")
    is_said = any(target.startswith("#") for target in targets)
    if named is None and not is_said and any(_is_here(target) for target in targets):
        return await room_of(call)
    if named == "":
        raise UsageError("--room needs a room: its name, or a path in its workspace")
    return "" if named is None else await named_room(call, named)


def _is_here(target: str) -> bool:
    return target.lower().removeprefix("@") == "room"


def _as_keys(call: Call, request: Send) -> Send:
    """Return the request with the text as raw keys, for exactly one agent."""
    if len(request.to) != 1:
        raise UsageError("raw keys go into one terminal: pal send NAME --raw -- KEYS")
    return structs.replace(
        request,
        raw=request.text.encode("utf-8", "surrogateescape"),
        text="",
        to=(),
        recipient=call.agent(request.to[0]).name,
        has_mentions=False,
    )


def _milliseconds(expires_s: float | None) -> int:
    if expires_s is None:
        return 0
    if expires_s < 0.001:
        raise UsageError("--expires needs a time above 0")
    return int(expires_s * 1000)


async def _read(call: Call) -> tuple[list[str], str, bool]:
    """Return the recipients, the text, and whether `@words` in the text are also recipients."""
    parsed = call.parsed
    words = list(parsed.positionals)
    path = parsed.value("--file")
    if path is not None or parsed.has("--stdin"):
        if parsed.after:
            raise UsageError("the text comes from --file or --stdin: leave out the text after --")
        return words, await _content(call, path), False
    if parsed.after is not None:
        if not parsed.after:
            raise UsageError("there is no text after --")
        return words, " ".join(parsed.after), False
    if not words:
        raise UsageError("there is no text: pal send [TARGET...] [--] TEXT")
    *targets, text = words
    if not targets and text.startswith("@") and " " not in text.strip():
        raise UsageError(f"{text!r} is a recipient without a text: pal send {text} -- TEXT")
    return targets, text, True


async def _content(call: Call, path: str | None) -> str:
    """Let the client read a file or standard input, with its own rights."""
    if path is None:
        content = await call.connection.read_stdin(LIMIT_BODY_BYTES)
    else:
        content = await call.connection.read_file(path, LIMIT_BODY_BYTES)
    try:
        return content.decode("utf-8", "surrogateescape" if call.parsed.has("--raw") else "strict")
    except UnicodeDecodeError:
        raise BadRequest(f"{path or 'standard input'} is not UTF-8; nothing was sent") from None


def _room_of(sent: Sent) -> str:
    """Return the room of a sent message; empty if it was not for a room."""
    if sent.event is not None:
        return str(sent.event.payload.get("room", ""))
    return next((one.removeprefix("#") for one in sent.to if one.startswith("#")), "")


def _sentence(sent: Sent) -> str:
    """Return the result in one line, and one more line for each group or path without recipients."""
    names = ", ".join(sent.delivered_to) or "nobody"
    if room := _room_of(sent):
        names = f"{names} in {room}"
    if sent.event is None:
        lines = [f"would go to {names}"]
    elif sent.is_repeat:
        lines = [f"#{sent.event.seq} was sent before, to {names}"]
    else:
        lines = [f"sent #{sent.event.seq} to {names}"]
    lines += [f"nobody is in {group} now; the message is kept" for group in sent.empty_groups]
    lines += [f"nobody is subscribed to {path}: dead letter" for path in sent.dead]
    return "\n".join(lines)
