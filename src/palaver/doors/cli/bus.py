"""The commands for the bus itself: `pal up`, `down`, `status`, `doctor`, `ui` and `notify`."""

import os
import shutil
import sqlite3
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Final

import msgspec

from palaver.config import DEFAULTS, NEXT_START, SETTINGS_FILE, parse_file, typed
from palaver.domain.rights import require
from palaver.doors.cli.agents import later_tag, state_words
from palaver.doors.cli.call import Call, wait_lines
from palaver.doors.cli.spec import Command, Option, Parsed, Positional
from palaver.doors.tcp_door import HTTP, IRC, DoorKind, check_reach, format_address, parse_address
from palaver.errors import BadRequest, DoorShut, StorageFailed, UsageError
from palaver.harness.programs import parse_user_profile
from palaver.home import lift_stop, read_profile_files, read_settings_file, write_settings_file
from palaver.protocol.agents import Agent, Caller, Standing
from palaver.protocol.display import ago
from palaver.protocol.requests import ChangeSetting
from palaver.protocol.settings_file import with_setting
from palaver.protocol.text import exact
from palaver.protocol.views import WaitReason
from palaver.services.metrics import STARTED, MetricFamily, MetricKind, Sample
from palaver.services.results import TerminalView, WaitingMail
from palaver.services.services import DOWN
from palaver.services.views import agent_view, daemon_view, explain_gate, replaced_log, terminal_view
from palaver.state.fold import SKIPPED
from palaver.state.rows import decode_count

# --------------------
# Rows of the commands for the bus itself.

_GROUP: Final = "The bus"
_SHOWN_WAITS: Final = 5
"""Waiting messages with the same reason that `pal status NAME` names."""

