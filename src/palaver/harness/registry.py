"""Find the parts of a harness by its name: profile, hooks, start, settings, transcript. Pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from palaver.errors import NotFound
from palaver.harness.base import Profile, TurnReply
from palaver.harness.claude import launch as claude_launch
from palaver.harness.claude import output as claude
from palaver.harness.claude.hooks import claude_answer, read_claude_hook
from palaver.harness.codex import launch as codex_launch
from palaver.harness.codex import output as codex
from palaver.harness.codex.hooks import codex_answer, read_codex_hook
from palaver.harness.gemini import launch as gemini_launch
from palaver.harness.gemini import output as gemini
from palaver.harness.gemini.hooks import gemini_answer, read_gemini_hook
from palaver.harness.hooks import HookNews
from palaver.harness.opencode import launch as opencode_launch
from palaver.harness.opencode import output as opencode
from palaver.harness.programs import AIDER, COPILOT, GENERIC, QWEN
from palaver.harness.transcripts import TranscriptFolder
from palaver.protocol.agents import Agent
from palaver.protocol.transcript import Detail, Stretch, TranscriptReader

# --------------------
# Read the hooks of all harnesses into one form, and write replies to them. Pure.
#
# Unreadable input is ignored: a hook must never disturb its harness.

_Read = Callable[[str, Mapping[str, object]], HookNews]
_Say = Callable[[str, str, str], Mapping[str, object] | None]

# OpenCode is not in the table: it has a plugin instead of hooks.
_HARNESSES: Final[Mapping[str, tuple[_Read, _Say]]] = {
    "claude": (read_claude_hook, claude_answer),
    "codex": (read_codex_hook, codex_answer),
    "gemini": (read_gemini_hook, gemini_answer),
}

HOOKED: Final = tuple(_HARNESSES)
"""The harnesses whose hooks can be read."""

_LIMIT_EVENT: Final = 64
_decode: Final = msgspec.json.Decoder(dict[str, object]).decode


def read_hook(harness: str, event: str, data: bytes | Mapping[str, object]) -> HookNews | None:
    """Read the input of a hook; None if it cannot be read or the harness is unknown."""
    found = _HARNESSES.get(harness)
    if found is None or not 0 < len(event) <= _LIMIT_EVENT:
        return None
    if isinstance(data, bytes):
        try:
            data = _decode(data)
        # The input may be cut, or contain anything that a tool has printed. No error may reach the harness.
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
    return found[0](event, data)


def hook_answer_object(
    harness: str, event: str, *, context: str = "", block_reason: str = ""
) -> dict[str, object]:
    """Return the reply to a hook: context for the next request to the model, or why the turn goes on.

    Empty if there is nothing to reply, or this hook takes no reply.
    """
    found = _HARNESSES.get(harness)
    return dict(found[1](event, context, block_reason) or {}) if found else {}


# --------------------
# The harnesses with a readable transcript, and where it is. Pure: a table, and a check of session ids.


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptForm:
    """How one harness stores its conversations."""

    reader: TranscriptReader
    folders: Callable[[str, Mapping[str, str]], tuple[TranscriptFolder, ...]]
    """Returns where to look for a session id with an environment, most likely first."""


TRANSCRIPTS: Final[Mapping[str, TranscriptForm]] = {
    "claude": TranscriptForm(reader=claude.ClaudeTranscript(), folders=claude.claude_folders),
    "codex": TranscriptForm(reader=codex.CodexTranscript(), folders=codex.codex_folders),
    "gemini": TranscriptForm(reader=gemini.GeminiTranscript(), folders=gemini.gemini_folders),
    "opencode": TranscriptForm(reader=opencode.OpencodeTranscript(), folders=opencode.opencode_folders),
}

_SESSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")


def is_session_id(text: str) -> bool:
    """Whether a text can be a session id: without dots, slashes and wildcards, safe in a file pattern."""
    return _SESSION.fullmatch(text) is not None


# --------------------
# The harnesses that can continue a copy of a session. Pure: a table.

FORKABLE: Final[Mapping[str, Callable[[Sequence[str]], Sequence[str]]]] = {
    "claude": claude_launch.without_session,
    "codex": codex_launch.without_session,
    "opencode": opencode_launch.without_session,
}
"""Each returns the arguments of a start that the copy uses again."""


# --------------------
# The harnesses that can run one turn without a terminal. Pure: a table.


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnForm:
    """How one harness runs a turn that reads its prompt from standard input."""

    arguments: Callable[[Sequence[str], str], Sequence[str]]
    """Returns the arguments, from those of an earlier start and the session to resume, which may be empty."""
    read: Callable[[str], TurnReply]
    """Returns the reply in its standard output."""
    no_session: str
    """A part of its error if the session to resume does not exist, such as one in which nothing was said."""


TURNS: Final[Mapping[str, TurnForm]] = {
    "claude": TurnForm(
        arguments=claude_launch.turn_args,
        read=claude_launch.read_turn,
        no_session="No conversation found with session ID",
    ),
    "codex": TurnForm(
        arguments=codex_launch.turn_arguments,
        read=codex_launch.read_turn,
        no_session="no rollout found for thread id",
    ),
    "gemini": TurnForm(
        arguments=gemini_launch.turn_args,
        read=gemini_launch.read_turn,
        no_session="Error resuming session",
    ),
    "opencode": TurnForm(
        arguments=opencode_launch.turn_arguments,
        read=opencode_launch.read_turn,
        no_session="Session not found",
    ),
}


# --------------------
# The profile of each harness or program. Pure: a table.

PROFILES: Final[Mapping[str, Profile]] = {
    profile.name: profile
    for profile in (
        claude.PROFILE,
        codex.PROFILE,
        gemini.PROFILE,
        opencode.PROFILE,
        AIDER,
        QWEN,
        COPILOT,
        GENERIC,
    )
}

PACKAGE_RUNNERS: Final = frozenset({"npm", "npx", "pnpm", "bunx", "uv", "uvx", "pipx"})
"""Programs that install a program, if necessary, and run it."""
_LAUNCHERS: Final = PACKAGE_RUNNERS | {"env", "node", "bun", "python", "python3"}
"""Programs that run the program named in their arguments."""
_PACKAGES: Final = {"qwen-code": "qwen", "aider-chat": "aider"}
"""Other names of a program."""
_BY_COMMAND: Final[Mapping[str, Callable[[Sequence[str]], Profile]]] = {
    gemini.PROFILE.name: gemini.profile_of_start
}
"""Harnesses whose profile depends on the command that starts them."""


def profile_of(harness: str) -> Profile:
    """Return the profile of a harness; the generic one if the harness is unknown."""
    return PROFILES.get(harness, GENERIC)


def program_names(command: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the program that a command runs, also through a launcher such as `npx`."""
    names = [word.rpartition("/")[2] for word in command[:1]]
    if names and names[0] in _LAUNCHERS:
        # A package may be named with a scope and a version: `npx @openai/codex@latest` runs codex.
        words = (word for word in command[1:] if not word.startswith("-"))
        names += [word.rpartition("/")[2].partition("@")[0] for word in words][:1]
    return tuple(_PACKAGES.get(name, name) for name in names)


