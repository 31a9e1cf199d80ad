"""`pal run` in the client's own process: start the holder with this caller's environment, and attach.

The daemon has allowed it by a ticket; this module only decides how to show it.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from palaver import __version__
from palaver.app.attach.screen import screen_size
from palaver.app.install_plan import write_private
from palaver.app.launch import LAUNCHERS, Launch, prepare_codex
from palaver.client.wire import ReplyLine
from palaver.errors import OtherError, PalaverError, UsageError
from palaver.harness.codex.hooks import TRUSTED_EVENTS, hook_command, hooks_digest
from palaver.harness.hooks import SEAT_MARK
from palaver.holder.connection import Held, HolderConnection
from palaver.holder.launch import HolderReady, Program, Start, clean_environment, run_to_the_end, start_holder
from palaver.holder.spawn import HolderProcess
from palaver.protocol.agent_socket import is_size
from palaver.protocol.lines import HoldOp, LeaveOp
from palaver.terminal.pty import DEFAULT_COLS, DEFAULT_ROWS

_NOT_FOUND: Final = 127
_CANNOT_RUN: Final = 126
_HARNESS_LIFE_S: Final = 30.0
"""Seconds. How long a detached harness may take to show its screen before its start counts as a success."""
_PROGRAM_LIFE_S: Final = 1.0
"""Seconds. The same for any other program, which may never show or read anything."""
_KEYS_FIRST: Final = frozenset({"claude", "codex", "opencode"})
"""Harnesses that start with the keyboard on the agent, as their own command does: delivery needs no key."""
_WITH_VALUE: Final = (
    "--ticket-fd",
    "--name",
    "--harness",
    "--cwd",
    "--launch",
    "--session",
    "--hooks",
    "--prompt",
)


@dataclass(frozen=True, slots=True)
class RunOrder:
    """The daemon's order to this process."""

    options: Mapping[str, str]
    flags: frozenset[str]
    command: tuple[str, ...]

    def read_ticket(self) -> str:
        """Read the ticket once, from the pipe that the client left open."""
        with open(int(self.options["--ticket-fd"]), "rb") as pipe:  # noqa: PTH123 - a descriptor
            return pipe.read().decode()

    @property
    def is_detached(self) -> bool:
        return "--detach" in self.flags

    @property
    def is_json(self) -> bool:
        return "--json" in self.flags


def parse_order(words: Sequence[str]) -> RunOrder:
    """Parse the daemon's arguments. A program wrote them, so errors are not explained."""
    options: dict[str, str] = {}
    flags: set[str] = set()
    rest = list(words)
    while rest and (word := rest.pop(0)) != "--":
        if word in _WITH_VALUE:
            options[word] = rest.pop(0)
        else:
            flags.add(word)
    return RunOrder(options, frozenset(flags), tuple(rest))


