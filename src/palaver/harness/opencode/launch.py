"""Start OpenCode on the bus: its plugin, its settings and its command line. Pure."""

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from palaver.harness.base import NO_REPLY, SAFE_TOOLS, TurnReply, json_objects, text_in
from palaver.harness.json_edit import Dialect, parse_json

# --------------------
# The plugin that `pal install opencode` adds to OpenCode 1.18. Pure: JavaScript source.
#
# It runs inside OpenCode and knows nothing about the bus. It keeps one companion process per folder, passes
# on events of its sessions, and sends the companion's requests to OpenCode. If the companion fails, OpenCode
# goes on: no hook waits longer than half a second, and only once per session.

FILE: Final = "palaver.js"

_SOURCE: Final = r"""// Written by Palaver ('pal install opencode'); 'pal uninstall opencode' removes it.
import { spawn } from "node:child_process"

const COMMAND = __COMMAND__
const EVENTS = new Set([
  "session.created", "session.updated", "session.deleted", "session.status", "session.idle", "session.error",
  "session.compacted", "permission.asked", "permission.replied", "question.asked", "question.replied",
  "question.rejected", "message.updated", "message.part.updated", "tui.session.select",
])
// Pauses before each new start of the companion; the last one repeats.
const RESTART_MS = [1000, 5000, 30000, 120000]
const LIMIT_LINE = 8 * 1024 * 1024
// The first prompt of a session waits this long for its instructions: a slow bus cannot delay it more.
const INSTRUCTIONS_MS = 500

// Remove streamed text and tool results: the companion does not use them, and they can be long.
const shortened = (event) => {
  const part = event.properties?.part
  if (event.type !== "message.part.updated" || !part) return event
  const short = { ...part }
  if (part.type === "text" || part.type === "reasoning") short.text = ""
  if (part.state) short.state = { status: part.state.status, input: part.state.input }
  return { type: event.type, properties: { ...event.properties, part: short } }
}

export const Palaver = async ({ client, directory }) => {
  let child, starts = 0, isClosed = false
  // Both by session: the instructions received, and the prompts that wait for them.
  const instructions = new Map(), waiting = new Map()

  const write = (value) => {
    const pipe = child?.stdin
    if (!pipe || pipe.destroyed || pipe.writableLength > LIMIT_LINE) return
    try { pipe.write(JSON.stringify(value) + "\n") } catch {}
  }
  const forward = async ({ ask, method, path, body }) => {
    try {
      const options = { method, url: path }
      if (body !== undefined && body !== null) {
        options.body = body
        options.headers = { "content-type": "application/json" }
      }
      const result = await client._client.request(options)
      write({ answer: ask, status: result.response?.status ?? 0, body: result.data ?? null })
    } catch { write({ answer: ask, status: 0, body: null }) }
  }
  const receive = (line) => {
    let message
    try { message = JSON.parse(line) } catch { return }
    if (message.ask) void forward(message)
    else if (message.session) {
      instructions.set(message.session, message.told)
      waiting.get(message.session)?.()
      waiting.delete(message.session)
    }
  }
  const start = () => {
    if (isClosed) return
    const started = Date.now()
    try {
      child = spawn(COMMAND[0], [...COMMAND.slice(1), directory], { stdio: ["pipe", "pipe", "ignore"] })
    } catch { return }
    let rest = ""
    child.stdin.on("error", () => {})
    child.stdout.setEncoding("utf8")
    child.stdout.on("data", (data) => {
      const lines = (rest + data).split("\n")
      rest = lines.pop()
      if (rest.length > LIMIT_LINE) rest = ""
      lines.forEach(receive)
    })
    child.on("error", () => {})
    child.on("close", (code) => {
      child = undefined
      instructions.clear()
      if (code === 3) isClosed = true // the bus reaches these sessions through another integration
      if (Date.now() - started > 60000) starts = 0
      const timer = setTimeout(start, RESTART_MS[Math.min(starts++, RESTART_MS.length - 1)])
      timer.unref?.() // a pending restart must not keep OpenCode running
    })
    child.unref?.()
    child.stdin.unref?.()
    child.stdout.unref?.()
    write({ arguments: process.argv.slice(2) })
  }
  start()

  return {
    event: async ({ event }) => { if (EVENTS.has(event.type)) write({ event: shortened(event) }) },
    "chat.message": async (input) => {
      if (!child || instructions.has(input.sessionID)) return
      write({ begun: input.sessionID })
      await new Promise((done) => {
        waiting.set(input.sessionID, done)
        setTimeout(done, INSTRUCTIONS_MS)
      })
      // An empty text means that the wait is over: later prompts of this session do not wait again.
      if (!instructions.has(input.sessionID)) instructions.set(input.sessionID, "")
    },
    "experimental.chat.system.transform": async (input, output) => {
      const text = instructions.get(input.sessionID)
      if (text) output.system.push(text)
    },
    "tool.execute.before": async (input, output) => {
      if (input.tool.startsWith("palaver_") && output.args) output.args.palaver_session = input.sessionID
    },
    "shell.env": async (input, output) => {
      if (input.sessionID) output.env.OPENCODE_SESSION_ID = input.sessionID
      if (process.env.OPENCODE_SERVER_PASSWORD) output.env.OPENCODE_SERVER_PASSWORD = ""
    },
    dispose: async () => { isClosed = true; child?.stdin?.end() },
  }
}
"""


