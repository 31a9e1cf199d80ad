"""`pal send`: what stands on the line becomes recipients and a text."""

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
    """Store a message for everybody it is meant for, and say where it went."""
    parsed = call.parsed
    if parsed.has("--title") and not parsed.has("--dry-run") and let_client_take(call):
        return 0  # the client takes its transcripts first, before anything else is read
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
        await wait_for_holder(call, request.recipient)  # only it knows whether the prompt hides the keys
        request = await hide_keys(call.services.holds, request)
    request = await with_bundle(call, request)
    sent = await call.services.broker.submit(call.caller, request, key=call.asked.key)
    assert isinstance(sent, Sent)
    if request.raw and sent.event is not None and is_raw(sent.event):  # an id may be that of a text
        return await say_outcome(call, sent)
    if call.is_json:
        await call.say_json(sent_view(sent))
    else:
        await call.say(call.safe(_sentence(sent), keep_lines=True))
    return 0


async def _room(call: Call, targets: Sequence[str]) -> str:
    """Give the room in which it is said: the one on the line, or for `room` alone the one that is here.

    Where there is none it is refused: nobody who says `room` means the one of another folder.
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
    """Make the text the very bytes to type, for the one agent with exactly that name."""
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
    """Give recipients, text, and whether `@words` in the text are recipients too."""
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
    """Let the client read a file, or standard input, with its own rights."""
    if path is None:
        content = await call.connection.read_stdin(LIMIT_BODY_BYTES)
    else:
        content = await call.connection.read_file(path, LIMIT_BODY_BYTES)
    try:
        return content.decode("utf-8", "surrogateescape" if call.parsed.has("--raw") else "strict")
    except UnicodeDecodeError:
        raise BadRequest(f"{path or 'standard input'} is not UTF-8; nothing was sent") from None


def _room_of(sent: Sent) -> str:
    """Give the room in which it was said; empty for what has to do with none."""
    if sent.event is not None:
        return str(sent.event.payload.get("room", ""))
    return next((one.removeprefix("#") for one in sent.to if one.startswith("#")), "")


def _sentence(sent: Sent) -> str:
    """Say in one line, and for each oddity one more, what came of it."""
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