def run_agent(words: Sequence[str], home: str, environment: Mapping[str, str], holder: HolderProcess) -> int:
    """Start the agent; attach to it in a terminal, or print its name if detached. Return the exit status.

    `holder` gets its orders here. If this process ends without giving any, the holder ends too. After
    attaching until the end, the exit status is the agent's. `pal run` without a terminal waits for that end,
    too.
    """
    order = parse_order(words)
    ticket = order.read_ticket()
    kept = clean_environment(environment, home)
    try:
        cwd = order.options.get("--cwd") or os.getcwd()  # noqa: PTH109 - keeps bytes that are not UTF-8
    except FileNotFoundError:
        return _complain("the working directory was removed; change to another one", order, 1)
    if (status := _check_command(order, kept, cwd)) is not None:
        return status
    session, native, last_signal = order.options.get("--session", ""), "", int(signal.SIGTERM)
    among: tuple[str, ...] = ()
    if harness := order.options.get("--launch"):
        try:
            made = _prepare(harness, order, session, home, kept, cwd)
        except OSError as error:
            return _complain(f"{harness} cannot be set up: {error}", order, 1)
        except PalaverError as error:
            return _complain(error, order, 1)
        if not made.is_agent or made.is_headless:
            if order.is_detached:
                sentence = (
                    f"{harness} runs in the foreground and prints its result here, so it cannot be detached; "
                    "leave out --detach"
                )
                return _complain(UsageError(sentence), order, 2)
            # RELAYOUT import of the same module  # rarely needed, and a start waits for it

            holder.discard()
            return run_headless(made, ticket, home, cwd)
        order, kept, session = replace(order, command=made.argv), made.environment, made.session
        native, last_signal, among = made.native, made.last_signal, made.among
    has_screen = not order.is_detached and sys.stdin.isatty() and sys.stdout.isatty()
    # Without a screen, a harness or a restarted agent is not waited for.
    is_alone = "--launch" not in order.options and "--cwd" not in order.options
    is_awaited = not has_screen and not order.is_detached and is_alone
    cols, rows = _size()
    if has_screen:
        cols, rows = screen_size(cols, rows, environment)
    program = Program(
        argv=tuple(os.fsencode(word) for word in order.command),
        cwd=os.fsencode(cwd),
        environment=tuple(os.fsencode(f"{name}={value}") for name, value in kept.items()),
        umask=_umask(),
        last_signal=last_signal,
    )
    start = Start(
        home=home,
        ticket=ticket,
        program=program,
        cols=cols,
        rows=rows,
        session=session,
        among=among,
        native=native,
        prompt=order.options.get("--prompt", ""),
        is_watched=has_screen,
        is_awaited=is_awaited,
        is_harness="--launch" in order.options,
        life_limit_s=0.0 if has_screen or is_awaited else _life_limit_s(order),
    )
    try:
        if is_awaited:
            return run_to_the_end(start, lambda name: _say_where(name, order), holder)
        ready = start_holder(start, holder, meanwhile=_load_screen if has_screen else lambda: None)
    except PalaverError as error:
        return _complain(error, order, 1)
    if ready.ended is not None and (ready.ended or "--launch" in order.options):
        return _complain_of_end(ready, order)
    name = ready.name
    if has_screen:
        from palaver.app.attach.attach import attach  # loaded while the holder was

        try:
            return attach(home, name, environment, keys_first=order.options.get("--launch") in _KEYS_FIRST)
        except PalaverError as error:  # an agent may start another agent, but only the human may watch one
            _complain(error, order, 0)
    sys.stdout.write(f"{msgspec.json.encode({'name': name}).decode()}\n" if order.is_json else f"{name}\n")
    return 0


def _load_screen() -> None:
    """Load the module that shows the agent while its holder loads: this halves the time."""
    import palaver.app.attach.attach  # noqa: F401 - loading it is all


def _life_limit_s(order: RunOrder) -> float:
    return _HARNESS_LIFE_S if "--launch" in order.options else _PROGRAM_LIFE_S


def _complain_of_end(ready: HolderReady, order: RunOrder) -> int:
    """Show the output of a program that ended during its start, and how it ended."""
    program = order.options.get("--launch") or order.command[0]
    sentence = f"{program} exited during its start: {ready.reason}"
    if ready.output and not order.is_json:
        sys.stderr.write(f"{ready.output}\n")
    details = {"name": ready.name, "status": ready.ended, "output": ready.output}
    return _complain(OtherError("unavailable", sentence, details), order, ready.ended or 1)


def _prepare(
    harness: str, order: RunOrder, session: str, home: str, environment: Mapping[str, str], cwd: str
) -> Launch:
    if harness != "codex":
        return LAUNCHERS[harness](order.command[1:], session, home, environment, cwd)
    # RELAYOUT import of the same module  # rarely needed, and a start waits for it

    word = order.options.get("--hooks", "")
    return prepare_codex(
        order.command[1:],
        session,
        home,
        environment,
        cwd,
        has_hooks=lambda pal: has_codex_hooks(word, pal, home),
    )


def _say_where(name: str, order: RunOrder) -> None:
    if order.is_json:
        sys.stdout.write(f"{msgspec.json.encode({'name': name}).decode()}\n")
        sys.stdout.flush()
    else:
        sys.stderr.write(f"pal: {name} is running; this command ends with it (--detach does not wait)\n")