def plugin_source(companion: Sequence[str]) -> str:
    """Return the plugin; `companion` is the command that it runs, with the folder as last argument."""
    return _SOURCE.replace("__COMMAND__", json.dumps(list(companion)))


# --------------------
# Start OpenCode 1.18 as an agent: its arguments, environment and settings. Pure.
#
# Nothing is written to the user's settings: additions are in the environment of this one process, and
# OpenCode merges them over the rest. The user's arguments stay as they are. Commands other than its terminal
# (`opencode run`, `serve`, ...) have no server that we know of, and are left alone.

USER: Final = "opencode"
"""The user name that its server expects with the password."""
CONTENT: Final = "OPENCODE_CONFIG_CONTENT"
OLDEST: Final = (1, 17, 18)
"""The oldest version that is known to sign in to its own server. 1.17.0 and 1.17.11 do not."""
_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")
PASSWORD: Final = "OPENCODE_SERVER_PASSWORD"  # noqa: S105 - the name of a variable
USERNAME: Final = "OPENCODE_SERVER_USERNAME"
_SERVER: Final = "palaver"

COMMANDS: Final = frozenset(
    {
        *("acp", "agent", "attach", "auth", "completion", "db", "debug", "export", "github", "import"),
        *("mcp", "models", "plug", "plugin", "pr", "providers", "run", "serve", "session", "stats"),
        *("uninstall", "upgrade", "web"),
    }
)
"""Its other commands: none of them shows its terminal."""

