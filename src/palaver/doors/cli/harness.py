"""The commands that start harnesses, set them up, or are run by them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain, repeat
from typing import Final

import msgspec

from palaver.domain.rights import require_own_mail
from palaver.doors.cli.call import Call
from palaver.doors.cli.spec import (
    COUNT,
    DETACH,
    NAME,
    ROLE,
    TAG,
    WINDOW,
    Command,
    Option,
    Positional,
    format_argv,
)
from palaver.doors.cli.terminals import launch
from palaver.errors import PalaverError, UsageError, WhoAreYou
from palaver.harness.claude.output import (
    LIMIT_BYTES,
    LIMIT_MESSAGES,
    LOOKED_UP,
    MonitorPace,
    Registered,
    Rest,
    can_end_unreported,
    corrected,
    monitor_lines,
    read_registered,
    registry_path,
    wake_lines,
)
from palaver.harness.hooks import HookStep, is_limited
from palaver.harness.registry import read_hook
from palaver.harness.setup import INSTALLED
from palaver.identity.workspace import home_folders
from palaver.protocol.agents import INSTANCE, Agent, caller_for
from palaver.protocol.envelope import Event
from palaver.protocol.events import AGENT_TYPES, BYE, SEAT_TYPES, Grade
from palaver.protocol.lanes import (
    NOT_YET,
    PACED,
    Ability,
    Delivering,
    Lane,
    LaneKind,
    LaneLevel,
    Offer,
    OfferOutcome,
)
from palaver.protocol.requests import SetStatus
from palaver.services.evidence import Conversation, Natives, Wake
from palaver.services.services import Services
from palaver.services.views import carried_lines

# --------------------
# Rows of the commands that start harnesses, and of the commands that harnesses run.

_GROUP: Final = "Harnesses"

_OPTIONS: Final = (NAME, TAG, ROLE, DETACH, COUNT, WINDOW)

_EXCLUSIVE: Final = ((DETACH.name, WINDOW.name), (COUNT.name, WINDOW.name))

_CODEX_OPTIONS: Final = (
    *_OPTIONS,
    Option(name="--no-hooks", help="Run without hooks, even if you agreed to them."),
    Option(name="--hooks", help="Ask again whether Codex may run hooks of Palaver."),
)

HARNESS_COMMANDS: Final = (
    Command(
        path=("claude",),
        group=_GROUP,
        summary="Start Claude Code as an agent.",
        description=(
            "Like 'pal run -- claude', but messages arrive without keystrokes, while it works and while it "
            "is idle. Arguments after the options below go to Claude Code unchanged. Your own settings apply "
            "and are not changed. A resumed conversation keeps its name."
        ),
        rest="ARGS...",
        hands_on=True,
        options=_OPTIONS,
        exclusive=_EXCLUSIVE,
        examples=(
            ("pal claude", "start a session in this folder"),
            ("pal claude --name luna --model opus", "choose the name; --model goes to Claude Code"),
            ("pal claude --count 3 --tag api", "start three agents as the group @api-"),
            ('pal claude -p "run the tests"', "run one prompt without a terminal"),
            ("pal claude --continue", "resume the last conversation under its name"),
            ("pal claude --window", "in a new window of your terminal"),
        ),
        see=(("Claude Code", "claude.md"),),
    ),
    Command(
        path=("codex",),
        group=_GROUP,
        summary="Start Codex as an agent.",
        description=(
            "Like 'pal run -- codex', but messages arrive without keystrokes, while it works and while it is "
            "idle. Arguments after the options below go to Codex unchanged. Your own settings apply and are "
            "not changed. A resumed conversation keeps its name."
        ),
        rest="ARGS...",
        hands_on=True,
        options=_CODEX_OPTIONS,
        exclusive=_EXCLUSIVE,
        examples=(
            ("pal codex", "start a session in this folder"),
            ("pal codex --name nova -m gpt-6-sol", "choose the name; -m goes to Codex"),
            ('pal codex exec "run the tests"', "run one prompt without a terminal"),
            ("pal codex resume --last", "resume the last conversation under its name"),
        ),
        see=(
            ("Codex", "codex.md"),
            ("hooks", "codex.md#hooks"),
        ),
    ),
    Command(
        path=("opencode",),
        group=_GROUP,
        summary="Start OpenCode as an agent.",
        description=(
            "Like 'pal run -- opencode', but messages arrive without keystrokes, while it works and while it "
            "is idle. Arguments after the options below go to OpenCode unchanged. Your own settings apply "
            "and are not changed. A resumed conversation keeps its name."
        ),
        rest="ARGS...",
        hands_on=True,
        options=_OPTIONS,
        exclusive=_EXCLUSIVE,
        examples=(
            ("pal opencode", "start a session in this folder"),
            ("pal opencode --name kira --agent plan", "choose the name; --agent goes to OpenCode"),
            ("pal opencode --continue", "resume the last conversation under its name"),
            ('pal opencode run "run the tests"', "run one prompt without a terminal"),
        ),
        see=(("OpenCode", "opencode.md"),),
    ),
    Command(
        path=("gemini",),
        group=_GROUP,
        summary="Start Gemini CLI as an agent.",
        description=(
            "Like 'pal run -- gemini', but messages arrive without keystrokes while it works; while it is "
            "idle, they are typed. Arguments after the options below go to Gemini CLI unchanged. Your own "
            "settings apply and are not changed. A resumed conversation keeps its name."
        ),
        rest="ARGS...",
        hands_on=True,
        options=_OPTIONS,
        exclusive=_EXCLUSIVE,
        examples=(
            ("pal gemini", "start a session in this folder"),
            ("pal gemini --name juno -m gemini-pro", "choose the name; -m goes to Gemini CLI"),
            ('pal gemini -p "run the tests"', "run one prompt without a terminal"),
            ("pal gemini --resume latest", "resume the last conversation under its name"),
        ),
        see=(("Gemini CLI", "gemini.md"),),
    ),
    Command(
        path=("start",),
        group=_GROUP,
        summary="Start several agents, also of different kinds.",
        description=(
            "They run in the background, each with a free name, and their names are printed in the order of "
            "the arguments. 'pal attach NAME' shows one of them. If a harness is not installed, none is "
            "started. To choose a name or arguments for a harness, start it with its own command, such as "
            "'pal claude'."
        ),
        positionals=(
            Positional(
                name="HARNESS[:N]",
                help="Harness and number (default: 1), at most 20 in all.",
                many=True,
                completes="launchable",
            ),
        ),
        options=(TAG, ROLE),
        examples=(
            ("pal start claude:2 codex --tag api", "two of one kind and one of another, as the group @api-"),
            ("pal stop --tag api", "stop them again"),
        ),
        see=(("groups", "terminals.md#groups"),),
    ),
    Command(
        path=("hook",),
        group=_GROUP,
        summary="Forward a harness hook to the bus and print the reply.",
        description=(
            "Harnesses run this command. It reads the input of the hook from standard input. It never "
            "blocks the harness and never starts the bus: if the bus is not running, or after an error, "
            "it prints nothing and exits with status 0."
        ),
        positionals=(
            Positional(name="HARNESS", help="The harness.", choices=("claude", "codex", "gemini")),
            Positional(name="EVENT", help="The name of the hook, such as Stop."),
        ),
        options=(
            Option(name="--installed", help="The hook was set up by 'pal install', not for one session."),
        ),
        examples=(("pal hook claude Stop", "as the command of a hook"),),
        see=(("hooks", "hooks.md"),),
    ),
    Command(
        path=("monitor",),
        summary="Print messages as they arrive; run by a harness.",
        is_hidden=True,
    ),
    Command(
        path=("rewake",),
        summary="Wait for messages and print them; run by a harness.",
        description="Exits with status 2 after it has printed messages.",
        is_hidden=True,
        positionals=(Positional(name="EVENT", help="The hook that started this command, such as Stop."),),
        options=(
            Option(name="--installed", help="The hook was set up by 'pal install', not for one session."),
        ),
    ),
)


# --------------------
# Rows of the commands that install files for harnesses.

_INSTALL_GROUP: Final = "Setup"

_WHAT: Final = Positional(
    name="WHAT",
    help="The skill, a harness, or everything.",
    choices=("skill", "claude", "codex", "opencode", "gemini", "all"),
)
_YES: Final = Option(name="--yes", help="Do not ask for confirmation.")
_DIR: Final = Positional(
    name="DIR",
    help="Folder for the skill (default: those of all harnesses).",
    optional=True,
    completes="directories",
)

INSTALL_COMMANDS: Final = (
    Command(
        path=("install",),
        group=_INSTALL_GROUP,
        summary="Set up a harness, or install the skill for agents.",
        description=(
            "With a harness: connects sessions that you start without 'pal' to the bus too. The command "
            "shows the changes to your settings and asks first. Existing settings are kept, and 'pal "
            "uninstall' restores the original file. The skill is a text that teaches agents when and how to "
            "send messages, pass the stick and add notes; it is written to DIR/palaver/SKILL.md. Run the "
            "command again to update. A different skill with that name is not changed. 'all' is the skill "
            "and every harness on your PATH."
        ),
        positionals=(_WHAT, _DIR),
        options=(Option(name="--print", help="Print the changes and write nothing."), _YES),
        exclusive=(("--print", "--yes"),),
        examples=(
            ("pal install claude", "connect every Claude Code session"),
            ("pal install gemini --print", "show the changes first"),
            ("pal install skill", "for all harnesses and projects"),
            ("pal install skill .claude/skills", "for Claude Code in this project"),
            ("pal install skill --print", "print the skill"),
            ("pal install all", "every harness on your PATH, and the skill"),
        ),
        see=(
            ("install", "install.md"),
            ("the skill", "skill.md"),
        ),
    ),
    Command(
        path=("uninstall",),
        group=_INSTALL_GROUP,
        summary="Undo 'pal install'.",
        description=(
            "Restores the settings of a harness byte for byte. If the file has changed since, only "
            "entries of Palaver are removed, and the command says so. Nothing else is changed. The "
            "command acts on the folder that the harness would use now ($CLAUDE_CONFIG_DIR, $CODEX_HOME, "
            "$XDG_CONFIG_HOME, $GEMINI_CLI_HOME). If nothing is installed there, it says so, with exit "
            "status 0. 'all' undoes every installation in all folders, removes the line of 'pal "
            "completion' from the start file of your shell, and prints the commands that remove Palaver "
            "itself."
        ),
        positionals=(_WHAT, _DIR),
        options=(Option(name="--print", help="Print what would be removed and remove nothing."), _YES),
        exclusive=(("--print", "--yes"),),
        examples=(
            ("pal uninstall claude", "restore the settings of Claude Code"),
            ("pal uninstall skill", "remove the skill everywhere"),
            ("pal uninstall all", "undo every 'pal install'"),
        ),
        see=(("removing everything", "install.md#removing-everything"),),
    ),
)


# --------------------
# Functions of `pal claude`, `codex`, `opencode` and `gemini`. The client starts the harness.
#
# Hooks have a separate door, `doors/hooks`.


async def claude(call: Call) -> int:
    """Let the client start Claude Code."""
    return launch(call, "claude", tuple(call.parsed.after or ()))


async def codex(call: Call) -> int:
    """Let the client start Codex."""
    return launch(call, "codex", tuple(call.parsed.after or ()))


async def opencode(call: Call) -> int:
    """Let the client start OpenCode."""
    return launch(call, "opencode", tuple(call.parsed.after or ()))


async def gemini(call: Call) -> int:
    """Let the client start Gemini CLI."""
    return launch(call, "gemini", tuple(call.parsed.after or ()))


async def hook(call: Call) -> int:
    """Do nothing for a client that sends a hook as a command: it is older than the door for hooks."""
    return 0  # An error would be shown to the harness, and a hook must never disturb it.


# --------------------
# Function of `pal install` and `pal uninstall`: the client writes the files, with its own rights.


async def install(call: Call) -> int:
    """Let the client run the command in its own process."""
    if call.parsed.positionals[0] != "skill" and len(call.parsed.positionals) > 1:
        raise UsageError("only the skill takes a folder; a harness decides itself where its settings are")
    call.connection.run_here(*format_argv(call.parsed))
    return 0


# --------------------
# Function of `pal monitor`: a process that a harness keeps running, and whose output lines it reads.
#
# It is a native lane that can carry messages at any time. An offer stays open until a hook shows its lines
# in a prompt; without hooks, the only evidence is that the lines were written out. The lane is closed while
# another line would exceed the rate limit of the harness. If the agent is idle and no prompt has shown the
# lines, the harness has dropped them: the offer is withdrawn, and its messages go by another lane or once
# more by this one.

MONITOR_ABILITY: Final = Ability(
    kind=LaneKind.NATIVE,
    reaches_busy=True,
    wakes_idle=True,
    limit=LIMIT_MESSAGES,
    remembers=True,
    # Seconds. An idle session would have shown the lines in a prompt by then, if they were not dropped.
    idle_wait_s=15.0,
)
_LIMIT_HAD: Final = 40
"""How many messages a token names at most. A token has at most 1,024 bytes in the client."""


class _Token(msgspec.Struct, frozen=True, array_like=True):
    """The state that a client keeps for the next daemon: open messages, and how much it may still write."""

    events: int
    since_s: float
    had: tuple[int, ...] | None
    """Messages that the client received and that were not confirmed; None if there are too many to name."""


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Token).decode


async def monitor(call: Call) -> int:
    """Carry the caller's messages until it leaves. If the bus stops, the client waits for the next one."""
    if call.caller.kind != INSTANCE:
        raise WhoAreYou("only an agent receives messages: join first with 'pal join'")
    if call.caller.turn:
        return 0  # An automatic turn has its messages in its prompt.
    require_own_mail(call.caller)
    # A harness starts its monitor only once for each session, so the client must outlive every daemon.
    call.connection.comes_back = True
    watching = _Monitor(call, _read_token(call.asked.resume))
    unsubscribe = call.services.queries.subscribe(watching.follow, (BYE,))
    try:
        async with looked_after(call):
            return await watching.run()
    finally:
        unsubscribe()
        await watching.close()


