"""Resolve addresses to agents: names, prefixes, groups, threads and paths. Pure."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from palaver.domain.paths import PathIndex, has_wildcard
from palaver.errors import AmbiguousRecipient, BadRequest, UnknownRecipient, nearest
from palaver.protocol.address import (
    AGENT,
    Address,
    Everyone,
    Glob,
    Human,
    Named,
    Path,
    RoleGroup,
    RoomAddress,
    TagGroup,
    format_address,
    parse_address,
    split_path,
)
from palaver.protocol.agents import GUEST_ROLE, LAUNCHED, LIMIT_NAME, Agent
from palaver.protocol.message import BROADCAST, HUMAN, MENTIONS, PATH
from palaver.protocol.paths import IRC, LOCAL_NETWORK, split_mailbox

# --------------------
# All named agents, found by any part of their name. Pure: the caller knows who is present.
#
# The cost of a lookup does not grow with the number of agents, except for groups of that size.

_LOOKED_AT: Final = 500
"""Names that are compared with an unknown one: counting edits is slow, and the event loop waits for it."""
# The character after the underscore: bisecting for it skips all names that continue with an underscore.
_AFTER_UNDERSCORE: Final = chr(ord("_") + 1)
_LAST: Final = chr(0x10FFFF)
"""Sorts after every character of a name: the end of all names with a prefix."""


class _Subscriber(NamedTuple):
    """A mailbox in the index of paths. `is_own`: by the agent's own path instead of a subscription."""

    mailbox: str
    is_own: bool = False