BUS_COMMANDS: Final = (
    Command(
        path=("up",),
        group=_GROUP,
        summary="Start the bus.",
        description=(
            "Other commands start the bus automatically. 'pal status', 'pal list', 'pal events' and "
            "'pal doctor' only show it: they neither create a bus nor start it after 'pal down'."
        ),
        notes=(
            (
                "Options about HTTP and IRC are stored in the settings. --irc-remote requires the settings "
                "irc_tls_cert and irc_tls_key."
            ),
        ),
        options=(
            Option(name="--foreground", help="Run in the foreground until Ctrl-C, for service managers."),
            Option(
                name="--http",
                metavar="HOST:PORT",
                default=HTTP.default,
                help=f"Enable HTTP (default: {HTTP.default}). For a person only.",
            ),
            Option(
                name="--http-remote",
                help="With --http: allow other machines, without encryption.",
            ),
            Option(
                name="--no-http",
                help="Disable HTTP. For a person only.",
            ),
            Option(
                name="--irc",
                metavar="HOST:PORT",
                default=IRC.default,
                help=f"Enable IRC (default: {IRC.default}). For a person only.",
            ),
            Option(
                name="--irc-remote",
                help="With --irc: allow other machines, with TLS.",
            ),
            Option(
                name="--no-irc",
                help="Disable IRC. For a person only.",
            ),
        ),
        exclusive=(
            ("--http", "--no-http"),
            ("--http-remote", "--no-http"),
            ("--irc", "--no-irc"),
            ("--irc-remote", "--no-irc"),
        ),
        examples=(
            ("pal up", "start it in the background"),
            ("pal up --http", "also accept programs over HTTP, with tokens"),
            ("pal up --irc", "also accept IRC clients on this machine"),
            ("pal up --foreground", "run it here and watch its output"),
        ),
        see=(
            ("HTTP", "http.md"),
            ("IRC", "irc.md"),
            ("the daemon", "daemon.md"),
        ),
    ),
    Command(
        path=("down",),
        group=_GROUP,
        summary="Stop the bus.",
        description=(
            "Nothing is lost: messages wait in the log until the bus runs again. After this, agents do not "
            "restart the bus. 'pal up' does, and so does a person who runs a command in a terminal, except "
            "for 'pal status', 'pal list', 'pal events' and 'pal doctor'."
        ),
        examples=(("pal down", "stop it"),),
    ),
    Command(
        path=("status",),
        group=_GROUP,
        summary="Show the status of the bus or of one agent.",
        description=(
            "Without a name: process, version, home, the id of this device, the doors (endpoints) at which "
            "the bus listens, and the numbers of events and present agents. A door that cannot listen at a "
            "newly set address and keeps its old one is shown as a problem. With a name: the agent's state, "
            "the time of its last change, and its waiting messages."
        ),
        positionals=(
            Positional(
                name="NAME", help="The agent to show (default: the bus).", optional=True, completes="agents"
            ),
        ),
        options=(Option(name="--stats", help="Show numbers about messages, agents, turns and the log."),),
        examples=(
            ("pal status", "is the bus running, and where?"),
            ("pal status --stats", "how many messages, and how fast were they read?"),
            ("pal status luna", "what is luna doing?"),
            ("pal status -- set", "the agent with the name set"),
        ),
    ),
    Command(
        path=("doctor",),
        group=_GROUP,
        summary="Diagnose problems and suggest fixes.",
        description=(
            "Checks the home, the log, its archives, the endpoints and your profile files, names typed "
            "lines that look like secrets, and shows how the client was built. For each harness on your "
            "PATH it shows which features work with its version. A self-test starts a throw-away session "
            "with its own home directory, bus and scripted model, delivers messages to it, and says how "
            "to fix each failure; it takes about a minute per harness. The client runs the harnesses, not "
            "the daemon. The command changes nothing, except with --repair: that rebuilds a damaged log "
            "from all readable pages and archives, while the bus is stopped, and keeps the damaged files "
            "in 'damaged-1/', 'damaged-2/' … in the home. If the log is whole, --repair only rebuilds the "
            "state from its events."
        ),
        options=(
            Option(
                name="--harness",
                metavar="NAME",
                many=True,
                help="Check only this harness (default: all). May be repeated.",
                choices=("claude", "codex", "opencode", "gemini"),
            ),
            Option(name="--repair", help="Rebuild a damaged log. Stop the bus first."),
            Option(name="--self-test", help="Test each harness in a throw-away session."),
        ),
        examples=(
            ("pal doctor", "check everything"),
            ("pal doctor --self-test --harness claude", "can messages reach Claude Code on this machine?"),
        ),
        statuses=(
            (0, "No problem was found."),
            (1, "Something needs a fix."),
        ),
        json=(
            "one line for each check and each harness, with 'kind', 'ok' and 'advice'. With --repair: "
            "'whole', 'events', 'missing', 'lost' (how many events, by the name of their archive file), "
            "'unfiled' (events whose archive file is missing) and 'damaged_files'."
        ),
        see=(
            ("known to work", "compatibility.md"),
            ("what survives", "log.md#what-survives"),
            ("your own profile", "terminals.md#your-own-profile"),
        ),
    ),
)


# --------------------
# The commands that show the bus to a person: the dashboard and notices.
#
# The client runs both in its own process.

_DASHBOARD: Final = "Dashboard"
_UI: Final = "__ui"
_NOTIFY: Final = "__notify"

UI_COMMANDS: Final = (
    Command(
        path=("ui",),
        group=_DASHBOARD,
        summary="Show agents, messages and everything that waits for you.",
        description=(
            "Opens the dashboard: everything that waits for you, agents, conversations, rooms, the log, and "
            "the bus as it was at an earlier event. "
            "'pal' alone at a terminal does the same. Press ? for the keys of a screen. Everything you do "
            "there is a 'pal' command, which is shown and has your rights. Without a terminal, or with "
            "--plain, each change is printed as a line until you end it with Ctrl-C."
        ),
        options=(Option(name="--plain", help="Print changes as lines, for screen readers and pipes."),),
        examples=(
            ("pal ui", "open the dashboard"),
            ("pal ui --plain", "print what happens, line by line"),
        ),
        see=(("ui", "ui.md"),),
    ),
    Command(
        path=("notify",),
        group=_DASHBOARD,
        summary="Notify you when an agent needs you or has finished.",
        description=(
            "Sends a notice when an agent becomes blocked, asks you, or finishes, until you end it with "
            "Ctrl-C. An open 'pal ui', 'pal chat' or 'pal attach' sends the same notices; each is sent once. "
            "The settings notify, notify_command and notify_text say how."
        ),
        examples=(("pal notify", "ring the terminal bell when an agent needs you"),),
        see=(("notices", "notices.md"),),
    ),
)


