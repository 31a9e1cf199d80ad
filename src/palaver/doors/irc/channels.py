"""All clients of the IRC door: their nicks, the channels they are in, nick lists, topics, and changes.

A nick is an agent of the bus, a client, or both. An agent is in `#general`, in the channels of its rooms and
in its own channel, also without a client. All connections of one account have the same nick and are in the
same channels; others see a JOIN for the first one and a QUIT for the last one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from palaver.doors.irc.connection import Client
from palaver.doors.irc.irc_wire import (
    GENERAL,
    SERVER,
    ChannelRef,
    Line,
    agent_of_channel,
    channel_of_agent,
    cut_text,
    fit_line,
    fold,
    format_time,
    nick_of,
    numeric,
    pack_words,
    parse_channel,
    room_for_text,
    source_of,
)
from palaver.errors import RoomNotFound
from palaver.protocol.agents import GUEST_ROLE, Agent
from palaver.protocol.display import safe
from palaver.protocol.envelope import Event
from palaver.protocol.events import (
    CLOSE,
    KICK,
    LIMIT_TOPIC_BYTES,
    MEMBER_JOINED,
    MEMBER_LEFT,
    SEAT_TYPES,
    SETTING,
    TOPIC_KEY,
    SettingChanged,
)
from palaver.protocol.requests import SetTopic
from palaver.services.services import Services
from palaver.state.rooms import find_room, read_irc_topic, read_open_rooms, read_room, read_rooms_of

_CHANGES: Final = SEAT_TYPES | {MEMBER_JOINED, MEMBER_LEFT, KICK, CLOSE}
"""Events that can change which agents are listed."""
_OPERATORS: Final = frozenset({"operator"})


@dataclass(frozen=True, slots=True, kw_only=True)
class IrcUser:
    """A nick as others see it."""

    nick: str
    user: str
    realname: str
    account: str
    """The name of its account; empty for a guest."""
    prefix: str
    """`@` for an operator, `+` for any other agent, else empty."""
    since_ms: int
    """When its first client connected, or when the agent's state last changed."""
    away: str = ""

    @property
    def source(self) -> str:
        return source_of(self.nick, self.user)


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """An event that a client is writing: it is shown to it as the reply to its command, once it is stored."""

    client: Client
    channel: str
    """The folded channel that it is written in; empty for a direct message."""
    tags: Mapping[str, str]
    """The client's own tags, which others get with the line and which are not stored."""
    pieces: Sequence[tuple[str, bool]] = ()
    """The lines of a multiline text as the client has cut them, and whether each continues the one before."""