class Directory:
    """Agents by full name, base name, tag, role and prefix.

    `all` is in the order in which agents were first added. So are the groups of a base name, tag or role, but
    an agent whose base name, tag, role or parent changes moves to their end. Not thread-safe.
    """

    def __init__(self, agents: Iterable[Agent] = ()) -> None:
        self._agents: dict[str, Agent] = {}
        self._by_base: dict[str, dict[str, None]] = {}
        self._by_tag: dict[str, dict[str, None]] = {}
        self._by_role: dict[str, dict[str, None]] = {}
        self._bases: list[str] = []
        self._names: list[str] = []
        self._paths: PathIndex[_Subscriber] = PathIndex()
        self._patterns: dict[str, set[str]] = {}
        self._auto_run: set[str] = set()
        self._persons: set[str] = set()
        self._networks = {LOCAL_NETWORK}
        self.named: dict[tuple[tuple[str, ...], str], Resolved] = {}
        """Recipients of names, by the tokens and the sender. Valid until an agent is added or removed."""
        for agent in agents:
            self.put(agent)

    def __len__(self) -> int:
        return len(self._agents)

    def put(self, agent: Agent) -> None:
        """Add or replace an agent. A replaced one keeps its position in `all`."""
        old = self._agents.get(agent.name)
        # Most changes are of the status. They concern no index, and must not clear the remembered recipients.
        if old is not None and _placed(old) == _placed(agent):
            self._agents[agent.name] = agent
            return
        self.named.clear()
        if old is not None:
            self._forget(old)
        self._agents[agent.name] = agent
        if agent.base not in self._by_base:
            self._by_base[agent.base] = {}
            insort(self._bases, agent.base)
        self._by_base[agent.base][agent.name] = None
        if agent.tag:
            self._by_tag.setdefault(agent.tag, {})[agent.name] = None
        self._by_role.setdefault(agent.role, {})[agent.name] = None
        if agent.role == GUEST_ROLE:
            self._persons.add(agent.name)
        insort(self._names, agent.name)
        for path in own_paths(agent.name, agent.parent):
            self._paths.add(path, _Subscriber(agent.name, is_own=True))

    def drop(self, name: str) -> None:
        """Remove an agent; an unknown name is not an error. Its tag stays known."""
        agent = self._agents.pop(name, None)
        if agent is not None:
            self.named.clear()
            self._forget(agent)

    def _forget(self, agent: Agent) -> None:
        same_base = self._by_base[agent.base]
        del same_base[agent.name]
        if not same_base:
            del self._by_base[agent.base]
            del self._bases[bisect_left(self._bases, agent.base)]
        if agent.tag:
            # The empty group stays, so that a message to it is stored and not refused as unknown.
            del self._by_tag[agent.tag][agent.name]
        del self._by_role[agent.role][agent.name]
        self._persons.discard(agent.name)
        del self._names[bisect_left(self._names, agent.name)]
        for path in own_paths(agent.name, agent.parent):
            self._paths.remove(path, _Subscriber(agent.name, is_own=True))

    def get(self, full_name: str) -> Agent | None:
        """Return the agent with this full name."""
        return self._agents.get(full_name)

    def hints_for(self, full_name: str, of_bus: str) -> str:
        """Return the text that an agent gets after its messages: its own, or else that of the bus."""
        agent = self.get(full_name)
        return (agent.hints if agent is not None else "") or of_bus

    def is_launched(self, full_name: str) -> bool:
        """Return whether `pal HARNESS` started the agent and gave it hooks.

        An agent started by `pal run` has only the hooks that its harness finds by itself.
        """
        agent = self.get(full_name)
        return agent is not None and agent.argv[: len(LAUNCHED)] == LAUNCHED

    def find(self, written: str) -> Agent | None:
        """Return the agent with a full name as people write it: in any case, with or without `@`.

        An agent of this device may have the device after its name, as agents of other devices have.
        """
        name, colon, device = written.removeprefix("@").lower().partition(":")
        return self.get(name + colon + device.upper()) or self._here(name, device.upper())

    def _here(self, name: str, device: str) -> Agent | None:
        """Return the agent with a full name without a device, if this device is its own."""
        agent = self.get(name)
        return agent if agent is not None and agent.device == device else None

    def all(self) -> Iterator[Agent]:
        """Return all agents."""
        return iter(self._agents.values())

    def by_base(self, base: str) -> list[Agent]:
        """Return all agents with a base name, tagged or not, local or remote."""
        return [self._agents[name] for name in self._by_base.get(base, ())]

    def by_tag(self, tag: str) -> list[Agent]:
        """Return all agents with a tag."""
        return [self._agents[name] for name in self._by_tag.get(tag, ())]

    def has_tag(self, tag: str) -> bool:
        """Return whether any agent has or had a tag."""
        return tag in self._by_tag

    def by_role(self, role: str) -> list[Agent]:
        """Return all agents with a role."""
        return [self._agents[name] for name in self._by_role.get(role, ())]

    def by_glob(self, prefix: str) -> list[Agent]:
        """Return all agents whose full name starts with a prefix, sorted by name."""
        first, last = self._range_of(prefix)
        return [self._agents[name] for name in self._names[first:last]]

    def _range_of(self, prefix: str) -> tuple[int, int]:
        """Return where the names with a prefix begin and end in the sorted names."""
        first = bisect_left(self._names, prefix)
        return first, bisect_left(self._names, prefix + _LAST, first)

    def paths_of(self, name: str) -> tuple[str, ...]:
        """Return the default paths of a name, whether it is in the directory or not."""
        agent = self._agents.get(name)
        return own_paths(name, "" if agent is None else agent.parent)

    def subscribe(self, mailbox: str, pattern: str) -> None:
        """Add a path subscription of an agent or session; a repeat has no effect."""
        self._paths.add(pattern, _Subscriber(mailbox))
        self._patterns.setdefault(mailbox, set()).add(pattern)

    def unsubscribe(self, mailbox: str, pattern: str) -> None:
        """Remove a path subscription; a missing one is not an error."""
        self._paths.remove(pattern, _Subscriber(mailbox))
        self._patterns.get(mailbox, set()).discard(pattern)

    def remove_session(self, mailbox: str) -> None:
        """Remove all path subscriptions of a session."""
        for pattern in self._patterns.pop(mailbox, ()):
            self._paths.remove(pattern, _Subscriber(mailbox))

    def set_auto_run(self, name: str, *, is_on: bool) -> None:
        """Record whether the messages of an agent start automatic turns, so that it need not be present."""
        if is_on:
            self._auto_run.add(name)
        else:
            self._auto_run.discard(name)

    def serve_network(self, network: str) -> None:
        """Record that a bridge carries the messages for an IRC network, so that they are not dead letters."""
        self._networks.add(network)

    def is_served(self, path: str) -> bool:
        """Return whether something other than a subscription carries the messages of a path."""
        first, *rest = split_path(path)
        return first == IRC and len(rest) > 1 and rest[0] in self._networks and not has_wildcard(path)

    def by_path(self, path: str, *, is_present: Callable[[str], bool] = lambda name: True) -> set[str]:
        """Return the mailboxes that a delivery path reaches.

        A path with wildcards reaches present agents by their own paths, and absent ones with automatic turns.
        Subscriptions also count for all absent ones. A registered person is reached by its exact path only.
        """
        is_direct = not has_wildcard(path)

        def is_reached(one: _Subscriber) -> bool:
            if is_direct or not one.is_own:
                return True
            # An automatic turn starts the agent, so it need not be present.
            is_there = one.mailbox in self._auto_run or is_present(one.mailbox)
            return is_there and one.mailbox not in self._persons

        return {one.mailbox for one in self._paths.match(path) if is_reached(one)}

    def bases_with(self, prefix: str, limit: int) -> list[str]:
        """Return the first base names with a prefix, sorted. An underscore stops a prefix.

        That is the first underscore of a name, which separates a sub-agent from its parent. A prefix that
        contains an underscore stops only right before another one.
        """
        found: list[str] = []
        has_chosen = "_" in prefix
        index = bisect_left(self._bases, prefix)
        while index < len(self._bases) and len(found) < limit:
            base = self._bases[index]
            if not base.startswith(prefix):
                break
            underscore = len(prefix) if has_chosen else base.find("_", len(prefix))
            if underscore < 0 or base[underscore : underscore + 1] != "_":
                found.append(base)
                index += 1
            else:
                # A sub-agent: skip all names with this beginning at once, because a parent can have many.
                index = bisect_left(self._bases, base[:underscore] + _AFTER_UNDERSCORE, index)
        return found

    def nearest(self, name: str, n: int = 3) -> list[str]:
        """Return the `n` most similar full names, best first; names with the same first letter come first.

        Ended sub-agents are not suggested, because no message can reach them.
        """
        # First the names with the same first letter, so that they are compared even in a very large
        # directory.
        first, last = self._range_of(name[:1]) if name else (0, 0)
        pool = self._names[first : min(last, first + _LOOKED_AT)]
        known = set(pool)
        for other in self._names:
            if len(pool) >= _LOOKED_AT:
                break
            if other not in known:
                pool.append(other)
        agents = [agent for one in pool if not _is_over(agent := self._agents[one])]
        by_word: dict[str, list[str]] = {}
        for agent in agents:  # An agent with a tag is also known by its base name.
            for word in {agent.name, agent.base}:
                by_word.setdefault(word, []).append(agent.name)
        near = nearest(name, by_word, len(by_word))
        return list(dict.fromkeys(one for word in near for one in sorted(by_word[word], key=len)))[:n]