async def open_ui(call: Call) -> int:
    """Let the client open the dashboard."""
    call.connection.run_here(_UI, *(["--plain"] if call.parsed.has("--plain") else []))
    return 0


async def notify(call: Call) -> int:
    """Let the client send notices."""
    call.connection.run_here(_NOTIFY)
    return 0


# --------------------
# Functions of `pal up`, `down`, `status` and `doctor`.


async def up(call: Call) -> int:
    """Report that the bus is up: the client has started it. Open or shut the HTTP and IRC doors if asked."""
    for kind in _KINDS:
        await _change_door(call, kind)
    # The marker of 'pal down' may still be there, and would later let only a person start the bus.
    lift_stop(call.services.daemon.home)
    view = await daemon_view(call.services)
    if call.is_json:
        await call.say_json(view)
    else:
        open_at = [door.where for door in call.services.daemon.doors.values() if door.where]
        await call.say(f"the bus is up ({', '.join([f'process {view.pid}, home {view.home}', *open_at])})")
    for key, door in call.services.daemon.doors.items():
        if door.trouble and not call.is_json:
            call.warn(f"{door.trouble}; 'pal up --{key} HOST:PORT' chooses another address")
    return 0


async def down(call: Call) -> int:
    """Stop the bus, and create the marker after which only a person starts it again."""
    require(call.caller, Standing.WORKER, "down")
    # Before the daemon stops: a client that loses its connection would otherwise start the bus again.
    marker = call.services.daemon.home / "down"
    marker.touch(mode=0o600)
    if call.is_json:
        # This code runs in the daemon, so it is the daemon's pid.
        await call.say_json({"pid": os.getpid(), "stopped": True})
    else:
        up = "pal up" if call.parsed.home is None else f"pal up --home {call.services.daemon.home}"
        await call.say(f"the bus is stopped; nothing is lost, '{up}' starts it again")
    call.services.daemon.stop(DOWN)
    return 0


async def status(call: Call) -> int:
    """Show the daemon, or one agent."""
    now = call.now_ms()
    if call.parsed.has("--stats"):
        return await _show_stats(call)
    if call.parsed.positionals:
        agent = call.agent(call.parsed.positionals[0])
        shown, terminal = agent_view(call.services, agent), await terminal_view(call.services, agent)
        if call.is_json:
            page = msgspec.to_builtins(shown) | msgspec.to_builtins(terminal)
            if children := _children(call, agent):
                page["subagents"] = children
            await call.say_json(page)
            return 0
        detail = f" {call.safe(f'({exact(agent.detail)})')}" if agent.detail else ""
        lines = [
            f"{agent.name}: {state_words(shown, now)}{detail} for {ago(now - agent.since)}",
            f"role {agent.role}"
            + (f", tag {tag}" if (tag := later_tag(shown)) else "")
            + (f", harness {call.safe(agent.harness)}" if agent.harness else ""),
            *_family_lines(call, agent),
            f"{shown.unread} unread, {'present' if shown.present else 'not present'}",
            *map(call.safe, _terminal_lines(terminal, is_asleep=shown.asleep)),
            *_waiting_lines(call, terminal.waiting),
        ]
        await call.say_lines(lines)
        return 0
    view = await daemon_view(call.services)
    if call.is_json:
        await call.say_json(view)
        return 0
    doors = {name: where for name, where in view.doors.items() if not name.endswith(_PROBLEM)}
    problems = [what for name, what in view.doors.items() if name.endswith(_PROBLEM)]
    await call.say_lines(
        [
            f"the bus is up for {ago(now - call.services.daemon.started_ms)}",
            f"process  {view.pid}",
            f"version  {view.version}",
            f"home     {view.home}",
            f"device   {view.device}",
            f"doors    {', '.join(f'{name} {where}' for name, where in doors.items())}",
            *(f"problem  {problem}" for problem in problems),
            f"events   {view.last}",
            f"agents   {view.agents} present",
            *(
                [f"waiting  {view.attention} for a person; 'pal pending' shows them"]
                if view.attention
                else []
            ),
        ]
    )
    return 0