def _read_token(token: bytes | None) -> _Token | None:
    try:
        return None if token is None else _decode(token)
    except msgspec.DecodeError:  # a token from an older daemon
        return None


class _Monitor:
    """One monitor and its lane."""

    def __init__(self, call: Call, before: _Token | None) -> None:
        """`before` is the token of an earlier daemon; None for a client that has just started."""
        self._call = call
        self._clock = call.services.clock
        self._before = before
        self._pace = MonitorPace() if before is None else MonitorPace(before.events, before.since_s)
        self._reopening: asyncio.TimerHandle | None = None
        self._offers: Offers = asyncio.Queue()
        self._lane: Lane | None = None
        self._written: set[int] = set()
        """Numbers of the offers whose lines the client has written out."""
        self._withdrawn: set[int] = set()
        """Messages that were withdrawn. No message is withdrawn twice."""

    def follow(self, events: Sequence[Event]) -> None:
        """End the monitor when its agent leaves."""
        if any(event.type == BYE and event.sender == self._call.caller.name for event in events):
            self._offers.put_nowait(None)

    async def run(self) -> int:
        # Send a token first: a client that brings one back knows which offers it received since.
        await self._call.write(b"", self._token(() if self._before is None else self._before.had))
        # Before the lane is open: a client without a token could not name the offers that it received.
        await self._call.connection.output.flushed()
        lane = await self._open()
        while True:
            with self._call.connection.waiting():
                offer = await self._offers.get()
            if offer is None:
                return 0
            await self._write(lane, offer)

    async def _open(self) -> Lane:
        """Open the lane, and report which offers of an earlier daemon the client received."""
        services, name = self._call.services, self._call.caller.name
        delivery = services.delivery
        self._lane = lane = delivery.open_lane(name, MONITOR_ABILITY, self._offers.put_nowait)
        lane.silence = self._silence
        services.agents.conversations.add_native(lane)
        self._keep_pace(lane)
        had = None if self._before is None else self._before.had
        # Before `recovered`, which makes all messages unconfirmed that no lane has claimed by then.
        if had and (offer := delivery.take_up(lane, had)) is not None:
            # The harness has the lines, and a prompt may have shown them already.
            delivery.arrived(lane, offer.number)
        await delivery.recovered(lane, knows_all=had is not None)
        return lane

    async def close(self) -> None:
        """Close the lane.

        Offers that were not written to the client are queued again. If the client has ended, the others
        become unconfirmed; otherwise it reports them to the next daemon.
        """
        if self._reopening is not None:
            # Otherwise it would later set the level of a closed lane.
            self._reopening.cancel()
        if (lane := self._lane) is None:
            return
        services = self._call.services
        # Before the loop below, which would make them unconfirmed: these offers were never sent.
        await give_back(
            services.delivery, lane, self._offers, "the monitor ended before it printed the message"
        )
        services.agents.conversations.remove_native(lane)
        if self._call.connection.has_gone:  # The client cannot report what it received.
            # A copy, because each outcome removes its offer.
            for number in list(lane.offers):
                await services.delivery.answer(lane, number, OfferOutcome.UNCONFIRMED)
        await services.delivery.close_lane(lane)

    async def _write(self, lane: Lane, offer: Offer) -> None:
        services, name = self._call.services, lane.agent
        written = monitor_lines(carried_lines(services.queries, offer.events, name))
        conversation = services.agents.conversations.get(name)
        remember_cut(conversation, offer, written)
        data = "".join(f"{text}\n" for text, _ in written).encode("utf-8", "backslashreplace")
        # Counted before the write: its token tells the next daemon how much may still be written.
        self._pace.spend(self._clock.monotonic_s())
        self._keep_pace(lane)
        # With this offer: the client keeps the token only after it has written all its lines.
        had = tuple(seq for one in lane.offers.values() for seq in one.seqs)
        known = services.broker.directory.get(name)
        has_hooks = conversation is not None or (known is not None and bool(known.session))
        flushed = partial(self._flushed, lane, offer, has_hooks=has_hooks)
        await self._call.write(data, self._token(had), flushed=flushed)

    def _flushed(self, lane: Lane, offer: Offer, *, has_hooks: bool) -> None:
        self._written.add(offer.number)
        if not has_hooks:
            # A task of the daemon, because the client may end right after its flush.
            delivery = self._call.services.delivery
            self._call.connection.spawn(
                delivery.answer(lane, offer.number, OfferOutcome.SEEN, grade=Grade.FLUSHED)
            )

    def _token(self, had: tuple[int, ...] | None) -> bytes:
        named = had if had is not None and len(had) <= _LIMIT_HAD else None
        return _encode(_Token(self._pace.events, round(self._pace.since_s, 3), named))

    # The rate limit of the harness

    def _keep_pace(self, lane: Lane) -> None:
        """Close the lane while the harness would drop another line, and reopen it afterwards."""
        wait_s = self._pace.wait_s(self._clock.monotonic_s())
        delivery = self._call.services.delivery
        if not wait_s:
            delivery.set_level(lane, LaneLevel())
            return
        delivery.set_level(lane, LaneLevel(is_open=False, reason=PACED))
        self._reopening = asyncio.get_running_loop().call_later(wait_s, self._keep_pace, lane)

    def _silence(self, offer: Offer) -> OfferOutcome:
        """Return the outcome of an offer that no prompt of an idle agent has shown.

        Hooks report every prompt, so lines that were written out and are in no prompt were dropped.
        """
        lane = self._lane
        assert lane is not None  # offers exist only on an open lane
        is_proven = (
            offer.number in self._written
            and offer.number not in lane.arrived
            and self._withdrawn.isdisjoint(offer.seqs)
            and self._call.services.agents.conversations.get(lane.agent) is not None
        )
        if not is_proven:
            return OfferOutcome.UNCONFIRMED
        self._withdrawn.update(offer.seqs)
        return OfferOutcome.REFUSED