def _check_command(order: RunOrder, environment: Mapping[str, str], cwd: str) -> int | None:
    """Find the program before the agent is registered; it may still fail to start."""
    program = order.command[0]
    path = os.path.join(cwd, program) if "/" in program else program  # noqa: PTH118 - keeps bytes that are not UTF-8
    if shutil.which(path, path=environment.get("PATH", os.defpath)):
        return None
    if "/" in program and os.path.exists(path):  # noqa: PTH110 - as above
        return _complain(
            f"{program} cannot be run: it is not a program, or you have no permission to run it",
            order,
            _CANNOT_RUN,
        )
    return _complain(f"{program} cannot be run: no such program", order, _NOT_FOUND)


def _size() -> tuple[int, int]:
    for stream in (sys.stdout, sys.stdin, sys.stderr):
        try:
            size = os.get_terminal_size(stream.fileno())
        except OSError:
            continue
        if is_size(size.columns, size.lines):
            return size.columns, size.lines
    return DEFAULT_COLS, DEFAULT_ROWS


def _umask() -> int:
    """Return the umask; the system returns it only when it is set."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _complain(trouble: str | PalaverError, order: RunOrder, status: int) -> int:
    from palaver.protocol.lines import error_object  # rarely needed, and a start waits for it

    error = trouble if isinstance(trouble, PalaverError) else OtherError("unavailable", trouble, {})
    if order.is_json:
        sys.stderr.write(f"{msgspec.json.encode(error_object(error)).decode()}\n")
    else:
        sys.stderr.write(f"pal: {error}\n")
    return status


# --------------------
# Run a harness for one turn, with the caller's input, output and terminal.
#
# This process stays next to it only to register it with the daemon before its first instruction, and to
# report how it ended. If the daemon is lost, the harness runs on. Its exit status is the one of this
# process.

_HOLD_LIMIT_S: Final = 5.0
_REPORT_LIMIT_S: Final = 2.0
_LEFT_TO_IT: Final = (signal.SIGINT, signal.SIGQUIT)
"""A terminal sends these to both processes, and the harness decides."""
STOP: Final = "stop"
KILL: Final = "kill"
_PASSED_ON: Final = (signal.SIGTERM, signal.SIGHUP)


def run_headless(launch: Launch, ticket: str, home: str, cwd: str) -> int:
    """Run it and return its exit status.

    A command that is not a conversation replaces this process and is not an agent.
    """
    if not launch.is_agent:
        _become(launch, cwd, "")
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        seat = os.read(ready, 4096)
        os.close(ready)
        if not seat:
            os._exit(_CANNOT_RUN)
        _become(launch, cwd, seat.decode().strip())
    os.close(ready)
    secret = os.urandom(16).hex()
    hold = HoldOp(pid=child, ticket=ticket, secret=secret, version=__version__, session=launch.session)
    return asyncio.run(_stand_by(hold, home, go))


def _become(launch: Launch, cwd: str, seat: str) -> NoReturn:
    environment = {**launch.environment, **({SEAT_MARK: seat} if seat else {})}
    try:
        os.chdir(cwd)
        os.execvpe(launch.argv[0], launch.argv, environment)  # noqa: S606 - no shell is involved
    except OSError as error:
        sys.stderr.write(f"pal: {launch.argv[0]} cannot be run: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _CANNOT_RUN)


async def _stand_by(hold: HoldOp, home: str, go: int) -> int:
    loop = asyncio.get_running_loop()
    held = asyncio.Event()

    async def on_held(answer: Held) -> None:
        held.set()

    bus = HolderConnection(home, hold, on_held, lambda line: _obey(line, hold.pid))
    holding = loop.create_task(bus.run())
    try:
        seat = await _seat(bus, holding, held)
    except (PalaverError, TimeoutError) as error:
        os.close(go)
        await _end_of(hold.pid)
        holding.cancel()
        reason = "the bus does not answer" if isinstance(error, TimeoutError) else error
        sys.stderr.write(f"pal: {reason}\n")
        return 1
    for number in _LEFT_TO_IT:
        loop.add_signal_handler(number, lambda: None)
    for number in _PASSED_ON:
        loop.add_signal_handler(number, os.kill, hold.pid, number)
    os.write(go, f"{seat}\n".encode())
    os.close(go)
    status = await _end_of(hold.pid)
    await _report_exit(bus, status)
    holding.cancel()
    return status if status >= 0 else 128 - status


async def _seat(bus: HolderConnection, holding: asyncio.Task[None], held: asyncio.Event) -> str:
    """Wait until the daemon has assigned a seat. Raises its refusal, or TimeoutError."""
    waiting = asyncio.ensure_future(held.wait())
    async with asyncio.timeout(_HOLD_LIMIT_S):
        await asyncio.wait({holding, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if holding.done():
        waiting.cancel()
        holding.result()
    assert bus.held is not None
    return bus.held.seat


def _obey(line: ReplyLine, child: int) -> None:
    """Carry out an order of the daemon. There is no terminal here, so only ending is possible."""
    number = {STOP: signal.SIGTERM, KILL: signal.SIGKILL}.get(str(line.verb)) if line.push else None
    if number is not None:
        os.kill(child, number)


async def _end_of(child: int) -> int:
    """Wait for the child without blocking the loop; a negative number is a signal."""
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    return os.waitstatus_to_exitcode(status)


async def _report_exit(bus: HolderConnection, status: int) -> None:
    reason = f"exited with {status}" if status >= 0 else f"killed by {signal.Signals(-status).name}"
    try:
        async with asyncio.timeout(_REPORT_LIMIT_S):
            await bus.ask(LeaveOp(reason=reason))
    except (PalaverError, TimeoutError):
        pass  # the daemon notices by itself that the process has ended


# --------------------
# A person's consent to hooks, requested once in the client's terminal and stored in the home of the bus.
#
# Only a person at the terminal is asked. Any other caller that starts a harness gets the hooks that a person
# agreed to before, or no hooks. Each version of the hooks needs a new consent.

OFF: Final = "off"
KNOWN: Final = "known"
ASK: Final = "ask"
AGAIN: Final = "again"
"""The daemon's permission: no hooks, those agreed to before, ask if needed, ask in any case."""