async def _show_stats(call: Call) -> int:
    """Show the numbers of `GET /metrics`."""
    if call.parsed.positionals:
        raise UsageError("--stats shows the whole bus: use it without a name")
    numbers = await call.services.metrics.read()
    if call.is_json:
        await call.say_json(numbers)
        return 0
    await call.say(
        f"totals of the last {ago(numbers.now - numbers.since)}; sizes and waiting messages as of now:"
    )
    lines = [line for family in numbers.families for line in _metric_lines(family)]
    await call.say_lines([call.safe(line) for line in lines])
    return 0


_SHARES: Final = (50, 95)
"""Percentages for which the lines of a histogram name a time."""


def _metric_lines(family: MetricFamily) -> list[str]:
    """Return one kind of numbers as lines: its meaning, then each number; no lines if all numbers are 0."""
    if family.name == STARTED or not any(sample.value or sample.count for sample in family.samples):
        return []
    shown = [(", ".join(sample.labels.values()), _metric_text(family, sample)) for sample in family.samples]
    if len(shown) == 1 and not shown[0][0]:
        return [f"{family.help.removesuffix('.')}: {shown[0][1]}"]
    width = max(len(label) for label, _ in shown)
    return [family.help, *(f"  {label:<{width}}  {text}" for label, text in shown)]


def _metric_text(family: MetricFamily, sample: Sample) -> str:
    if family.kind is not MetricKind.HISTOGRAM:
        return f"{sample.value * 1000:.1f} ms" if family.name.endswith("_seconds") else f"{sample.value:.0f}"
    if not sample.count:
        return "none"
    shares = ", ".join(f"{share} % within {_within(family, sample, share)}" for share in _SHARES)
    return f"{sample.count}, average {sample.value / sample.count:.1f} s, {shares}"


def _within(family: MetricFamily, sample: Sample, share: int) -> str:
    """Return the smallest bound that a share of the values does not exceed, in percent."""
    # Not strict, because the last bucket has no bound: it counts the values above all of them.
    for bound, count in zip(family.bounds, accumulate(sample.buckets), strict=False):
        if count * 100 >= sample.count * share:
            return f"{bound:g} s"
    return f"more than {family.bounds[-1]:g} s"


def _family_lines(call: Call, agent: Agent) -> list[str]:
    """Return lines that name the agent's parent, and its present sub-agents."""
    lines = [f"sub-agent of {agent.parent}"] if agent.parent else []
    children = _children(call, agent)
    return [*lines, f"sub-agents: {', '.join(children)}"] if children else lines


def _terminal_lines(view: TerminalView, *, is_asleep: bool) -> list[str]:
    """Return the queue, the gates and the terminal of an agent as lines for people."""
    lines: list[str] = []
    if any(view.queue.values()):
        words = ", ".join(f"{count} {word}" for word, count in view.queue.items() if count)
        lines.append(f"waiting: {words}")
    if is_asleep:
        lines.append("asleep: nothing can wake it; held messages come with its next prompt")
    if view.paused:
        lines.append("paused: it gets only interrupts")
    lines += [
        f"{gate.lane} lane: " + ("paused" if gate.is_open else f"closed ({explain_gate(gate.reason)})")
        for gate in view.gates
        if gate.paused or not gate.is_open
    ]
    if view.cols:
        lines.append(f"terminal {view.cols}x{view.rows}, holder process {view.holder}")
    return lines


