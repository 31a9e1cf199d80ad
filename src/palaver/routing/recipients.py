"""Resolve recipients: address tokens in, names out. Pure: the same directory gives the same result.

Groups, broadcasts and paths with wildcards reach present agents; names and other paths also absent ones. A
group, broadcast or base name never includes the sender. The sender's own full name does; for an agent without
a tag that is its base name, while no other agent shares it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from palaver.errors import AmbiguousRecipient, UnknownRecipient
from palaver.model.address import (
    Address,
    Everyone,
    Glob,
    Human,
    Named,
    Path,
    RoleGroup,
    Room,
    TagGroup,
    format_address,
    parse_address,
)
from palaver.model.agent import Agent
from palaver.model.message import BROADCAST, HUMAN, MENTIONS, PATH
from palaver.model.path import AGENT
from palaver.routing.directory import Directory
from palaver.routing.paths import has_wildcard

_CANDIDATES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The recipients of a message, and how it was addressed."""

    to: tuple[str, ...] = ()
    """The tokens, each in its canonical spelling."""
    recipients: tuple[str, ...] = ()
    """Full names without repeats, in the order of the tokens, then of the directory."""
    scope: str = BROADCAST
    empty_groups: tuple[str, ...] = ()
    """Valid tokens that reach no agent now; they are stored and reported."""
    paths: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
    """Paths without a recipient."""


def nobody(_: str) -> Iterable[str]:
    """Return no subscribers: the default if there are no subscriptions."""
    return ()


def no_rooms(_: str | None) -> Sequence[str] | None:
    """Return no room: the default if there are no rooms."""
    return None


def resolve(
    tokens: Sequence[str],
    directory: Directory,
    *,
    sender: str,
    is_present: Callable[[str], bool],
    mentions: Sequence[str] = (),
    rooms: Callable[[str | None], Sequence[str] | None] = no_rooms,
    subscribers: Callable[[str], Iterable[str]] = nobody,
) -> Resolved:
    """Find the recipients of the tokens; no tokens at all is a broadcast.

    `mentions` are tokens found in a text; they have the same meaning, but cannot be prefixes. `rooms` returns
    the members of a room, or None for an unknown room. `subscribers` returns the names that subscribed to a
    path, in addition to the agents' own paths.

    Raises `UnknownRecipient` with every unknown token, or `AmbiguousRecipient` for a prefix of several base
    names; then nothing may be sent.
    """
    search = _Search(directory, sender, is_present, rooms, subscribers)
    if not tokens and not mentions:
        return Resolved(recipients=tuple(search.group(directory.all())))
    for token in tokens:
        search.add(token, can_be_prefix=True)
    for token in mentions:
        search.add(token, can_be_prefix=False)
    return search.result()


class _Search:
    """The results collected while the tokens of one message are resolved."""

    def __init__(
        self,
        directory: Directory,
        sender: str,
        is_present: Callable[[str], bool],
        rooms: Callable[[str | None], Sequence[str] | None],
        subscribers: Callable[[str], Iterable[str]],
    ) -> None:
        self._directory = directory
        self._sender = sender
        self._is_present = is_present
        self._rooms = rooms
        self._subscribers = subscribers
        # Dictionaries as ordered sets: no repeats, in the order of insertion.
        self._tokens: dict[str, Address] = {}
        self._recipients: dict[str, None] = {}
        self._empty: dict[str, None] = {}
        self._dead: dict[str, None] = {}
        self._unknown: dict[str, list[str]] = {}
        self._ambiguous: AmbiguousRecipient | None = None

    def add(self, written: str, *, can_be_prefix: bool) -> None:
        """Resolve one token and store its result."""
        address = parse_address(written)
        token = format_address(address)
        self._tokens[token] = address
        found = self._find(address, written, can_be_prefix=can_be_prefix)
        if found:
            self._recipients.update(dict.fromkeys(found))
        elif found is None:
            is_room = isinstance(address, Room)
            self._unknown[written] = [] if is_room else self._directory.nearest(token.strip("@-"))
        elif isinstance(address, Path):
            self._dead[address.path] = None
        else:
            self._empty[token] = None

    def result(self) -> Resolved:
        """Return the result, or raise an error with all problems."""
        if self._unknown:
            raise UnknownRecipient(self._unknown)
        if self._ambiguous:
            raise self._ambiguous
        addresses = self._tokens.values()
        paths = tuple(address.path for address in addresses if isinstance(address, Path))
        if len(paths) == len(addresses):
            scope = PATH
        elif any(isinstance(address, Everyone) for address in addresses):
            scope = BROADCAST
        else:
            scope = MENTIONS
        return Resolved(
            to=tuple(self._tokens),
            recipients=tuple(self._recipients),
            scope=scope,
            empty_groups=tuple(self._empty),
            paths=paths,
            dead=tuple(self._dead),
        )

    def group(self, agents: Iterable[Agent]) -> list[str]:
        """Return the present members of a group without the sender."""
        return [agent.name for agent in agents if agent.name != self._sender and self._is_present(agent.name)]

    def _find(self, address: Address, written: str, *, can_be_prefix: bool) -> list[str] | None:
        """Return the recipients of one token; None if the token is unknown."""
        directory = self._directory
        match address:
            case Named(name=name):
                return self._named(name, written, can_be_prefix=can_be_prefix)
            case Human():
                return [HUMAN]
            case Path(path=path):
                return self._on_path(path)
            case Room(name=name):
                members = self._rooms(name)
                return None if members is None else [one for one in members if one != self._sender]
            case TagGroup(tag=tag):
                return self.group(directory.by_tag(tag)) if directory.has_tag(tag) else None
            case RoleGroup(role=role):
                return self.group(directory.by_role(role))
            case Glob(prefix=prefix):
                return self.group(directory.by_glob(prefix))
            case _:
                return self.group(directory.all())

    def _named(self, name: str, written: str, *, can_be_prefix: bool) -> list[str] | None:
        found = self._with_name(name)
        if not found and can_be_prefix:
            bases = self._directory.bases_with(name, _CANDIDATES)
            if len(bases) > 1:
                self._ambiguous = self._ambiguous or AmbiguousRecipient(written, bases)
                return []
            found = [agent.name for base in bases for agent in self._directory.by_base(base)]
        if found == [name]:
            return found
        return [full for full in found if full != self._sender] if found else None

    def _with_name(self, name: str) -> list[str]:
        """Return all agents with a name: a full name is one agent, a base name all that share it."""
        text, _, device = name.partition(":")
        tag, _, base = text.rpartition("-")
        if (tag or device) and self._directory.get(name):
            return [name]
        if tag and not device:
            return []
        return [
            agent.name
            for agent in self._directory.by_base(base)
            if not device or (agent.device == device and (not tag or agent.tag == tag))
        ]

    def _on_path(self, path: str) -> list[str]:
        found = self._directory.by_path(path).union(self._subscribers(path))
        if path.startswith(f"{AGENT}/") and path not in self._directory.paths_of(self._sender):
            found.discard(self._sender)
        if has_wildcard(path):
            found = {name for name in found if self._is_present(name)}
        return sorted(found)