_WITH_VALUE: Final = frozenset(
    {
        *("--log-level", "--port", "--hostname", "--mdns-domain", "--cors", "-m", "--model"),
        *("-s", "--session", "--prompt", "--agent", "--replay-limit"),
    }
)
_FORK: Final = "--fork"
_SELECTS: Final = frozenset({"-s", "--session", "-c", "--continue", _FORK, "--prompt"})
"""Options that select a session, or give it a first prompt."""
_ANSWERED_ALONE: Final = frozenset({"-h", "--help", "-v", "--version"})
_INTERACTIVE: Final = frozenset({"-i", "--interactive"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """How OpenCode was started: its first session, agent, model and port."""

    session: str = ""
    is_continued: bool = False
    is_fork: bool = False
    agent: str = ""
    provider: str = ""
    model: str = ""
    port: int = 0
    """The port that the user chose; 0 for any."""
    has_terminal: bool = True
    is_agent: bool = True
    """False: the command is not a conversation."""
    started_ms: int = 0


def too_old(version: str) -> str:
    """Return why `pal opencode` cannot run a version; empty if it can, or if the version is not known."""
    found = _VERSION.match(version)
    if found is None or tuple(map(int, found.groups())) >= OLDEST:
        return ""
    oldest = ".".join(map(str, OLDEST))
    return (
        f"OpenCode {version} is too old for 'pal opencode': its screen cannot sign in to its own server "
        f"and exits. Update it to {oldest} or newer, or use 'pal run -- opencode', which types messages"
    )


def read_arguments(arguments: Sequence[str], started_ms: int = 0) -> Began:
    """Read the user's arguments as OpenCode would."""
    options, flags, words = _split(arguments)
    provider, _, model = (options.get("-m") or options.get("--model") or "").partition("/")
    port, command = options.get("--port", ""), words[0] if words else ""
    return Began(
        session=options.get("-s") or options.get("--session") or "",
        is_continued=bool(flags & {"-c", "--continue"}),
        is_fork=_FORK in flags,
        agent=options.get("--agent", ""),
        provider=provider if model else "",
        model=model,
        port=int(port) if port.isascii() and port.isdigit() and len(port) < 6 else 0,
        has_terminal=not (flags & _ANSWERED_ALONE) and command not in COMMANDS,
        is_agent=not (flags & _ANSWERED_ALONE) and (command == "run" or command not in COMMANDS),
        started_ms=started_ms,
    )


def is_one_turn(arguments: Sequence[str]) -> bool:
    """Whether it ends with the turn that it was started for, so that nothing can wake it afterwards."""
    _, flags, words = _split(arguments)
    return words[:1] == ["run"] and not flags & _INTERACTIVE


def _split(arguments: Sequence[str]) -> tuple[dict[str, str], set[str], list[str]]:
    options: dict[str, str] = {}
    flags: set[str] = set()
    words: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, has_value, value = word.partition("=")
        if word == "--":
            words += rest
            break
        if name in _WITH_VALUE and (has_value or rest):
            options[name] = value if has_value else rest.pop(0)
        elif word.startswith("-"):
            flags.add(name)
        else:
            words.append(word)
    return options, flags, words


def resumed(arguments: Sequence[str], session: str, *, is_fork: bool = False) -> tuple[str, ...]:
    """Return the arguments that resume a session, unless they already select one.

    `is_fork`: they continue a copy of it, under a new id.
    """
    asked = read_arguments(arguments)
    if not session or asked.session or asked.is_continued or not asked.has_terminal:
        return tuple(arguments)
    return ("--session", session, *((_FORK,) if is_fork else ()), *arguments)


def without_session(arguments: Sequence[str]) -> list[str]:
    """Return the arguments for a copy of a session: without a session, a prompt, or one single turn."""
    if not read_arguments(arguments).has_terminal:
        return []
    kept: list[str] = []
    rest = list(arguments)
    while rest and rest[0] != "--":
        word = rest.pop(0)
        name, has_value, _ = word.partition("=")
        words = [word, *(rest[:1] if name in _WITH_VALUE and not has_value else ())]
        del rest[: len(words) - 1]
        kept += words if name not in _SELECTS else ()
    return kept


def launch_arguments(arguments: Sequence[str], began: Began, port: int) -> tuple[str, ...]:
    """Return the arguments with the port of its server; a port that the user chose stays."""
    return tuple(arguments) if began.port else ("--port", str(port), *arguments)


def launch_environment(
    environment: Mapping[str, str],
    *,
    password: str,
    mcp: Sequence[str],
    instructions: str,
    shell: str = "",
    may_use_bus: bool = False,
) -> dict[str, str]:
    """Return the additions to the environment; a password that the user has set stays.

    `mcp` is the command of our tools, `instructions` a file or empty, `shell` the shell for its agents'
    commands. `may_use_bus`: it calls the safe tools of the bus without a prompt. Settings that
    are already in the environment are kept; if they cannot be parsed, ours are left out.
    """
    added = {PASSWORD: environment.get(PASSWORD) or password} if password else {}
    server = {_SERVER: {"type": "local", "command": list(mcp), "enabled": True}}
    own_files = [instructions] if instructions else []
    in_shell = {"shell": shell} if shell else {}
    permission = safe_permission() if may_use_bus else {}
    allowed = {"permission": permission} if permission else {}
    ours = {"mcp": server, "instructions": own_files, **in_shell, **allowed}
    if not environment.get(CONTENT):
        return {**added, CONTENT: json.dumps(ours)}
    try:
        theirs = json.loads(environment[CONTENT])
    except (ValueError, RecursionError):
        return added
    if not isinstance(theirs, dict):
        return added
    servers, files, rules = theirs.get("mcp"), theirs.get("instructions"), theirs.get("permission", {})
    if allowed:
        # Of several rules that match, the last one counts. One word is the rule for everything.
        rules = rules if isinstance(rules, dict) else {"*": rules}
        allowed = {"permission": {**rules, **permission}}
    merged = {
        **theirs,
        # A server of the user with the same name takes precedence.
        "mcp": {**server, **(servers if isinstance(servers, dict) else {})},
        "instructions": [*(files if isinstance(files, list) else []), *own_files],
        # Ours replaces the shell of the user, because it runs that shell without the password of the server.
        **in_shell,
        **allowed,
    }
    return {**added, CONTENT: json.dumps(merged)}


def safe_permission() -> dict[str, object]:
    """Return the permission settings for the safe tools of the bus.

    Commands have no rule here: a rule of OpenCode for a command also allows it to write its output to any
    file.
    """
    return {f"{_SERVER}_{tool}": "allow" for tool in SAFE_TOOLS}


def is_denied_in_settings(texts: Iterable[str]) -> bool:
    """Whether a user's settings deny our tools: a denial of the user is not changed."""
    return any("deny" in map(_rule_for_all, _tool_rules(text)) for text in texts)


def _tool_rules(text: str) -> list[object]:
    """Return the rules in a text of settings that apply to our tools; empty if it is unreadable."""
    try:
        settings = parse_json(text, _DIALECT).value
    except (ValueError, RecursionError):
        return []
    rules = settings.get("permission") if isinstance(settings, dict) else None
    if not isinstance(rules, dict):
        return [rules]
    return [rule for key, rule in rules.items() if any(fnmatchcase(name, key) for name in safe_permission())]


def _rule_for_all(rule: object) -> object:
    """Return the action of a rule for every call; a rule may list patterns."""
    return rule.get("*") if isinstance(rule, dict) else rule


# --------------------
# The shell that OpenCode runs for its agents, without the password of its server. Pure.
#
# OpenCode passes its whole environment to commands in a shell. A command with the password could answer
# OpenCode's questions over HTTP, so the shell unsets the password first.

NOT_FOR_TOOLS: Final = frozenset({"fish", "nu"})
"""Shells that OpenCode does not use for its agents: it picks another one."""
USUAL: Final = "bash"
"""The shell that it uses if there is no other."""
_DIALECT: Final = Dialect(comments=True, trailing_commas=True)


def shell_in_settings(texts: Iterable[str]) -> str:
    """Return the shell of the last settings that name one; unreadable settings are skipped."""
    found = ""
    for text in texts:
        try:
            settings = parse_json(text, _DIALECT).value
        except (ValueError, RecursionError):
            continue
        named = settings.get("shell") if isinstance(settings, dict) else None
        found = named if isinstance(named, str) and named else found
    return found


def shell_name(shell: str) -> str:
    """Return the name by which OpenCode knows how to call a shell; the wrapper has the same name."""
    return shell.rpartition("/")[2]


def shell_wrapper(shell: str) -> str:
    """Return a wrapper script that runs this shell without the password."""
    return f'#!/bin/sh\nunset {PASSWORD} {USERNAME}\nexec {shlex.quote(shell)} "$@"\n'


# --------------------
# One turn without a terminal, `opencode run`: the prompt is read from standard input. Pure.

_VALUES_IN_A_TURN: Final = frozenset({"-m", "--model", "--agent", "--log-level", "--variant"})
_FLAGS_IN_A_TURN: Final = frozenset({"--print-logs", "--pure", "--auto"})
"""Options of a start that `opencode run` has too; it refuses all others."""


def turn_arguments(arguments: Sequence[str], session: str) -> tuple[str, ...]:
    """Return the arguments for one turn of an agent that was started with `arguments`.

    It resumes `session`, or begins a new one if that is empty.
    """
    kept: list[str] = []
    rest = list(arguments)
    while rest and (word := rest.pop(0)) != "--":
        name, has_value, _ = word.partition("=")
        # The value of a dropped option is skipped with it, because it may look like an option.
        value = [] if has_value or name not in _WITH_VALUE | _VALUES_IN_A_TURN else rest[:1]
        del rest[: len(value)]
        if name in _FLAGS_IN_A_TURN or (name in _VALUES_IN_A_TURN and (has_value or value)):
            kept += [word, *value]
    return ("run", "--format", "json", *(("--session", session) if session else ()), *kept)


def read_turn(output: str) -> TurnReply:
    """Read the output of a turn: lines of events. The texts of the last message are the reply."""
    session, message, error = "", "", ""
    texts: list[str] = []
    for event in json_objects(output):
        session = text_in(event, "sessionID") or session
        if event.get("type") == "error":
            error = text_in(event, "error", "data", "message") or text_in(event, "error", "name")
            error = error or NO_REPLY.error
        elif event.get("type") == "text":
            if text_in(event, "part", "messageID") != message:
                message, texts = text_in(event, "part", "messageID"), []
            texts.append(text_in(event, "part", "text"))
    if error or not texts:
        return TurnReply(session=session, error=error or NO_REPLY.error)
    return TurnReply(text="\n".join(texts), session=session)