def profile_of_start(harness: str, command: Sequence[str]) -> Profile:
    """Return the profile of a harness that was started by this command."""
    by_command = _BY_COMMAND.get(harness)
    return profile_of(harness) if by_command is None else by_command(command)


# --------------------
# The orders that the daemon sends to a client that reads a transcript: which session, and which part. Pure.
#
# The daemon opens no transcript. It sends what it knows about the session, and the client reads the
# transcript with its own rights.

READ_VERB: Final = "__transcript"
EXCERPT_VERB: Final = "__excerpts"
EXCERPTS: Final = "PALAVER_EXCERPTS"
"""The variable that names the file of excerpts, in the environment of the repeated request."""


class KnownSession(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon's knowledge about an agent's session."""

    agent: str
    harness: str
    session: str = ""
    path: str = ""
    """The transcript's path, if a hook has reported it."""
    pid: int = 0
    """The harness's process, if it runs on this machine now."""
    is_own: bool = False
    """The agent is the caller: the client's environment says which session it is in."""


class ReadOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Transcripts to print: entries `first` to `last`, or only the last `newest` entries of each."""

    known: tuple[KnownSession, ...]
    is_all: bool = False
    """All sessions are searched: one that cannot be read is skipped."""
    first: int = 1
    last: int | None = None
    newest: int = 0
    level: Detail = Detail.NORMAL
    search: str = ""
    is_json: bool = False
    """Entries are JSON: the caller asked for it, or a harness reads them."""
    is_refusal_json: bool = False
    """The caller asked for JSON, so errors are JSON too, as with every command."""


class ExcerptOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Excerpts to read. The command line to repeat with them follows this order."""

    wanted: tuple[tuple[KnownSession, Stretch], ...]
    is_json: bool = False


def known_session(agent: Agent, *, path: str, is_present: bool, is_own: bool) -> KnownSession:
    """Return what is known about an agent's session; raise NotFound if it has no readable transcript."""
    if agent.remote:
        raise NotFound(
            f"transcript of {agent.name} on this machine",
            "it is stored on the agent's machine: run this there",
        )
    if agent.harness not in TRANSCRIPTS:
        what = f"the transcript format of {agent.harness}" if agent.harness else "the harness of the agent"
        raise NotFound(
            f"transcript of {agent.name}",
            f"{what} is not known; transcripts of {', '.join(TRANSCRIPTS)} can be read, and for a bundle "
            "a file of JSON lines with --transcript-file",
        )
    # The process of a sub-agent and its environment belong to the session of its parent.
    if agent.parent:
        is_present = is_own = False
    # Pids are reused: that of an agent that is offline may belong to another process now.
    pid = agent.seat.pid if agent.seat is not None and is_present else 0
    session = "" if agent.link else agent.session
    return KnownSession(
        agent=agent.name, harness=agent.harness, session=session, path=path, pid=pid, is_own=is_own
    )


_encode: Final = msgspec.json.Encoder().encode


def order_to_word(order: ExcerptOrder) -> str:
    """Format an order as one word of a command line. Bytes that are not UTF-8 were refused before."""
    return _encode(order).decode()


def order_to_words(order: ReadOrder) -> list[str]:
    """Format an order as words of a command line.

    One word for each session, because Linux limits the length of a single argument (128 KiB).
    """
    return [_encode(one).decode() for one in (msgspec.structs.replace(order, known=()), *order.known)]


def read_order_from_words(words: Sequence[str]) -> ReadOrder:
    """Parse a `ReadOrder` that `order_to_words` wrote."""
    order, *known = words
    return msgspec.structs.replace(
        msgspec.json.decode(order, type=ReadOrder),
        known=tuple(msgspec.json.decode(one, type=KnownSession) for one in known),
    )


def excerpt_order_from_word(word: str) -> ExcerptOrder:
    """Parse an `ExcerptOrder` that `order_to_word` wrote."""
    return msgspec.json.decode(word, type=ExcerptOrder)