def _waiting_lines(call: Call, waiting: Sequence[WaitingMail]) -> Iterator[str]:
    """Return the first messages that an agent has not seen, those with the same reason together."""
    groups: dict[tuple[str, str, WaitReason], list[WaitingMail]] = {}
    for mail in waiting:
        groups.setdefault((mail.state, mail.session or "", mail.wait), []).append(mail)
    for (state, session, wait), mails in groups.items():
        shown = ", ".join(f"#{mail.seq} from {mail.sender}" for mail in mails[:_SHOWN_WAITS])
        more = f" and {len(mails) - _SHOWN_WAITS} more" if len(mails) > _SHOWN_WAITS else ""
        where = f" (session {session})" if session else ""
        yield call.safe(f"{shown}{more}: {state}{where}")
        yield from wait_lines(call, wait)


def _children(call: Call, agent: Agent) -> list[str]:
    return [child.name for child in call.services.agents.subagents.of(agent.name)]


async def doctor(call: Call) -> int:
    """Diagnose problems and suggest a fix for each.

    The client then checks the harnesses, and exits with 1 if any finding needs attention.
    """
    findings = [
        *_check_home(call.services.daemon.home),
        *await _check_log(call),
        *await _check_storage(call),
        await _check_archives(call),
        await _check_blobs(call),
        await _check_secrets(call),
        *_check_client(call),
        *_check_doors(call),
        *_check_runner(call),
        *_check_profiles(call.services.daemon.home),
    ]
    checks = [
        {"ok": ok, "check": what, "advice": None if ok else advice or None} for ok, what, advice in findings
    ]
    if not call.is_json:
        paint = call.paint
        for ok, what, advice in findings:
            mark = paint.green("ok  ") if ok else paint.red("look")
            text = f"{what}\n     {advice}" if advice and not ok else what
            await call.say(f"{mark} {paint.safe(text, keep_lines=True)}")
    order = {
        "checks": checks,
        "is_json": call.is_json,
        "harnesses": call.parsed.values("--harness"),
        "is_self_test": call.parsed.has("--self-test"),
    }
    # The daemon never starts a harness: the client checks them, in its own process. Only the client knows all
    # findings, so it chooses the exit status.
    call.connection.run_here("__doctor", msgspec.json.encode(order).decode())
    return 0


# --------------------
# `pal up --http` and `--irc`: open or shut a door now, and in the settings for the next start.
#
# Only a person may do this.

_KINDS: Final = (HTTP, IRC)
_PROBLEM: Final = "_problem"


async def _change_door(call: Call, kind: DoorKind) -> None:
    """Apply the options of `pal up` for one door; do nothing without them."""
    if wanted := _wanted_of(call.parsed, kind):
        await set_door(call, kind, wanted)


async def set_door(call: Call, kind: DoorKind, wanted: Mapping[str, str | int]) -> None:
    """Open, move or shut a door, and store its settings. Requires a person.

    The door is opened or shut first, then the settings file is written, then the changes are stored in the
    log. Raises DoorShut, and changes no setting, if the door cannot be opened, for example at a taken port.
    """
    require_person(call.caller)
    # The other settings of the door, such as its certificate, may have changed in the file since the start.
    home = call.services.daemon.home
    given = parse_file(read_settings_file(home), str(home / SETTINGS_FILE))
    own = {key: typed(key, given.get(key, DEFAULTS[key])) for key in NEXT_START if key.startswith(kind.key)}
    settings = replace(call.services.daemon.settings.now, **own | dict(wanted))  # type: ignore[arg-type]  # checked
    door = call.services.daemon.doors[kind.key]
    await door.open(call.services, settings)
    if door.trouble:
        raise DoorShut(f"the bus is up, but {door.trouble}")
    # `pal config` shows these values, because those of the start are no longer true.
    door.changed = {key: value for key, value in own.items() if key in given} | dict(wanted)
    old = write_wanted(call.services.daemon.home, wanted)
    for key, value in wanted.items():
        if value != old[key]:
            request = ChangeSetting(key=key, value=value, old=old[key])
            # Without the key of the command, because one command may change several settings.
            await call.services.broker.submit(call.caller, request)