def _is_over(agent: Agent) -> bool:
    return bool(agent.parent) and agent.left


def own_paths(name: str, parent: str = "") -> tuple[str, ...]:
    """Return the default paths of an agent, without subscriptions.

    A sub-agent `luna_reviewer_1` also has a path below its parent: `agent/luna/reviewer_1`. An underscore in
    the name of the parent does not split it.
    """
    first, _, rest = name.partition("_")
    child = name.removeprefix(f"{parent}_") if parent else ""
    below = [(first, rest), (parent, child)]
    paths = [f"{AGENT}/{name}", *(f"{AGENT}/{above}/{own}" for above, own in below if above and own)]
    # Without repeats: both splits are the same if the name of the parent has no underscore.
    return tuple(dict.fromkeys(paths))


def _placed(agent: Agent) -> tuple[str, ...]:
    """Return the fields that decide where an agent is found."""
    return agent.base, agent.tag, agent.role, agent.parent


# --------------------
# Resolve recipients: address tokens in, names out. Pure: the same directory gives the same result.
#
# Groups, broadcasts and paths with wildcards reach present agents; names and other paths also absent ones. A
# registered person is reached only by its name.
# A group, broadcast or base name never includes the sender. The sender's own full name does; for an agent
# without a tag that is its base name, while no other agent shares it.

