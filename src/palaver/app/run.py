"""`pal run` in the client's own process: start the holder with this caller's environment, and attach.

The daemon has allowed it by a ticket; this module only decides how to show it.

A separate module from `__main__.py`, which starts the holder process while this one loads.
"""

import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from palaver.app.attach import screen_size
from palaver.app.launch import INSTALLS, LAUNCHERS, Launch, LaunchChoices
from palaver.errors import OtherError, PalaverError, UsageError
from palaver.holder.launch import (
    CANNOT_RUN,
    NOT_FOUND,
    HolderReady,
    Program,
    Start,
    clean_environment,
    run_to_the_end,
    start_holder,
    start_holders,
)
from palaver.holder.spawn import HolderProcess
from palaver.protocol.agent_socket import is_size

_DEFAULT_SIZE: Final = (80, 24)
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
    "--commands",
    "--prompt",
)


@dataclass(frozen=True, slots=True)
class RunOrder:
    """The daemon's order to this process."""

    options: Mapping[str, str]
    flags: frozenset[str]
    command: tuple[str, ...]

    def read_tickets(self) -> list[str]:
        """Read the tickets once, one for each agent, from the pipe that the client left open."""
        with open(int(self.options["--ticket-fd"]), "rb") as pipe:  # noqa: PTH123 - a descriptor
            return pipe.read().decode().split()

    @property
    def is_detached(self) -> bool:
        return "--detach" in self.flags or self.has_window

    @property
    def has_window(self) -> bool:
        """Whether the agent is shown in a new window, and not in this terminal."""
        return "--window" in self.flags

    @property
    def is_json(self) -> bool:
        return "--json" in self.flags

    @property
    def is_each(self) -> bool:
        """Whether `command` is a list of harnesses, one for each ticket."""
        return "--each" in self.flags

    def of(self, harness: str) -> "RunOrder":
        """Return the order for one of these harnesses."""
        return replace(self, options={**self.options, "--launch": harness}, command=(harness,))


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
    tickets = order.read_tickets()
    kept = clean_environment(environment, home)
    try:
        cwd = order.options.get("--cwd") or os.getcwd()  # noqa: PTH109 - keeps bytes that are not UTF-8
    except FileNotFoundError:
        return _complain("the working directory was removed; change to another one", order, 1)
    orders = [order.of(harness) for harness in order.command] if order.is_each else [order] * len(tickets)
    # All of them before the first start: a group is started as a whole or not at all.
    for one in orders:
        if (status := _check_command(one, kept, cwd)) is not None:
            return status
    if order.is_each or len(tickets) > 1:
        return _run_group(orders, tickets, home, kept, cwd, holder)
    if order.has_window:
        from palaver.app.window import check_window, open_window  # rarely needed, and a start waits for it

        try:
            # Before the agent starts: otherwise it would run although the command fails.
            check_window(home, environment)
        except PalaverError as error:
            return _complain(error, order, 1)
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
                    f"leave out {'--window' if order.has_window else '--detach'}"
                )
                return _complain(UsageError(sentence), order, 2)
            from palaver.holder.headless import (  # rarely needed, and a start waits for it
                become,
                run_headless,
            )

            # No terminal is needed, so this process is the holder itself, or no holder is needed at all.
            holder.discard()
            program = _program(made.argv, made.environment, cwd, made.last_signal)
            return run_headless(program, made.session, tickets[0], home) if made.is_agent else become(program)
        order, kept, session = replace(order, command=made.argv), made.environment, made.session
        native, last_signal, among = made.native, made.last_signal, made.among
    has_screen = not order.is_detached and sys.stdin.isatty() and sys.stdout.isatty()
    # Whether this is `pal run` with a program. Only then a caller without a screen waits for the end and gets
    # the status. Only otherwise, with a screen, the user is asked whether to start a failed agent again: a
    # harness, or an agent that `pal resume` starts, which has `--cwd`.
    is_alone = "--launch" not in order.options and "--cwd" not in order.options
    is_awaited = not has_screen and not order.is_detached and is_alone
    cols, rows = _size()
    if has_screen:
        # Our own lines take some rows. A program that starts with its final size draws only once.
        cols, rows = screen_size(cols, rows, environment)
    program = _program(order.command, kept, cwd, last_signal)
    start = Start(
        home=home,
        ticket=tickets[0],
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
        # A caller that sees the screen or waits for the end sees a failed start anyway.
        life_limit_s=0.0 if has_screen or is_awaited else _life_limit_s(order),
    )
    try:
        if is_awaited:
            return run_to_the_end(start, lambda name: _say_running(name, order), holder)
        ready = start_holder(start, holder, meanwhile=_load_screen if has_screen else lambda: None)
    except PalaverError as error:
        return _complain(error, order, 1)
    # A program may be done at once, with the status 0. A harness that ends during its start has failed.
    if ready.ended is not None and (ready.ended or "--launch" in order.options):
        return _complain_of_end(ready, order)
    name = ready.name
    if has_screen:
        from palaver.app.attach.attach import attach  # loaded while the holder was

        try:
            launched = order.options.get("--launch")
            return attach(
                home,
                name,
                environment,
                keys_first=launched in _KEYS_FIRST,
                can_relaunch=not is_alone,
            )
        except PalaverError as error:  # an agent may start another agent, but only the human may watch one
            _complain(error, order, 0)
    _say_name(name, order)
    if order.has_window:
        try:
            open_window(home, name, environment)
        except PalaverError as error:
            return _complain(error, order, 1)
    return 0