def require_person(caller: Caller) -> None:
    """Refuse a caller that may not open or shut a door."""
    require(caller, Standing.HUMAN, "enabling or disabling HTTP or IRC")


def wanted_settings(parsed: Parsed) -> dict[str, str | int]:
    """Return the settings that the options of the doors select; empty without such options.

    Raises BadRequest for an invalid address.
    """
    return {key: value for kind in _KINDS for key, value in _wanted_of(parsed, kind).items()}


def _wanted_of(parsed: Parsed, kind: DoorKind) -> dict[str, str | int]:
    at, remote, off = f"--{kind.key}", f"--{kind.key}-remote", f"--no-{kind.key}"
    if not any(name in parsed.options for name in (at, remote, off)):
        return {}
    if parsed.has(off):
        return {kind.key: "", f"{kind.key}_remote": 0}
    written = parsed.value(at)
    if written is None:
        raise UsageError(f"{remote} requires {at}")
    address = parse_address(written, kind)
    # The door itself checks the certificate, which is in the settings.
    check_reach(address, kind, is_remote=parsed.has(remote), has_tls=True)
    return {kind.key: format_address(address), f"{kind.key}_remote": int(parsed.has(remote))}


def write_wanted(home: Path, wanted: Mapping[str, str | int]) -> dict[str, str | int]:
    """Write settings to the file, and return their previous values in it."""
    # No await until the file is written: a change by another caller in between would be lost.
    content = read_settings_file(home)
    given = parse_file(content, str(home / SETTINGS_FILE))
    text = content.decode()  # Valid UTF-8: `parse_file` has read it.
    for key, value in wanted.items():
        text = with_setting(text, key, value)
    write_settings_file(home, text.encode())
    return {key: typed(key, given.get(key, DEFAULTS[key])) for key in wanted}


# --------------------
# The checks of `pal doctor`. Each returns whether all is well, what it found, and advice.

Finding = tuple[bool, str, str]

_LOW_DISK_BYTES: Final = 200 * 1024 * 1024
_SHOWN: Final = 3
"""How many lost files or possible secrets a finding names."""


def _check_home(home: Path) -> list[Finding]:
    mode = stat.S_IMODE(home.stat().st_mode)
    free = shutil.disk_usage(home).free
    return [
        (mode == 0o700, f"home {home} has mode {mode:o}", f"other users may read it: chmod 700 {home}"),
        (
            free > _LOW_DISK_BYTES,
            f"{free // (1024 * 1024)} MB free on its disk",
            "free some space: without it messages are refused",
        ),
    ]


async def _check_log(call: Call) -> list[Finding]:
    queries = call.services.queries
    skipped = [
        f"{decode_count(value)} of type {type_}" for type_, value in queries.rows.scan(SKIPPED, "", limit=100)
    ]
    if count := await queries.count_unreadable():
        skipped.append(f"{count} that readers skip")
    shown = ", ".join(skipped) or "none"
    return [
        (
            True,
            f"log up to #{queries.last()}, SQLite {sqlite3.sqlite_version}, device {queries.device}",
            "",
        ),
        (
            not skipped,
            f"events that could not be read: {shown}",
            "they are kept; a newer Palaver may read them",
        ),
        (True, f"Python {sys.version.split()[0]}, Palaver {call.services.daemon.version}", ""),
    ]