class Hub:
    """All registered clients, and the agents that they see. Belongs to the loop's thread."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.on_first: list[Callable[[], None]] = []
        """Called when the first client has registered."""
        self.on_last: list[Callable[[], None]] = []
        """Called when the last client has left."""
        self.on_change: list[Callable[[], None]] = []
        """Called when a new agent is online."""
        self.on_open: list[Callable[[Client], None]] = []
        """Called with each client that has registered and was greeted."""
        self.on_close: list[Callable[[Client], None]] = []
        """Called with each client that is removed."""
        self.writing: dict[str, Writing] = {}
        """The events that clients are writing now, by their ids."""
        self.setting_topic: dict[Client, SetTopic] = {}
        """The topics that clients are setting now: the new topic is the reply to their command."""
        self._at: dict[str, list[Client]] = {}
        self._members: dict[str, dict[Client, None]] = {}
        self._written: dict[str, str] = {}
        self._away: dict[str, str] = {}
        # The bus as clients were last shown it: kept, so that each change is shown once.
        self._agents: dict[str, Agent] = {}
        self._rooms: dict[str, dict[str, Agent]] = {}
        self._stop: Callable[[], None] | None = None
        self.unregistered: Callable[[], int] = lambda: 0
        """Returns the number of connections that have not registered; set by the door."""

    # The present users

    @property
    def clients(self) -> Iterator[Client]:
        """All registered clients."""
        return (client for clients in self._at.values() for client in clients)

    def by_nick(self, nick: str) -> Sequence[Client]:
        """Return the clients with a nick in any case: several if an account is connected several times."""
        # A copy, because a line that is sent can end a connection, which removes it from this list.
        return tuple(self._at.get(fold(nick), ()))

    def members(self, channel: str) -> Sequence[Client]:
        """Return the clients in a channel."""
        # A copy for the same reason as in `by_nick`.
        return tuple(self._members.get(fold(channel), ()))

    def user(self, nick: str) -> IrcUser | None:
        """Return who has a nick: a present agent or a client; None if it is free."""
        folded = fold(nick)
        agent = self._agents.get(folded)
        clients = self._at.get(folded)
        away = self._away.get(folded, "")
        if clients:
            return _user_of_client(clients[0], agent, away)
        return None if agent is None else _user_of_agent(agent, away)

    def users(self) -> list[IrcUser]:
        """Return everyone, by nick: present agents and clients."""
        found = (self.user(nick) for nick in sorted(self._agents.keys() | self._at.keys()))
        return [user for user in found if user is not None]

    def away(self, nick: str) -> str:
        """Return the text of a user that is away; empty for any other."""
        return self._away.get(fold(nick), "")

    # Channels

    def ref(self, channel: str) -> ChannelRef:
        """Return what a channel shows."""
        return parse_channel(channel, self._is_room)

    def written(self, channel: str) -> str:
        """Return a channel as its first member wrote it."""
        return self._written.get(fold(channel), channel)

    def nick_list(self, channel: str) -> list[IrcUser]:
        """Return everyone in a channel, by nick: the agents that belong to it, and the clients in it."""
        folded = fold(channel)
        nicks = {fold(client.nick) for client in self._members.get(folded, ())}
        nicks |= self._agents_in(folded).keys()
        return [user for nick in sorted(nicks) if (user := self.user(nick)) is not None]

    def channels(self) -> list[str]:
        """Return the channels that the bus knows, of general, rooms and agents, and those of clients."""
        found = {GENERAL: GENERAL}
        found |= {f"#{room.id}": f"#{room.id}" for room in read_open_rooms(self.services.queries.rows)}
        found |= {fold(name): name for name in map(channel_of_agent, self._names())}
        return list((found | self._written).values())

    def channels_of(self, nick: str) -> list[str]:
        """Return the channels that a nick is in: those of its clients, its rooms, general, and its own."""
        folded = fold(nick)
        found = {key: name for client in self._at.get(folded, ()) for key, name in client.joined.items()}
        if (agent := self._agents.get(folded)) is not None:
            rooms = (f"#{room.id}" for room in read_rooms_of(self.services.queries.rows, agent.name))
            found |= {fold(name): name for name in (GENERAL, *rooms, channel_of_agent(agent.name))}
        return list(found.values())

    def topic(self, channel: str) -> str:
        """Return the topic of a channel, without control characters; empty for a channel without one.

        A channel in which no client has set a topic has that of the bus, if the bus knows the channel.
        """
        topic = read_irc_topic(self.services.queries.rows, channel)
        text = self._own_topic(channel) if topic is None else topic.text
        return cut_text(safe(text), LIMIT_TOPIC_BYTES)

    def _own_topic(self, channel: str) -> str:
        ref = self.ref(channel)
        match ref.kind:
            case "general":
                text = "Broadcasts to all agents. Name an agent, as in 'luna: hello', to send it a message."
            case "room":
                room = read_room(self.services.queries.rows, ref.name)
                text = f"Room {ref.name} in {room.path}" if room is not None else ""
            case "agent":
                text = f"Messages from and to {ref.name}. A line here goes to {ref.name}."
            case "thread":
                text = f"Thread {ref.name}. A line here goes to the agents that it names."
            case _:
                text = ""
        return text

    # Changes by clients

    def add(self, client: Client, greet: Callable[[], None] = lambda: None) -> None:
        """Add a client that has registered. It gets the channels of the other clients with its nick.

        `greet` is called when the client is in all lists, and before it gets any other line.
        """
        folded = fold(client.nick)
        is_first = not self._at
        others = list(self._at.get(folded, ()))
        was_there = self.user(client.nick) is not None
        self._at.setdefault(folded, []).append(client)
        if is_first:
            self._begin()  # before `greet`, which counts the users
        greet()
        for channel in others[0].joined.values() if others else ():
            self._enter(client, channel)
        if not was_there:
            self._online(client.nick)
        for opened in self.on_open:
            opened(client)

    def join(self, client: Client, channel: str) -> None:
        """Put all connections of a client's account in a channel. A repeat changes nothing."""
        folded = fold(channel)
        if folded in client.joined:
            return
        name = self._written.setdefault(folded, channel)
        is_listed = any(fold(user.nick) == fold(client.nick) for user in self.nick_list(folded))
        if not is_listed:
            self._show_join(client.nick, folded)  # before it is a member: `_enter` sends it its own JOIN
        self._enter(client, name)
        for other in self.by_nick(client.nick):
            if other is not client:
                with other.aside():
                    self._enter(other, name)

    def part(self, client: Client, channel: str, reason: str = "") -> None:
        """Take all connections of a client's account out of a channel that it is in."""
        folded = fold(channel)
        name = self.written(folded)
        line = self._part_line(client.nick, name, reason)
        # All leave before any line is sent: that may end a connection, which then leaves all of its channels.
        connections = [one for one in self.by_nick(client.nick) if folded in one.joined]
        for one in connections:
            self._leave(one, folded)
        for one in connections:
            (one.send if one is client else one.push)(line)
        if fold(client.nick) not in self._agents_in(folded):
            for other in self.members(folded):
                other.push(line)
        self._forget_empty(folded)

    def quit(self, client: Client, reason: str) -> None:
        """Remove a client. Others see it when the last connection with its nick ends."""
        folded = fold(client.nick)
        clients = self._at.get(folded, [])
        # It was removed already, or has never registered.
        if client not in clients:
            return
        user = self.user(folded)  # for its last lines: afterwards the nick may be free
        assert user is not None  # it is in the list
        # A copy, because `_leave` changes `joined`.
        channels = list(client.joined)
        for channel in channels:
            self._leave(client, channel)
        clients.remove(client)
        for closed in self.on_close:
            closed(client)
        if not clients:
            del self._at[folded]
            self._away.pop(folded, None)
            left = [one for one in channels if folded not in self._agents_in(one)]
            self._show_leaving(user, left, reason)
            if folded not in self._agents:
                self._offline(user.nick)
        for channel in channels:
            self._forget_empty(channel)
        if not self._at:
            self._end()

    def rename(self, client: Client, nick: str) -> None:
        """Change the nick of a guest, which has one connection. The caller has checked that it is free."""
        old, source = fold(client.nick), client.source
        line = Line(source=source, command="NICK", params=(nick,))
        seeing = self._peers(client)  # still by the old nick
        old_nick, client.nick = client.nick, nick
        del self._at[old]
        self._at[fold(nick)] = [client]
        if away := self._away.pop(old, ""):
            self._away[fold(nick)] = away
        client.send(line)
        for other in seeing:
            other.push(line)
        if fold(nick) != old:
            self._offline(old_nick)
            self._online(nick)

    def set_away(self, client: Client, text: str) -> None:
        """Mark the user of a client as away, or with an empty text as back, and notify others."""
        if text:
            self._away[fold(client.nick)] = text
        else:
            self._away.pop(fold(client.nick), None)
        line = Line(
            source=client.source, command="AWAY", params=(text,) if text else (), tags=client.account_tag
        )
        for other in self._peers(client):
            if "away-notify" in other.caps:
                other.push(line)

    def set_name(self, client: Client, realname: str) -> None:
        """Change the real name of a client, and notify others and itself."""
        for one in self.by_nick(client.nick):
            one.realname = realname
        line = Line(source=client.source, command="SETNAME", params=(realname,), tags=client.account_tag)
        if "setname" in client.caps:
            client.send(line)
        for other in self._peers(client):
            if "setname" in other.caps:
                other.push(line)

    def send_names(self, client: Client, channel: str) -> None:
        """Send the nick list of a channel to one client."""
        name = self.written(channel)
        nicks = (user.prefix + user.nick for user in self.nick_list(channel))
        room_bytes = room_for_text(SERVER, "353", f"{client.nick} = {name}")
        for line in pack_words(nicks, room_bytes):
            client.send(numeric("353", client.nick, "=", name, text=line))
        client.numeric("366", name)

    def send_topic(self, client: Client, channel: str) -> None:
        """Send the topic of a channel to one client, if there is one."""
        name = self.written(channel)
        if text := self.topic(channel):
            topic = read_irc_topic(self.services.queries.rows, channel)
            who = SERVER if topic is None else nick_of(topic.by)
            set_ms = self.services.daemon.started_ms if topic is None else topic.ts
            room_bytes = room_for_text(SERVER, "332", f"{client.nick} {name}")
            client.numeric("332", name, text=cut_text(text, room_bytes))
            client.numeric("333", name, who, str(set_ms // 1000))

    # Changes on the bus

    def refresh(self) -> None:
        """Read the agents and rooms again, and show what has changed in the channels."""
        before = {key: self._agents_in(key) for key in self._members}
        # Before the change, because an agent that has left cannot be looked up afterwards.
        users = {nick: self.user(nick) for nick in self._agents}
        self._read_bus()
        after = {key: self._agents_in(key) for key in self._members}
        gone: dict[str, list[str]] = {}
        for channel, agents in before.items():
            for nick in agents.keys() - after[channel].keys() - self._client_nicks(channel):
                gone.setdefault(nick, []).append(channel)
        for nick, channels in gone.items():
            user = users[nick]
            assert user is not None  # it was listed
            self._show_leaving(user, channels, "left the bus" if nick not in self._agents else "")
        for channel, agents in after.items():
            for nick in agents.keys() - before[channel].keys() - self._client_nicks(channel):
                self._show_join(nick, channel)
        for nick in users.keys() - self._agents.keys() - self._at.keys():
            if (user := users[nick]) is not None:
                self._offline(user.nick)
        for nick in self._agents.keys() - users.keys() - self._at.keys():
            self._online(nick)
        if self._agents.keys() - users.keys():
            for changed in self.on_change:
                changed()

    def _hear(self, events: Sequence[Event]) -> None:
        if any(event.type in _CHANGES for event in events):
            self.refresh()
        for event in events:
            if isinstance(event.body, SettingChanged) and event.body.key == TOPIC_KEY and not event.imported:
                self._show_topic(event, event.body)

    def _show_topic(self, event: Event, setting: SettingChanged) -> None:
        """Show a new topic in its channel; for a removed one, that of the bus."""
        folded, nick = fold(setting.channel), nick_of(event.sender)
        name, user = self.written(folded), self.user(nick)
        source = source_of(nick, nick) if user is None else user.source
        text = cut_text(
            str(setting.value) or safe(self._own_topic(folded)), room_for_text(source, "TOPIC", name)
        )
        tags = {"time": format_time(event.ts), **({} if user is None else _account_tag(user))}
        line = Line(source=source, command="TOPIC", params=(name, text), tags=tags)
        for client in self.members(folded):
            asked = self.setting_topic.get(client)
            # Another user may set the same topic at this moment, and its event is not the reply.
            is_reply = asked is not None and (fold(asked.channel), asked.text) == (folded, setting.value)
            is_own = client.account.caller.name == event.sender
            (client.send if is_reply and is_own else client.push)(line)

    def _begin(self) -> None:
        self._read_bus()
        self._stop = self.services.queries.subscribe(self._hear, _CHANGES | {SETTING})
        for begin in self.on_first:
            begin()

    def _end(self) -> None:
        if self._stop is not None:
            self._stop()
            self._stop = None
        for end in self.on_last:
            end()

    def _read_bus(self) -> None:
        rows = self.services.queries.rows
        # A registered person is not listed as an agent, only by a connected client.
        known = self.services.broker.directory.all()
        agents = [one for one in known if not one.left and one.role != GUEST_ROLE]
        self._agents = {fold(nick_of(one.name)): one for one in sorted(agents, key=lambda one: one.name)}
        self._rooms = {}
        for room in read_open_rooms(rows):
            present = (fold(nick_of(name)) for name in room.names)
            self._rooms[f"#{room.id}"] = {
                nick: self._agents[nick] for nick in present if nick in self._agents
            }

    def _names(self) -> Iterable[str]:
        return (agent.name for agent in self._agents.values())

    def _agents_in(self, folded: str) -> dict[str, Agent]:
        """Return the present agents that belong to a channel, by their folded nicks."""
        if folded == GENERAL:
            return self._agents
        if folded in self._rooms:
            return self._rooms[folded]
        name = agent_of_channel(folded)
        nick = "" if name is None else fold(nick_of(name))
        return {nick: self._agents[nick]} if nick in self._agents else {}

    def _client_nicks(self, folded: str) -> set[str]:
        return {fold(client.nick) for client in self._members.get(folded, ())}

    def room_channel(self, channel: str) -> str:
        """Return the channel of a room that is written with the room's short name; else the same channel.

        Raises AmbiguousRecipient if several open rooms have that name.
        """
        if self.ref(channel).kind != "other":
            return channel
        try:
            return f"#{find_room(self.services.queries.rows, fold(channel)).id}"
        except RoomNotFound:
            return channel

    def _is_room(self, name: str) -> bool:
        return read_room(self.services.queries.rows, name) is not None

    # Lines about changes

    def _enter(self, client: Client, channel: str) -> None:
        """Put one connection in a channel, and send it the lines of a new member."""
        if client.is_ended:  # it did not read the lines about another channel
            return
        folded = fold(channel)
        client.joined[folded] = channel
        self._members.setdefault(folded, {})[client] = None
        user = self.user(client.nick)
        assert user is not None  # it is registered
        client.send(_join_line(user, channel, client))
        self.send_topic(client, channel)
        self.send_names(client, channel)

    def _leave(self, client: Client, folded: str) -> None:
        del client.joined[folded]
        del self._members[folded][client]

    def _forget_empty(self, folded: str) -> None:
        if not self._members.get(folded):
            self._members.pop(folded, None)
            self._written.pop(folded, None)

    def _show_join(self, nick: str, folded: str) -> None:
        user = self.user(nick)
        assert user is not None  # a client or an agent that was found just now
        for other in self.members(folded):
            other.push(_join_line(user, self.written(folded), other))
            if user.away and "away-notify" in other.caps:
                other.push(Line(source=user.source, command="AWAY", params=(user.away,)))

    def _part_line(self, nick: str, channel: str, reason: str) -> Line:
        user = self.user(nick)
        assert user is not None  # it is in the channel
        params = (channel, reason) if reason else (channel,)
        return fit_line(Line(source=user.source, command="PART", params=params, tags=_account_tag(user)))

    def _show_leaving(self, user: IrcUser, channels: Sequence[str], reason: str) -> None:
        """Send one QUIT to each client that saw the user, or PARTs while the nick is still online."""
        tags = _account_tag(user)
        if self.user(user.nick) is None:
            seeing = {client: None for channel in channels for client in self._members.get(channel, ())}
            for client in seeing:
                client.push(fit_line(Line(source=user.source, command="QUIT", params=(reason,), tags=tags)))
            return
        for channel in channels:
            params = (self.written(channel), reason) if reason else (self.written(channel),)
            line = fit_line(Line(source=user.source, command="PART", params=params, tags=tags))
            for client in self.members(channel):
                client.push(line)

    def _peers(self, client: Client) -> Sequence[Client]:
        """Return the other clients that share a channel with a client."""
        found = {other: None for channel in client.joined for other in self._members[channel]}
        found |= dict.fromkeys(self.by_nick(client.nick))
        found.pop(client, None)
        return tuple(found)

    def _online(self, nick: str) -> None:
        self._notify_monitors(nick, "730")

    def _offline(self, nick: str) -> None:
        self._notify_monitors(nick, "731")

    def _notify_monitors(self, nick: str, code: str) -> None:
        folded = fold(nick)
        # A copy, because `push` can end a connection, which changes the lists.
        for client in tuple(self.clients):
            if folded in client.monitored:
                user = self.user(nick)
                shown = user.source if user is not None and code == "730" else nick
                client.push(numeric(code, client.nick, text=shown))


def _join_line(user: IrcUser, channel: str, client: Client) -> Line:
    """Return the JOIN of a user as one client sees it."""
    params = (channel, user.account or "*", user.realname) if "extended-join" in client.caps else (channel,)
    return fit_line(Line(source=user.source, command="JOIN", params=params, tags=_account_tag(user)))


def _account_tag(user: IrcUser) -> dict[str, str]:
    return {"account": user.account} if user.account else {}


def _user_of_client(client: Client, agent: Agent | None, away: str) -> IrcUser:
    return IrcUser(
        nick=client.nick,
        user=client.user,
        realname=client.realname,
        account="" if client.account.is_guest else client.account.name,
        prefix=_prefix(agent),
        since_ms=client.since_ms,
        away=away,
    )


def _user_of_agent(agent: Agent, away: str) -> IrcUser:
    return IrcUser(
        nick=nick_of(agent.name),
        user=nick_of(agent.name),
        realname=safe(" ".join(filter(None, (agent.harness, agent.role)))),
        account=agent.name,
        prefix=_prefix(agent),
        since_ms=agent.since,
        away=away,
    )


def _prefix(agent: Agent | None) -> str:
    if agent is None:
        return ""
    return "@" if agent.role in _OPERATORS else "+"