_FILE: Final = "codex-hooks.json"
_NARROWEST: Final = 20
_WIDEST: Final = 100
_YES: Final = frozenset({"y", "yes"})


def has_codex_hooks(word: str, pal: str, home: str) -> bool:
    """Whether Codex gets hooks; asks the user if that is allowed and not yet done. Raises OSError."""
    if word in ("", OFF):
        return False
    path, digest = Path(home) / "harness" / _FILE, hooks_digest(pal, home)
    known = _remembered(path, digest)
    if word == KNOWN or (known is not None and word != AGAIN) or not _is_person_there():
        return bool(known)
    sys.stderr.write(_question(pal, home))
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer:
        return False  # no reply: ask again the next time
    is_agreed = answer.strip().lower() in _YES
    write_private(path, json.dumps({"hooks": digest, "agreed": is_agreed}).encode())
    if not is_agreed:
        sys.stderr.write("No hooks then. 'pal codex --hooks' asks again.\n")
    return is_agreed


def _remembered(path: Path, digest: str) -> bool | None:
    """Return the stored decision about these hooks; None if there was no decision."""
    try:
        found = json.loads(path.read_bytes())
        return bool(found["agreed"]) if found["hooks"] == digest else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _is_person_there() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _question(pal: str, home: str) -> str:
    """Return the question, wrapped to the width of the terminal; the command itself is never broken."""
    before = (
        "Codex can tell the bus what it does by hooks, and is given messages by them where it has no server "
        f"of its own. At {', '.join(TRUSTED_EVENTS)} it would run"
    )
    behind = (
        "in sessions started with 'pal codex'. Nothing is written to your settings; 'pal codex --no-hooks' "
        "goes without. Codex runs only hooks that you trust."
    )
    width = min(shutil.get_terminal_size().columns - 1, _WIDEST)
    lines = [*_wrapped(before, width), "", f"    {hook_command(pal, home, 'EVENT')}", ""]
    return "\n".join([*lines, *_wrapped(behind, width), "Do you trust these? [y/N] "])


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, _NARROWEST), break_long_words=False, break_on_hyphens=False)