# --------------------
# Function of `pal rewake`: a process that a hook of Claude Code leaves running, to wake an idle session once.
#
# It is a native lane for one offer. It ends at once if a monitor runs, and when a newer rewake process waits.
# While the agent works, hooks carry its messages. On any error the client prints nothing and exits with 0.

REWAKE_ABILITY: Final = Ability(
    kind=LaneKind.NATIVE, reaches_busy=False, wakes_idle=True, limit=LIMIT_MESSAGES
)
WAKES: Final = 2
"""The exit status that makes the harness show the output to its model."""
_HARNESS: Final = "claude"
_WAITED: Final = b"w"
"""Token of a client that has waited with an earlier daemon, followed by the Unix time (ms) of its start."""
_WRITTEN: Final = b"-"
"""Token of a client that has written its output, and lost the daemon before it received its exit status."""
_HEAD: Final = "New messages:"
"""The first line, because the harness may put its own text before it."""
_MONITOR_S: Final = 3.0
"""Seconds that a starting session has to start its monitor."""
_NAME_S: Final = 5.0
"""Seconds that a starting session may take to get a name."""
_ARRIVAL_S: Final = 30.0
"""Seconds in which no other lane overtakes a written offer. The offer is never written a second time."""


async def rewake(call: Call) -> int:
    """Wait for a message to the caller, and wake it. If the bus stops, the client waits for the next one."""
    call.connection.comes_back = True
    if call.asked.resume == _WRITTEN:
        return WAKES
    news = read_hook(_HARNESS, call.parsed.positionals[0], call.asked.body)
    is_start = news is not None and news.step is HookStep.START
    if call.caller.kind != INSTANCE:
        if is_start and await _is_somebody_new(call):
            call.connection.come_again()
        return 0
    require_own_mail(call.caller)
    if call.caller.harness != _HARNESS or call.caller.turn or _has_its_own(call):
        return 0
    waiting = _Waiter(call)
    unsubscribe = call.services.queries.subscribe(waiting.follow, (BYE,))
    try:
        is_new = news is not None and is_start and news.source in ("startup", "resume")
        since_ms = _waited_since(call.asked.resume)
        return await waiting.run(is_new=is_new and since_ms is None, since_ms=since_ms or 0)
    finally:
        unsubscribe()
        await waiting.close()