_CANDIDATES: Final = 20
_LONGEST_WORD: Final = 2 * LIMIT_NAME
"""Characters of a word that may be a name with its device."""
_LIMIT_SUGGESTED: Final = 20
"""Unknown tokens of one message that get suggestions: each search takes milliseconds of the event loop."""
_LIMIT_UNKNOWN: Final = 100
"""Unknown tokens that one error names. Then the other tokens are only counted: a text can have thousands."""
_LIMIT_NAMED: Final = 1024
"""Results that a directory remembers; then it forgets all of them."""


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
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
    handled: Mapping[str, tuple[str, ...]] = {}
    """Agents that a path reached together with sessions of them: the ids of those sessions."""


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
) -> Resolved:
    """Find the recipients of the tokens; no tokens at all is a broadcast.

    `mentions` are tokens found in a text; they have the same meaning, but cannot be prefixes. `rooms` returns
    the members of a room, or None for an unknown room.

    Raises `UnknownRecipient` with the first `_LIMIT_UNKNOWN` unknown tokens, or `AmbiguousRecipient` for a
    prefix of several base names; then nothing may be sent.
    """
    # A program often sends to the same names. Only results of names are remembered: groups depend on which
    # agents are present, and that changes without a change of the directory.
    # With the sender, because a base name leaves its own sender out.
    key = (tuple(tokens), sender)
    if not mentions and (known := directory.named.get(key)) is not None:
        return known
    search = _Search(directory, sender, is_present, rooms)
    if not tokens and not mentions:
        return Resolved(recipients=tuple(search.group(directory.all())))
    for token in tokens:
        search.add(token, can_be_prefix=True)
    for token in mentions:
        search.add(token, can_be_prefix=False)
    result = search.result()
    if not mentions and search.has_only_names:
        if len(directory.named) >= _LIMIT_NAMED:
            directory.named.clear()
        directory.named[key] = result
    return result


def resolve_exactly(
    tokens: Sequence[str], directory: Directory, *, sender: str, is_present: Callable[[str], bool]
) -> Resolved:
    """Find the recipients of an envelope by the rules of the wire, which `matches_recipient` has too.

    A group reaches the agents present; a name also an offline agent. Raises `UnknownRecipient` with the first
    `_LIMIT_UNKNOWN` tokens that match no agent.
    """
    found: dict[str, None] = {}
    unknown = UnknownTokens(directory)
    empty: list[str] = []
    for token in tokens or (format_address(Everyone()),):
        if unknown.is_full:
            unknown.unchecked += 1
            continue
        spelling = _wire_group(token)
        # Another spelling of a group is refused and suggested: programs compare tokens exactly, so the
        # recipients would not recognise it as theirs.
        if spelling == token:
            group = resolve((token,), directory, sender=sender, is_present=is_present).recipients
            found.update(dict.fromkeys(group))
            empty += [] if group else [token]
        elif token == HUMAN or directory.get(token) is not None:
            found[token] = None
        else:
            unknown.add(token, token.strip("@-*").lower(), known=[spelling] if spelling else None)
    unknown.check()
    return Resolved(
        to=tuple(tokens),
        recipients=tuple(found),
        scope=MENTIONS if tokens else BROADCAST,
        empty_groups=tuple(empty) if tokens else (),
    )


def _wire_group(token: str) -> str | None:
    """Return a group as it is spelled on the wire, where no other spelling counts; None for another token."""
    try:
        address = parse_address(token)
    except BadRequest:
        return None
    return format_address(address) if isinstance(address, Everyone | RoleGroup | Glob) else None


def is_recipient(directory: Directory, word: str) -> bool:
    """Return whether a word is the name of an agent or of a group, or the beginning of a name."""
    if len(word) > _LONGEST_WORD:
        return False
    try:
        # Presence does not matter here: a known group without present members is an empty result and not an
        # error.
        resolve([word], directory, sender="", is_present=lambda name: False)
    except AmbiguousRecipient:
        return True
    except (BadRequest, UnknownRecipient):
        return False
    # A path is resolved without an error too, but names neither an agent nor a group.
    return "/" not in word