def _run_group(
    orders: Sequence[RunOrder],
    tickets: Sequence[str],
    home: str,
    environment: Mapping[str, str],
    cwd: str,
    holder: HolderProcess,
) -> int:
    """Start several agents in the background and print their names. Return 1 if one could not be started."""
    cols, rows = _size()
    starts = []
    for order, ticket in zip(orders, tickets, strict=True):
        harness = order.options.get("--launch")
        # Each one is prepared separately: some harnesses need a separate port and password.
        made = Launch(argv=order.command, environment=dict(environment))
        if harness:
            try:
                made = _prepare(harness, order, "", home, environment, cwd)
            except OSError as error:
                return _complain(f"{harness} cannot be set up: {error}", order, 1)
            except PalaverError as error:
                return _complain(error, order, 1)
        if not made.is_agent or made.is_headless:
            sentence = f"{harness} runs in the foreground and prints its result here; leave out --count"
            return _complain(UsageError(sentence), order, 2)
        if made.session or made.among:
            sentence = "--count starts new conversations; to resume one, leave out --count"
            return _complain(UsageError(sentence), order, 2)
        start = Start(
            home=home,
            ticket=ticket,
            program=_program(made.argv, made.environment, cwd, made.last_signal),
            cols=cols,
            rows=rows,
            native=made.native,
            prompt=order.options.get("--prompt", ""),
            is_harness=harness is not None,
            life_limit_s=_life_limit_s(order),
        )
        starts.append(start)
    status = 0
    for order, ready in zip(orders, start_holders(starts, holder), strict=True):
        if isinstance(ready, PalaverError):
            status = _complain(ready, order, 1)
        elif ready.ended is not None and (ready.ended or "--launch" in order.options):
            status = _complain_of_end(ready, order)
        else:
            _say_name(ready.name, order)
    return min(status, 1)  # The status of one of several programs would say nothing about the others.


def _program(argv: Sequence[str], environment: Mapping[str, str], cwd: str, last_signal: int) -> Program:
    return Program(
        argv=tuple(os.fsencode(word) for word in argv),
        cwd=os.fsencode(cwd),
        environment=tuple(os.fsencode(f"{name}={value}") for name, value in environment.items()),
        umask=_umask(),
        last_signal=last_signal,
    )


def _say_name(name: str, order: RunOrder) -> None:
    view = {"agent": name, "name": name}
    sys.stdout.write(f"{msgspec.json.encode(view).decode()}\n" if order.is_json else f"{name}\n")
    sys.stdout.flush()


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
    def may_use_bus() -> bool:
        choice = order.options.get("--commands", "no")
        if choice in ("yes", "no"):
            return choice == "yes"
        from palaver.app.install_plan import may_use_bus  # rarely needed, and a start waits for it

        return may_use_bus(choice, home)

    def has_hooks(pal: str) -> bool:
        from palaver.app.install_plan import has_codex_hooks  # as above

        return has_codex_hooks(order.options.get("--hooks", ""), pal, home)

    choices = LaunchChoices(is_fork="--fork" in order.flags, may_use_bus=may_use_bus, has_hooks=has_hooks)
    return LAUNCHERS[harness](order.command[1:], session, home, environment, cwd, choices)


def _say_running(name: str, order: RunOrder) -> None:
    """Print the name; for people on standard error, because standard output is the program's."""
    if order.is_json:
        _say_name(name, order)
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
            CANNOT_RUN,
        )
    hint = ""
    if order.options.get("--launch") in INSTALLS:
        hint = f"; to install it: {INSTALLS[order.options['--launch']]}"
    return _complain(f"{program} cannot be run: no such program{hint}", order, NOT_FOUND)


def _size() -> tuple[int, int]:
    for stream in (sys.stdout, sys.stdin, sys.stderr):
        try:
            size = os.get_terminal_size(stream.fileno())
        except OSError:
            continue
        if is_size(size.columns, size.lines):
            return size.columns, size.lines
    return _DEFAULT_SIZE


def _umask() -> int:
    """Return the umask; the system returns it only when it is set."""
    # No other thread runs here, so no file can be made with this mask in between.
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
