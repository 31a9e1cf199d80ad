"""The lines that clients write: PRIVMSG, NOTICE, TAGMSG and multiline batches, as requests to the bus.

A line of a person is a text: the names in it decide who gets it, and it is passed on whole. A line of a
program that begins with `{` is an envelope. A NOTICE is only shown. A client gets its echo once the event is
stored.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import structs

from palaver.broker.context import Sent
from palaver.domain.routing import Directory, UnknownTokens
from palaver.doors.irc.channels import Hub, Writing
from palaver.doors.irc.connection import Client
from palaver.doors.irc.irc_wire import (
    ChannelRef,
    Line,
    clean_text,
    client_tags,
    ctcp_of,
    fit_line,
    fold,
    is_channel,
    join_exactly,
    name_of,
    path_of_channel,
    path_of_nick,
)
from palaver.doors.irc.showing import has_mailbox, message_for
from palaver.errors import (
    AmbiguousRecipient,
    BadRequest,
    NotAllowed,
    PalaverError,
    UnknownRecipient,
)
from palaver.ids import system_ulid
from palaver.protocol.address import (
    Address,
    Named,
    RoomAddress,
    TagGroup,
    find_mentions,
    format_address,
    parse_address,
)
from palaver.protocol.display import safe
from palaver.protocol.envelope import decode_draft
from palaver.protocol.message import HUMAN, MESSAGE
from palaver.protocol.requests import Put, Send

ACTION: Final = "ACTION"

# --------------------
# The names in a line. Pure: the directory is handed in.

# A space must follow, so that `10:30` and `http://…` begin with no name.
_LEADING: Final = re.compile(r"\s*(@?[A-Za-z0-9][\w|:-]*?)([:,])(?=\s|$)", re.ASCII)
# In an e-mail address or a path, a character before the `@` shows that it names no agent.
_GLOB: Final = re.compile(r"(?<![\w.+/@-])@[A-Za-z0-9_-]*-\*(?![\w*/-])", re.ASCII)
_ON_DEVICE: Final = re.compile(r"(?<![\w.+/@-])@([A-Za-z0-9][\w-]*)\|([A-Za-z0-9]+)", re.ASCII)


def names_in(text: str, directory: Directory) -> list[str]:
    """Return the addresses in a line, each once: names at its start, and `@name` anywhere.

    `luna: …`, `luna, …` and `luna, nova: …` begin with names; any other word without its `@` is only a word.
    Raises UnknownRecipient for the `@name`s that no agent or group has, and for a line that begins with
    nearly the name of an agent. Raises BadRequest for a system sender.
    """
    found = {format_address(parse_address(name)): None for name in _leading_names(text, directory)}
    written = [f"@{name}:{device.upper()}" for name, device in _ON_DEVICE.findall(text)]
    written += [*_GLOB.findall(text), *find_mentions(_ON_DEVICE.sub(" ", text))]
    unknown = UnknownTokens(directory)
    for token in written:
        if unknown.is_full:
            unknown.unchecked += 1
        elif (address := _known(token, directory)) is None:
            unknown.add(token, token.strip("@-").lower())
        else:
            found[format_address(address).removeprefix("@") if isinstance(address, Named) else token] = None
    unknown.check()
    return list(found)


def _known(token: str, directory: Directory) -> Address | None:
    """Return the address of an `@word` in a text, or None: there it cannot be the beginning of a name."""
    try:
        address = parse_address(token)
    except BadRequest:
        return None
    match address:
        case Named(name=name):
            return address if _is_name(name, directory) else None
        case TagGroup(tag=tag):
            return address if directory.has_tag(tag) else None
        case RoomAddress():
            return None
    return address


def _leading_names(text: str, directory: Directory) -> Iterator[str]:
    position = 0
    while (match := _LEADING.match(text, position)) is not None:
        word, separator = match.groups()
        name = name_of(word.removeprefix("@"))
        if not _is_name(name, directory):
            near = directory.nearest(name.lower())
            # Most likely a typing error: as a mere text the line would wake no agent.
            if separator == ":" and near and not word.startswith("@"):
                raise UnknownRecipient({word: near})
            return
        yield name
        if separator == ":":
            return
        position = match.end()


def _is_name(name: str, directory: Directory) -> bool:
    """Return whether a word is the name of an agent, or the base name of some, or the person."""
    is_human = name.lower() == HUMAN
    return is_human or directory.find(name) is not None or bool(directory.by_base(name.lower()))


# --------------------
# Messages.


async def speak(hub: Hub, client: Client, target: str, text: str, *, tags: Mapping[str, str]) -> None:
    """Handle PRIVMSG to a channel or a nick. Formatting is removed, and CTCP other than ACTION ignored."""
    ctcp = ctcp_of(text)
    if ctcp is not None:
        if ctcp[0] != ACTION:
            return
        text = f"* {client.nick} {ctcp[1]}"
    await _say(hub, client, target, text, tags)


async def multiline(
    hub: Hub,
    client: Client,
    target: str,
    pieces: Sequence[tuple[str, bool]],
    *,
    tags: Mapping[str, str],
    command: str = "PRIVMSG",
) -> None:
    """Handle a complete `draft/multiline` batch: pieces, and whether each continues the line before it."""
    if command == "NOTICE":
        for piece, _ in pieces:
            notice(hub, client, target, piece, tags=tags)
    else:
        await _say(hub, client, target, join_exactly(pieces), tags, pieces)


async def _say(
    hub: Hub,
    client: Client,
    target: str,
    written: str,
    tags: Mapping[str, str],
    pieces: Sequence[tuple[str, bool]] = (),
) -> None:
    text = clean_text(written)
    if not text.strip():
        client.numeric("412")
        return
    if target.startswith("#"):
        if (channel := _channel(hub, client, target)) is None:
            return
    else:
        channel = ""
    try:
        request = _request(hub, client, target, channel, text, _reply_to(hub, tags))
    except (UnknownRecipient, AmbiguousRecipient, BadRequest) as error:
        client.tell(str(error))
        return
    if request is None:
        return
    id = request.envelope.id if isinstance(request, Put) else request.id
    writing = Writing(client=client, channel=fold(channel), tags=tags, pieces=pieces)
    # Before `submit`, because the event is shown to others before that returns.
    hub.writing[id] = writing
    try:
        sent = await hub.services.broker.submit(client.account.caller, request)
    except PalaverError as error:
        _refuse(client, target, request, error)
        return
    finally:
        # It may be gone: another client can write an event with the same id at the same time.
        hub.writing.pop(id, None)
    assert isinstance(sent, Sent)
    assert sent.event is not None  # not a dry run
    nick = target if (user := hub.user(target)) is None else user.nick
    message = message_for(hub, sent.event, client, channel or nick, writing)
    # Only now: an echo proves that the message is stored.
    if "echo-message" in client.caps:
        message.send(client)
    if not channel and fold(nick) == fold(client.nick) and not has_mailbox(client):
        message.push(client)  # it is the recipient too
    if not channel and (away := hub.away(target)):
        client.numeric("301", target, text=away)


def _channel(hub: Hub, client: Client, target: str) -> str | None:
    """Return the name of a channel that a client may write in, or None after a refusal."""
    if not is_channel(target):
        client.numeric("403", target)
        return None
    if fold(target) not in client.joined:
        client.numeric("404", target, text="Cannot send to channel: join it first")
        return None
    return client.joined[fold(target)]


def _reply_to(hub: Hub, tags: Mapping[str, str]) -> str:
    """Return the id of the message that a line replies to by its tag, if its sender has a mailbox."""
    id = tags.get("+draft/reply") or tags.get("+reply") or ""
    for event in hub.services.queries.with_id(id) if id else ():
        has_mailbox = event.sender == HUMAN or hub.services.broker.directory.get(event.sender) is not None
        if event.id == id and event.type == MESSAGE and has_mailbox:
            return id
    return ""


def _request(
    hub: Hub, client: Client, target: str, channel: str, text: str, reply_to: str
) -> Send | Put | None:
    """Return the request that a line stands for, or None after a refusal."""
    if client.is_program and text.startswith("{"):
        return _envelope(hub, client, target, channel, text)
    if channel:
        return structs.replace(
            _in_channel(hub, hub.ref(channel), channel, text, is_reply=bool(reply_to)), reply_to=reply_to
        )
    at = _address(hub, target)
    if at is None:
        client.numeric("401", target)
        return None
    is_exact = at != HUMAN and "/" not in at
    return Send(
        text=text,
        id=system_ulid(),  # chosen here: by it `Shown` finds the `Writing` of the event
        recipient=at if is_exact else "",
        to=() if is_exact else (at,),
        reply_to=reply_to,
    )


def _in_channel(hub: Hub, ref: ChannelRef, channel: str, text: str, *, is_reply: bool) -> Send:
    """Return the message that a line in a channel is."""
    id, path = system_ulid(), path_of_channel(channel)
    directory = hub.services.broker.directory
    match ref.kind:
        case "agent":
            return Send(text=text, id=id, recipient=ref.name, channel=channel)
        case "room":
            return Send(text=text, id=id, room=ref.name, to=tuple(names_in(text, directory)), channel=channel)
    named = names_in(text, directory)
    # Without a name a message is kept on the path of the channel, and wakes only the agents subscribed to it.
    # A reply goes to the sender of the message that it replies to.
    is_kept = (not named and not is_reply) or ref.kind == "other"
    return Send(
        text=text,
        id=id,
        to=(*((path,) if is_kept else ()), *named),
        thread=ref.name if ref.kind == "thread" else "",
        channel=channel,
    )


def _address(hub: Hub, nick: str) -> str | None:
    """Return the address of a nick: an agent or a registered person, the person, or a guest."""
    name = name_of(nick)
    agent = hub.services.broker.directory.find(name)
    if agent is not None:
        return agent.name
    if name.lower() == HUMAN:
        return HUMAN
    return path_of_nick(nick) if any(one.account.is_guest for one in hub.by_nick(nick)) else None


def _refuse(client: Client, target: str, request: Send | Put, error: PalaverError) -> None:
    """Tell a client why its line was not sent."""
    if isinstance(request, Put):
        client.fail("PRIVMSG", _ENVELOPE_CODES.get(error.code, error.code.upper()), target, text=str(error))
    elif isinstance(error, UnknownRecipient | AmbiguousRecipient):
        client.tell(str(error))
    elif isinstance(error, NotAllowed) and target.startswith("#"):
        client.numeric("404", target, text=f"Cannot send to channel: {error}")
    else:
        client.fail("PRIVMSG", error.code.upper(), target, text=str(error))


# --------------------
# Envelopes of programs.

BAD_ENVELOPE: Final = "BAD_ENVELOPE"
NOT_YOU: Final = "NOT_YOU"
_ENVELOPE_CODES: Final = {"bad_request": BAD_ENVELOPE, "bad_text": BAD_ENVELOPE}
"""The codes of FAIL for an envelope, where they differ from the code of the error."""


def _envelope(hub: Hub, client: Client, target: str, channel: str, text: str) -> Put | None:
    """Return the request of an envelope, or None after a refusal. Its `to` decides, if it has one."""
    try:
        envelope = decode_draft(text)
    except BadRequest as error:
        client.fail("PRIVMSG", BAD_ENVELOPE, target, text=str(error))
        return None
    own = client.account.caller.name
    if envelope.sender != own:
        sentence = f"the field `from` must be your own name, {own}; nothing was stored"
        client.fail("PRIVMSG", NOT_YOU, target, text=sentence)
        return None
    if channel:
        return Put(envelope=envelope, at=_at(hub.ref(channel), channel), channel=channel)
    at = _address(hub, target)
    if at is None:
        client.numeric("401", target)
        return None
    return Put(envelope=envelope, at=at)


def _at(ref: ChannelRef, channel: str) -> str:
    """Return the address of an envelope without `to` in a channel; empty for everyone."""
    match ref.kind:
        case "general":
            return ""
        case "agent":
            return ref.name
        case "room":
            return f"#{ref.name}"
        case _:
            return path_of_channel(channel)


# --------------------
# Lines that are only shown: they are not stored and reach no agent and no program.


def notice(hub: Hub, client: Client, target: str, text: str, *, tags: Mapping[str, str]) -> None:
    """Show a NOTICE to the people in a channel, or with a nick.

    No reply is ever sent to it, not even an error: IRC forbids this, so that two programs make no loop.
    """
    shown = safe(clean_text(text))
    if ctcp_of(text) is None and shown:
        _show(hub, client, target, "NOTICE", (shown,), tags)


def tagmsg(hub: Hub, client: Client, target: str, *, tags: Mapping[str, str]) -> None:
    """Show the client tags of a TAGMSG, such as `+typing`, to people whose clients read tags."""
    _show(hub, client, target, "TAGMSG", (), tags)


def _show(
    hub: Hub, client: Client, target: str, command: str, params: tuple[str, ...], tags: Mapping[str, str]
) -> None:
    if target.startswith("#"):
        if fold(target) not in client.joined:
            return
        others: Sequence[Client] = hub.members(target)
    else:
        others = hub.by_nick(target)
    # It is not stored, so no history has this id.
    sent = {**client_tags(tags), **client.account_tag, "msgid": system_ulid()}
    line = fit_line(Line(source=client.source, command=command, params=(target, *params), tags=sent))
    if "echo-message" in client.caps:
        client.send(line)
    is_direct = not target.startswith("#")
    for other in others:
        can_read = command != "TAGMSG" or "message-tags" in other.caps
        if can_read and not other.is_program and (other is not client or is_direct):
            other.push(line)