class UnknownTokens:
    """The tokens of one message that match no agent, with their suggestions. Limits the cost of both."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._tokens: dict[str, Sequence[str]] = {}
        self.unchecked = 0
        """Further tokens, which were not looked up."""

    @property
    def is_full(self) -> bool:
        """Whether the error names no more tokens, so that they need not be looked up."""
        return len(self._tokens) >= _LIMIT_UNKNOWN

    def add(self, token: str, name: str, known: Sequence[str] | None = None) -> None:
        """Record an unknown token with what is `known` to be meant, or else the names similar to `name`."""
        if token in self._tokens:
            return
        if known is None:
            known = self._directory.nearest(name) if len(self._tokens) < _LIMIT_SUGGESTED else ()
        self._tokens[token] = known

    def check(self) -> None:
        """Raise `UnknownRecipient` if there are unknown tokens."""
        if self._tokens:
            raise UnknownRecipient(self._tokens, self.unchecked)


class _Search:
    """The results collected while the tokens of one message are resolved."""

    def __init__(
        self,
        directory: Directory,
        sender: str,
        is_present: Callable[[str], bool],
        rooms: Callable[[str | None], Sequence[str] | None],
    ) -> None:
        self._directory = directory
        self._sender = sender
        self._is_present = is_present
        self._rooms = rooms
        # Dictionaries as ordered sets: no repeats, in the order of insertion.
        self._tokens: dict[str, Address] = {}
        self._recipients: dict[str, None] = {}
        self._empty: dict[str, None] = {}
        self._dead: dict[str, None] = {}
        self._by_name: set[str] = set()
        self._unknown = UnknownTokens(directory)
        self._ambiguous: AmbiguousRecipient | None = None

    def add(self, written: str, *, can_be_prefix: bool) -> None:
        """Resolve one token and store its result."""
        if self._unknown.is_full:
            self._unknown.unchecked += 1
            return
        address = parse_address(written)
        token = format_address(address)
        self._tokens[token] = address
        found = self._find(address, written, can_be_prefix=can_be_prefix)
        # None is an unknown token, and an empty list a known one that reaches no agent now.
        if found:
            self._recipients.update(dict.fromkeys(found))
            self._by_name.update(() if isinstance(address, Path) else found)
        elif found is None:
            is_room = isinstance(address, RoomAddress)
            # For a room there are no suggestions: similar names here would be those of agents.
            self._unknown.add(written, token.strip("@-"), known=() if is_room else None)
        elif isinstance(address, Path):
            if not self._directory.is_served(address.path):
                self._dead[address.path] = None
        else:
            self._empty[token] = None

    @property
    def has_only_names(self) -> bool:
        """Whether each token is a name: then the result depends only on the directory and the sender."""
        return all(isinstance(address, Named) for address in self._tokens.values())

    def result(self) -> Resolved:
        """Return the result, or raise an error with all problems."""
        # Raised only here, so that one refusal names all unknown tokens.
        self._unknown.check()
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
            handled=self._handled() if paths else {},
        )

    def _handled(self) -> dict[str, tuple[str, ...]]:
        """Return the agents whose sessions have a copy too, unless the sender addressed the agent itself."""
        sessions: dict[str, list[str]] = {}
        for mailbox in self._recipients:
            agent, session = split_mailbox(mailbox)
            if session and agent not in self._by_name:
                sessions.setdefault(agent, []).append(session)
        return {agent: tuple(found) for agent, found in sessions.items()}

    def group(self, agents: Iterable[Agent]) -> list[str]:
        """Return the present members of a group without the sender. A registered person is in no group."""
        return [
            agent.name
            for agent in agents
            if agent.name != self._sender and agent.role != GUEST_ROLE and self._is_present(agent.name)
        ]

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
            case RoomAddress(name=name):
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
        # Only if no agent has the complete name: a new agent `luna2` must not make `luna` ambiguous.
        if not found and can_be_prefix:
            bases = self._directory.bases_with(name, _CANDIDATES)
            if len(bases) > 1:
                # Not raised yet: other tokens may be unknown, and one refusal should name all of them.
                self._ambiguous = self._ambiguous or AmbiguousRecipient(written, bases)
                return []
            found = [agent.name for base in bases for agent in self._directory.by_base(base)]
        # A full name selects even the sender, because it cannot mean anyone else. A base name is a group.
        if len(found) == 1 and self._directory.find(name) == self._directory.get(found[0]):
            return found
        return [full for full in found if full != self._sender] if found else None

    def _with_name(self, name: str) -> list[str]:
        """Return all agents with a name: a full name is one agent, a base name all that share it."""
        text, _, device = name.partition(":")
        tag, _, base = text.rpartition("-")
        if (tag or device) and (agent := self._directory.find(name)) is not None:
            return [agent.name]
        if tag and not device:
            return []  # no base name contains a hyphen
        return [
            agent.name
            for agent in self._directory.by_base(base)
            if not device or (agent.device == device and (not tag or agent.tag == tag))
        ]

    def _on_path(self, path: str) -> list[str]:
        """Return the mailboxes that a path reaches: sessions first, then agents. A session adds its agent."""
        # The sender of a command to other agents does not mean itself, for example with `agent/**`. On other
        # paths a subscribed sender has its copy, like everyone.
        is_other = path.startswith(f"{AGENT}/") and path not in self._directory.paths_of(self._sender)
        sessions, agents = set(), set()
        for mailbox in self._directory.by_path(path, is_present=self._is_present):
            agent, session = split_mailbox(mailbox)
            if not (is_other and agent == self._sender):
                agents.add(agent)
                if session:
                    sessions.add(mailbox)
        # Sets have no fixed order, and the same directory must give the same result.
        return [*sorted(sessions), *sorted(agents)]