def _waited_since(token: bytes | None) -> int | None:
    """Return the time (ms) since which a client has waited, 0 if it is unknown; None for a new client."""
    if token is None or not token.startswith(_WAITED):
        return None
    digits = token.removeprefix(_WAITED)
    return int(digits) if digits.isdigit() and len(digits) < 16 else 0


def _has_its_own(call: Call) -> bool:
    """Return whether the agent has another rewake process.

    An agent that `pal` launched has one; this one comes from `pal install`.
    """
    return call.parsed.has(INSTALLED) and call.services.broker.directory.is_launched(call.caller.name)


async def _is_somebody_new(call: Call) -> bool:
    """Wait until any agent joins: it may be this session, whose first hook may not have run yet.

    Return False if no agent joins in time.
    """
    joined = asyncio.Event()

    def follow(events: Sequence[Event]) -> None:
        if any(event.type in SEAT_TYPES for event in events):
            joined.set()

    unsubscribe = call.services.queries.subscribe(follow, SEAT_TYPES)
    try:
        async with asyncio.timeout(_NAME_S):
            with call.connection.waiting():
                return await joined.wait()
    except TimeoutError:
        return False
    finally:
        unsubscribe()


class _Waiter:
    """One waiting process and its lane."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._agent = call.caller.name
        self._offers: Offers = asyncio.Queue()
        self._natives: Natives = call.services.agents.conversations.natives(self._agent)
        self._wake = Wake(lambda: self._offers.put_nowait(None))

    def follow(self, events: Sequence[Event]) -> None:
        """End the process when its agent leaves."""
        if any(event.type == BYE and event.sender == self._agent for event in events):
            self._wake.end()

    async def run(self, *, is_new: bool, since_ms: int) -> int:
        """Return the exit status. The client has received nothing since `since_ms`, unless that is 0."""
        if self._natives.monitors:
            return 0
        # No await since the check above: a monitor that starts later finds this process and ends it.
        self._natives.wait(self._wake)
        begun_ms = since_ms or self._call.now_ms()
        # Written before the lane is open: a client that brings this token back has received nothing since.
        await self._call.write(b"", b"%b%d" % (_WAITED, begun_ms))
        delivery = self._call.services.delivery
        self._wake.lane = lane = delivery.open_lane(self._agent, REWAKE_ABILITY, self._offers.put_nowait)
        if is_new:  # while closed, this lane keeps messages from being typed
            delivery.set_level(lane, NOT_YET)
            if await self._ends_soon():
                return 0
            delivery.set_level(lane, LaneLevel())
        await delivery.recovered(lane, since_ms=since_ms)
        async with looked_after(self._call):
            with self._call.connection.waiting():
                offer = await self._offers.get()
        return 0 if offer is None else await self._say(lane, offer)

    async def _ends_soon(self) -> bool:
        try:
            async with asyncio.timeout(_MONITOR_S):
                with self._call.connection.waiting():
                    await self._offers.get()
                return True
        except TimeoutError:
            return False

    async def _say(self, lane: Lane, offer: Offer) -> int:
        services = self._call.services
        # Before the lines are written: a hook may report the turn that they start before they are flushed.
        self._natives.leave(self._wake)
        written = wake_lines(carried_lines(services.queries, offer.events, self._agent))
        remember_cut(services.agents.conversations.get(self._agent), offer, written)
        text = "\n".join([_HEAD, *(line for line, _ in written), ""])
        # Even if the client never writes the offer, other lanes wait only this long.
        self._call.connection.spawn(let_pass(services.delivery, lane, _ARRIVAL_S))
        try:
            await self._call.write(text.encode("utf-8", "backslashreplace"), _WRITTEN)
            await self._call.connection.output.flushed()
        except BaseException:
            # Perhaps nothing was written: hooks prove nothing about it, and other lanes need not wait.
            self._natives.take_back(lane)
            raise
        return WAKES

    async def close(self) -> None:
        """Close the lane, unless the client has written an offer: then hooks report the outcome.

        An offer that was not sent to the client is queued again. An offer that was sent, but perhaps not
        written, is unconfirmed, unless a prompt shows it later.
        """
        services, lane = self._call.services, self._wake.lane
        self._natives.forget(self._wake)
        if lane is not None and lane not in self._natives.left:
            await give_back(services.delivery, lane, self._offers, "it ended before it printed anything")
            await services.delivery.close_lane(lane)
        services.agents.conversations.let_go(self._agent)


async def let_pass(delivery: Delivering, lane: Lane, wait_s: float) -> None:
    """Let other lanes carry messages after `wait_s` seconds, even if the written offer has not arrived."""
    await asyncio.sleep(wait_s)
    if lane.is_open and not lane.is_spent:
        lane.is_spent = True
        delivery.set_level(lane, LaneLevel())


# --------------------
# Offers that a client writes to a harness as lines: record cut messages, and return unsent offers.

Offers = asyncio.Queue[Offer | None]
"""Offers for the client, in order; None means the end. No limit: delivery offers nothing to a busy lane."""


def remember_cut(
    conversation: Conversation | None, offer: Offer, written: Sequence[tuple[str, bool]]
) -> None:
    """Record the messages of which only the beginning was written: the hook that shows them adds the rest.

    `written` has a line for each message, and whether it is complete. Without hooks nothing is recorded.
    """
    if conversation is not None:
        is_whole = zip(offer.seqs, written, strict=True)
        conversation.cut.update(seq for seq, (_, whole) in is_whole if not whole)


async def give_back(delivery: Delivering, lane: Lane, offers: Offers, reason: str) -> None:
    """Queue the offers again that were not sent to the client."""
    while not offers.empty():
        if (offer := offers.get_nowait()) is not None:
            await delivery.answer(lane, offer.number, OfferOutcome.DEFERRED, reason=reason)


# --------------------
# Correct states of Claude Code that no hook reports: a turn or sub-agent stopped, a dialog denied.
#
# Only in those states, and rarely, this reads the small file in which Claude Code records its own state. The
# client that waits next to the harness reads it with its own rights; no process is started. A hook that
# arrives in the meantime takes precedence.

PAUSES_S: Final = (2.0, 4.0, 8.0, 15.0)
"""Seconds without news before each look; the last value repeats."""
ReadFile = Callable[[str, int], Awaitable[bytes]]
"""Lets a client read a file, up to a number of bytes. Raises if the file is missing or longer."""

_logger: Final = logging.getLogger("palaver.doors")


class ClaudeStateCheck:
    """The check of one agent's state, while a client on its side can read files for the daemon."""

    def __init__(
        self,
        services: Services,
        agent: str,
        read: ReadFile,
        *,
        home: str,
        pauses_s: Sequence[float] = PAUSES_S,
    ) -> None:
        """`home` is the user's home directory, in which the file is if the path of no transcript is known."""
        self._services = services
        self._agent = agent
        self._read = read
        self._home = home
        self._pauses_s = pauses_s
        self._news = asyncio.Event()
        # Hooks that ran while no daemon was running are unknown.
        self._is_unknown = services.agents.conversations.get(agent) is None

    async def run(self) -> None:
        """Run until it is cancelled or the agent has left."""
        unsubscribe = self._services.queries.subscribe(self._follow, AGENT_TYPES)
        try:
            pauses = self._anew()
            while (agent := self._known()) is not None:
                # No await since `_known` has read the state, so no change is lost.
                self._news.clear()
                try:
                    async with asyncio.timeout(next(pauses) if self._needs_check(agent) else None):
                        await self._news.wait()
                    pauses = self._anew()
                except TimeoutError:
                    await self._look(agent)
        finally:
            unsubscribe()

    def _anew(self) -> chain[float]:
        return chain(self._pauses_s, repeat(self._pauses_s[-1]))

    def _follow(self, events: Sequence[Event]) -> None:
        if any(event.type in AGENT_TYPES and event.sender == self._agent for event in events):
            self._news.set()

    def _known(self) -> Agent | None:
        agent = self._services.broker.directory.get(self._agent)
        return None if agent is None or agent.left or agent.seat is None else agent

    def _needs_check(self, agent: Agent) -> bool:
        has_unknown_state = self._is_unknown or can_end_unreported(agent.state) or bool(self._below())
        return not is_limited(agent) and has_unknown_state

    def _below(self) -> list[Agent]:
        return self._services.agents.subagents.of(self._agent)

    def _heard(self) -> dict[str, int]:
        """Return the number of hooks heard from the agent and from each of its sub-agents."""
        names = (self._agent, *(one.name for one in self._below()))
        found = ((name, self._services.agents.conversations.get(name)) for name in names)
        return {name: -1 if known is None else known.heard for name, known in found}

    async def _look(self, agent: Agent) -> None:
        self._is_unknown = False
        heard = self._heard()
        try:
            found = await self._registered(agent)
            # A hook that arrived during the read is newer than the file.
            if found is None or self._heard() != heard or self._known() != agent:
                return
            below = self._below()
            age_ms = self._services.clock.now_ms() - agent.since
            state = corrected(agent.state, agent.detail, age_ms, found, has_subagents=bool(below))
            if found.rest is Rest.RESTING:
                for one in below:  # A harness with a working sub-agent would report itself as busy.
                    await self._services.agents.subagents.left(
                        one.name, f"stopped with the turn of {agent.name}"
                    )
            if state is not None:
                status = SetStatus(state=state[0], detail=state[1])
                # Compared again where the status is stored: a hook may be stored after the check above.
                await self._services.broker.submit_status(
                    caller_for(agent), status, only_if=lambda known: known == agent
                )
        except PalaverError as error:
            _logger.info("the state of %s is uncertain: %s: %s", self._agent, error.code, error)

    async def _registered(self, agent: Agent) -> Registered | None:
        assert agent.seat is not None  # `_known` returns only agents with a seat
        transcript = self._services.agents.transcripts.path_of(agent.name)
        path = registry_path(transcript, self._home, agent.seat.pid)
        return read_registered(await self._read(path, LIMIT_BYTES), agent.seat.pid)


@asynccontextmanager
async def looked_after(call: Call) -> AsyncIterator[None]:
    """During the block, check the caller's state in its harness's record if hooks cannot report it."""
    if call.caller.harness not in LOOKED_UP:
        yield
        return
    home, read = next(iter(home_folders()), ""), call.connection.read_file
    state_check = ClaudeStateCheck(call.services, call.caller.name, read, home=home)
    looking = asyncio.ensure_future(state_check.run())
    try:
        yield
    finally:
        looking.cancel()
        # Its cancellation is an expected result, and must not be raised here.
        (ended,) = await asyncio.gather(looking, return_exceptions=True)
        if isinstance(ended, Exception):
            _logger.error("no client reads the state of %s any more", call.caller.name, exc_info=ended)