async def _check_storage(call: Call) -> list[Finding]:
    troubles = await call.services.queries.check_storage()
    advice = (
        "'pal down' and 'pal doctor --repair' save all readable events; or restore a backup, see docs/log.md"
    )
    findings = [(False, trouble, advice) for trouble in troubles] or [(True, "the log is whole", "")]
    if saved := replaced_log(call.services.daemon.home):
        what = f"{saved} is a copy of a log that was replaced while the bus was running"
        findings.append((False, what, "compare it with the log, then remove it"))
    return findings


async def _check_archives(call: Call) -> Finding:
    try:
        count = await call.services.queries.check_archives()
    except StorageFailed as failure:
        return False, str(failure), "its events cannot be read until it is restored from a backup"
    return True, f"{count} archived event{'' if count == 1 else 's'}, all in their files", ""


async def _check_secrets(call: Call) -> Finding:
    """Search the lines and keys that people typed at terminals for passwords."""
    try:
        found = await call.services.queries.typed_secrets()
    except StorageFailed as failure:
        return (
            False,
            f"not searched for typed secrets: {failure}",
            "run 'pal doctor' again when it is restored",
        )
    if not found:
        return True, "no typed line or key looks like a secret", ""
    seqs = ", ".join(f"#{seq}" for seq in found[:_SHOWN])
    rest = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    commands = "; ".join(f"pal redact {seq}" for seq in found[:_SHOWN])
    return (
        False,
        f"typed at a terminal, maybe secrets: {seqs}{rest}",
        f"check them, then remove them: {commands}",
    )


async def _check_blobs(call: Call) -> Finding:
    found = await call.services.queries.check_blobs()
    if not found.lost:
        return True, f"{found.count} large content{'' if found.count == 1 else 's'}, all in blobs/", ""
    rest = len(found.lost) - _SHOWN
    names = ", ".join(found.lost[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
    what = f"{len(found.lost)} of {found.count} large contents are lost: missing in blobs/, or changed"
    return False, what, f"restore them from a backup: {names}"


def _check_client(call: Call) -> list[Finding]:
    same = call.asked.version == call.services.daemon.version
    what = f"client {call.asked.version}, daemon {call.services.daemon.version}"
    version = (same, what, "'pal down' and 'pal up' start the daemon that belongs to this client")
    return [
        version,
        (True, f"client: {call.asked.build or 'unknown build (an older client)'}", ""),
    ]


def _check_profiles(home: Path) -> list[Finding]:
    """Check the user's profile files for programs in terminals."""
    found: list[Finding] = []
    for name, text in read_profile_files(str(home)):
        try:
            parse_user_profile(name, text)
        except BadRequest as error:
            found.append(
                (False, str(error), f"correct {home}/profiles/{name}.toml; until then it is not used")
            )
        else:
            found.append((True, f"profile {name}", ""))
    return found


def _check_runner(call: Call) -> list[Finding]:
    """Check that automatic turns have a runner. Nothing is found if no agent has automatic turns."""
    names = sorted({one.agent for one in call.services.turns.sessions()})
    runner = call.services.turns.runner()
    if runner is not None:
        return [(True, f"the runner of automatic turns is running (pid {runner.pid})", "")]
    if not names:
        return []
    rest = len(names) - _SHOWN
    whom = ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
    what = f"automatic turns are on for {whom}, but no runner is running"
    return [(False, what, "'pal turn start' starts it")]


def _check_doors(call: Call) -> list[Finding]:
    """Check the HTTP and IRC doors; a door that is disabled is not mentioned."""
    found: list[Finding] = []
    for kind in _KINDS:
        door = call.services.daemon.doors[kind.key]
        if door.where:
            found.append((True, f"{kind.title} at {door.where}", ""))
        if door.trouble:
            advice = f"'pal up --{kind.key} HOST:PORT' chooses another address, --no-{kind.key} disables it"
            found.append((False, door.trouble, advice))
    if trouble := call.services.metrics.export_trouble:
        found.append((False, trouble, "'pal config set otel_endpoint' changes the address"))
    return found
