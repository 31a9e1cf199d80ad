"""`pal doctor`: the installed harnesses, the test results of their versions, and, on request, a self-test."""

import json
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Final

import msgspec

from palaver.app.mock_model import Rule, Script, ScriptedReply, ScriptedToolCall, mock_model
from palaver.harness.marks import harness_of
from palaver.harness.opencode.launch import too_old
from palaver.home import find_pal
from palaver.protocol.display import paint_for

# --------------------
# The findings about a harness, and how they are shown: to people, to programs, as a page. Pure.

CHECKS: Final[Mapping[str, str]] = {
    "starts": "'pal HARNESS' starts it and detects when it is idle",
    "tools": "it offers the palaver tools to its model",
    "idle": "a message wakes it when it is idle; no person has to press a key",
    "busy": "a message reaches it while it works, in the same turn",
    "seen": "the receipt says that the message was in a request to its model",
    "subagents": "a sub-agent that it starts has a name, and a message to it is in its own request",
    "ends": "after it is killed, none of its processes is running",
}
"""The checks of a self-test, in this order."""

ADVICE: Final[Mapping[str, str]] = {
    "starts": "run it once without Palaver: it may ask a question at its start, or lack a program",
    "tools": "check whether a policy of your organisation forbids MCP servers",
    "idle": "messages wait until it runs 'pal recv' or the inbox tool; check whether its hooks are forbidden",
    "busy": "messages arrive after its turn; check whether its hooks are forbidden",
    "seen": "messages arrive, but receipts stay 'submitted': its hooks or events have changed",
    "subagents": "its sub-agents act as their parent, so write to the parent; its hooks or events have "
    "changed",
    "ends": "end the remaining processes yourself; 'ps' shows them",
}
"""Advice for each failed check."""
NONE: Final = "none"
"""The result of a check that does not apply to a harness: not a failure."""
_WELL: Final = ("ok", NONE)


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """One self-test of one harness."""

    harness: str
    version: str
    date: str
    results: Mapping[str, str]
    """For each check `ok`, `none`, or why it failed."""
    lanes: Mapping[str, str] = msgspec.field(default_factory=dict)
    """For `idle` and `busy` the lane that the message took."""

    @property
    def is_well(self) -> bool:
        return all(self.results.get(check) in _WELL for check in CHECKS)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A harness on this machine."""

    harness: str
    path: str
    version: str
    """Empty if unknown."""
    trouble: str = ""
    """Why the version is unknown: how the request for it ended."""
    tried: Tried | None = None
    """The result of the self-test just run."""


def what_works(found: Found, proven: Sequence[Tried]) -> tuple[str, str]:
    """Return a sentence about the known test results of a version, and advice if there are no results."""
    if found.trouble:
        return (
            f"its version is unknown: {found.trouble}",
            "run it once without Palaver to see what is missing",
        )
    if found.harness == "opencode" and (trouble := too_old(found.version)):
        return trouble, "update it: 'npm install -g opencode-ai@latest', or as you installed it"
    known = [one for one in proven if one.harness == found.harness]
    for one in known:
        if one.version == found.version:
            works = [check for check in CHECKS if one.results.get(check) == "ok"]
            fails = [check for check in CHECKS if one.results.get(check, NONE) not in _WELL]
            sentence = f"tested on {one.date}: {', '.join(works) or 'nothing'} work"
            return sentence + (f", {', '.join(fails)} do not" if fails else ""), ""
    versions = ", ".join(one.version for one in known) or "no version"
    return (
        f"this version has not been tested; tested: {versions}",
        f"'pal doctor --self-test --harness {found.harness}' tests it",
    )


def found_view(found: Found, proven: Sequence[Tried]) -> dict[str, object]:
    """Return a harness as programs read it."""
    known, advice = what_works(found, proven)
    view: dict[str, object] = {
        "harness": found.harness,
        "path": found.path,
        "version": found.version or None,
        "known": known,
        "advice": advice or None,
    }
    if found.tried is not None:
        view["self_test"] = {
            check: {
                "ok": result in _WELL,
                "said": result,
                "advice": None if result in _WELL else ADVICE[check],
            }
            for check, result in found.tried.results.items()
        }
        view["lanes"] = found.tried.lanes
    return view


def found_lines(found: Found, proven: Sequence[Tried]) -> list[tuple[bool, str]]:
    """Return a harness as people read it: lines, each with whether all is well."""
    known, advice = what_works(found, proven)
    version = found.version or "of unknown version"
    is_shown = found.tried is not None and found.tried.is_well
    lines = [(not advice or is_shown, f"{found.harness} {version} ({found.path}): {known}")]
    if found.tried is None:
        return [*lines, (False, f"  {advice}")] if advice else lines
    for check, result in found.tried.results.items():
        lane = f" ({found.tried.lanes[check]})" if check in found.tried.lanes else ""
        if result == NONE:
            lines.append((True, f"  {check}: this harness does not have the feature"))
        elif result == "ok":
            lines.append((True, f"  {check}{lane}: {CHECKS[check]}"))
        else:
            lines.append((False, f"  {check}: {result}\n       {ADVICE[check]}"))
    return lines


def page_of(proven: Sequence[Tried]) -> str:
    """Write the compatibility page."""
    heads = ["harness", "version", "tested on", *CHECKS]
    rows = []
    for one in proven:
        cells = []
        for check in CHECKS:
            result = one.results.get(check)
            lane = f" ({one.lanes[check]})" if check in one.lanes else ""
            known = {None: "not tested", "ok": f"yes{lane}", NONE: NONE}
            cells.append(known.get(result, "**no**"))
        rows.append(f"| {' | '.join([one.harness, one.version, one.date, *cells])} |")
    meanings = [f"| `{check}` | {meaning} |" for check, meaning in CHECKS.items()]
    return "\n".join(
        [
            "# Compatibility",
            "",
            "Results of `pal doctor --self-test` with the real programs and a scripted model.",
            "`make compat` generates this page from such a run; do not edit it by hand.",
            "",
            f"| {' | '.join(heads)} |",
            f"|{'---|' * len(heads)}",
            *rows,
            "",
            "The lane that carried the message is in parentheses: `native`, `hook` or `terminal`. `none`",
            "means that the harness lacks this feature: the sub-agents of Gemini CLI act as the agent.",
            "",
            "| check | it works when |",
            "|---|---|",
            *meanings,
            "",
            "For a version that is not listed, run `pal doctor --self-test`. It shows what works on your",
            "machine, and how to fix each failure.",
            "",
        ]
    )


# --------------------
# Accounts with which a harness uses only the scripted model. Pure: files and variables.

PROGRAMS: Final = ("claude", "codex", "opencode", "gemini")
_TASK: Final = "look into the cellar"
"""The task of a sub-agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessAccount:
    """The account of a user with nothing else."""

    files: Mapping[str, str]
    """Below the home directory."""
    environment: Mapping[str, str]
    call: ScriptedToolCall
    """A harmless tool that needs no permission."""
    delegate: ScriptedToolCall | None = None
    """A tool that starts a named sub-agent; None if there is no such tool."""
    in_subagent: str = ""
    """A pattern that only the requests of that sub-agent have."""
    arguments: tuple[str, ...] = field(default=())


def account_for(harness: str, url: str, project: str) -> HarnessAccount:
    """Return the account to test a harness in a folder, with a model at an address."""
    return _ACCOUNTS[harness](url, project)


def _claude(url: str, project: str) -> HarnessAccount:
    # Each of these answers a dialog at the first start, which would wait for a person otherwise.
    settings = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "hasSeenAutoDefaultNotice": True,
        "customApiKeyResponses": {"approved": ["dummy"], "rejected": []},
        "projects": {project: {"hasTrustDialogAccepted": True}},
    }
    return HarnessAccount(
        files={".claude.json": json.dumps(settings)},
        environment={
            "ANTHROPIC_API_KEY": "dummy",
            "ANTHROPIC_BASE_URL": url,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_AUTOUPDATER": "1",
        },
        call=ScriptedToolCall(tool="Read", input={"file_path": f"{project}/README"}),
        delegate=ScriptedToolCall(
            tool="Agent",
            input={"description": "look", "prompt": _TASK, "subagent_type": "general-purpose"},
        ),
        in_subagent=r"You are \w+_general_purpose_1 on Palaver",
        # By default it asks a server whether a sub-agent is harmless, and the scripted model cannot reply to
        # that.
        arguments=("--permission-mode", "acceptEdits", "--allowedTools=Agent"),
    )


def _codex(url: str, project: str) -> HarnessAccount:
    lines = [
        'model = "mock-model"',
        'model_provider = "mock"',
        "check_for_update_on_startup = false",
        'approval_policy = "never"',
        'sandbox_mode = "danger-full-access"',
        "[model_providers.mock]",
        'name = "mock"',
        f"base_url = {json.dumps(url + '/v1')}",
        'env_key = "MOCK_API_KEY"',
        'wire_api = "responses"',
        "supports_websockets = false",
        # A repeated request would take the next reply of the script.
        "request_max_retries = 0",
        "stream_max_retries = 0",
        "[analytics]",
        "enabled = false",
        f"[projects.{json.dumps(project)}]",
        'trust_level = "trusted"',
    ]
    return HarnessAccount(
        files={".codex/config.toml": "\n".join(lines) + "\n"},
        environment={"MOCK_API_KEY": "dummy"},
        call=ScriptedToolCall(tool="exec_command", input={"cmd": "true"}),
        delegate=ScriptedToolCall(
            tool="spawn_agent",
            input={"message": _TASK, "agent_type": "explorer"},
            namespace="multi_agent_v1",
        ),
        in_subagent=rf'"text":\s*"{_TASK}"',
    )


def _opencode(url: str, project: str) -> HarnessAccount:
    model = {"name": "Mock", "tool_call": True, "limit": {"context": 200_000, "output": 8_000}}
    settings = {
        "model": "mock/mock-model",
        "small_model": "mock/mock-model",
        "autoupdate": False,
        "share": "disabled",
        "provider": {
            "mock": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "Mock",
                "options": {"baseURL": f"{url}/v1", "apiKey": "dummy"},
                "models": {"mock-model": model},
            }
        },
    }
    switched_off = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE")
    return HarnessAccount(
        files={".config/opencode/opencode.json": json.dumps(settings)},
        environment={f"OPENCODE_DISABLE_{name}": "1" for name in switched_off},
        call=ScriptedToolCall(tool="bash", input={"command": "true", "description": "nothing"}),
        delegate=ScriptedToolCall(
            tool="task",
            input={"description": "look", "prompt": _TASK, "subagent_type": "general"},
        ),
        in_subagent=rf'"role": ?"user", ?"content": ?"{_TASK}',
    )


def _gemini(url: str, project: str) -> HarnessAccount:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "telemetry": {"enabled": False},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "model": {"name": "gemini-2.5-flash"},
    }
    return HarnessAccount(
        files={".gemini/settings.json": json.dumps(settings)},
        environment={
            "GEMINI_API_KEY": "dummy",
            "GOOGLE_GEMINI_BASE_URL": url,
            "GEMINI_TELEMETRY_ENABLED": "false",
        },
        call=ScriptedToolCall(tool="list_directory", input={"dir_path": project}),
    )


_ACCOUNTS: Final[Mapping[str, Callable[[str, str], HarnessAccount]]] = {
    "claude": _claude,
    "codex": _codex,
    "opencode": _opencode,
    "gemini": _gemini,
}

# --------------------
# A self-test: a temporary session of a real harness, on a separate bus, with a scripted model.
#
# It has its own home directory, temporary folder and environment, so none of the user's files are read or
# written; it connects to this machine only. Every process that was started is ended, by its id.

NAME: Final = "probe"
_LIMIT_S: Final = 60.0
_LOOK_S: Final = 0.1
_COMMAND_LIMIT_S: Final = 60.0
_NATIVE_LIMIT_S: Final = 20.0
_NATIVE: Final = frozenset({"claude", "codex", "opencode"})
"""Harnesses with a native lane. It may open shortly after the session."""
_GATE: Final = "busy"


class TrialFailedError(Exception):
    """A failed check; its text says how."""


class Trial:
    """One harness on a separate bus."""

    def __init__(
        self, harness: str, folder: Path, account: HarnessAccount, script: Script, path: str
    ) -> None:
        self._harness = harness
        self._folder = folder
        self._account = account
        self._script = script
        self._pal = find_pal()
        self.lanes: dict[str, str] = {}
        # Built from nothing, so that no key or setting of the user reaches the harness.
        self.environment = {
            "PATH": path,
            "HOME": str(folder / "account"),
            "TMPDIR": str(folder / "tmp"),
            "PALAVER_HOME": str(folder / "bus"),
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            **account.environment,
        }

    def run(self) -> dict[str, str]:
        """Run all checks in order; a check that depends on a failed one is skipped."""
        results: dict[str, str] = {}
        tries: Mapping[str, Callable[[], None]] = {
            "starts": self._start,
            "idle": self._idle,
            "busy": self._busy,
            "tools": self._tools,
            "seen": self._seen,
            "subagents": self._subagents,
            "ends": self._end,
        }
        for check, attempt in tries.items():
            # `ends` always runs: a harness that failed to start may have left processes.
            if results.get("starts", "ok") != "ok" and check != "ends":
                continue
            if check == "subagents" and self._account.delegate is None:
                results[check] = NONE
                continue
            try:
                attempt()
                results[check] = "ok"
            except TrialFailedError as failure:
                results[check] = str(failure)
        return {check: results[check] for check in CHECKS if check in results}

    def _start(self) -> None:
        self._say("up")
        self._say(self._harness, "--name", NAME, "--detach", *self._account.arguments)
        self._until(self._is_up, lambda: f"it never became idle: {self._look()}")
        if self._harness in _NATIVE:
            with suppress(TrialFailedError):  # otherwise another lane is used, and the result names it
                self._until(self._has_native, lambda: "", limit_s=_NATIVE_LIMIT_S)

    def _is_up(self) -> bool:
        found = self._agent()
        if found.get("left") or found.get("state") == "exited":
            raise TrialFailedError(f"it exited at once: {found.get('detail') or 'for an unknown reason'}")
        return found.get("state") == "idle"

    def _has_native(self) -> bool:
        gates = self._agent().get("gates")
        return isinstance(gates, list) and any(gate.get("lane") == "native" for gate in gates)

    def _idle(self) -> None:
        seq, nonce = self._send()
        self._until(lambda: self._is_asked(nonce), lambda: f"it was not woken: {self._look()}")
        self._until(lambda: self._state() == "idle", lambda: f"it does not become idle: {self._look()}")
        self.lanes["idle"] = self._lane(seq)

    def _tools(self) -> None:
        if not any("list_agents" in request.text for request in self._script.main):
            raise TrialFailedError("no request to its model contains them")

    def _busy(self) -> None:
        self._script.add(ScriptedReply(text="wait", calls=(self._account.call,), gate=_GATE))
        before = len(self._script.main)
        self._send()
        if len(self._script.wait_for_main(before + 1, _LIMIT_S)) <= before:
            raise TrialFailedError(f"it was not woken: {self._look()}")
        seq, nonce = self._send()
        self._script.open(_GATE)
        self._until(lambda: self._is_asked(nonce), lambda: f"it did not get the message: {self._look()}")
        self.lanes["busy"] = self._lane(seq)
        self._until(lambda: self._state() == "idle", lambda: f"it does not become idle: {self._look()}")

    def _seen(self) -> None:
        self._until(lambda: not self._unseen(), lambda: f"receipts stay {', '.join(sorted(self._unseen()))}")

    def _subagents(self) -> None:
        assert self._account.delegate is not None  # a harness without sub-agents is not tested
        working = ScriptedReply(text="wait", calls=(self._account.call,), gate=_GATE)
        self._script.add_rules(Rule(pattern=self._account.in_subagent, reply=working))
        self._script.add(ScriptedReply(text="I delegate", calls=(self._account.delegate,)))
        self._send()
        self._until(lambda: bool(self._below()), lambda: f"no sub-agent appeared: {self._look()}")
        (name,) = self._below()
        _, nonce = self._send(name)
        self._script.open(_GATE)
        own = self._account.in_subagent
        self._until(lambda: self._is_asked(nonce, own), lambda: f"{name} did not get the message")
        self._until(lambda: self._state() == "idle", lambda: f"it does not become idle: {self._look()}")

    def _end(self) -> None:
        if pid := self._agent().get("pid"):
            with suppress(OSError):
                os.kill(int(str(pid)), signal.SIGKILL)
        with suppress(TrialFailedError):
            self._until(lambda: not self._left_over(), lambda: "it still runs", limit_s=10.0)
        if left := self._left_over():
            shown = ", ".join(f"{pid} ({words})" for pid, words in left)
            raise TrialFailedError(f"still running: {shown}")

    # The bus

    def _send(self, name: str = NAME) -> tuple[int, str]:
        nonce = f"nonce-{secrets.token_hex(8)}"
        output = self._say("send", f"@{name}", "--json", "--", nonce)
        return int(json.loads(output)["seq"]), nonce

    def _is_asked(self, nonce: str, pattern: str = "") -> bool:
        return any(nonce in one.text and re.search(pattern, one.text) for one in self._script.main)

    def _state(self) -> str:
        return str(self._agent().get("state", ""))

    def _below(self) -> list[str]:
        """Return its sub-agents by name."""
        here = [json.loads(line) for line in self._say("list", "--json").splitlines()]
        return [str(one["name"]) for one in here if one.get("parent") == NAME]

    def _agent(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self._ask("status", NAME, "--json") or "{}")
        return found

    def _receipts(self, seq: int) -> list[dict[str, object]]:
        found: list[dict[str, object]] = json.loads(self._say("receipts", str(seq), "--json"))["receipts"]
        return found

    def _lane(self, seq: int) -> str:
        return next((str(one.get("lane") or "") for one in self._receipts(seq)), "")

    def _unseen(self) -> set[str]:
        output = self._say("events", "--type", "message", "--to", NAME, "--json").splitlines()
        receipts = [one for line in output for one in self._receipts(int(json.loads(line)["seq"]))]
        return {
            str(one["state"])
            for one in receipts
            if one["state"] not in ("seen", "answered") or one.get("grade") not in ("context", "handed")
        }

    def _look(self) -> str:
        """Return the last lines of the harness's terminal: they often show why a check failed."""
        lines = [line.strip() for line in self._ask("peek", NAME).splitlines() if line.strip()]
        return " / ".join(lines[-4:]) or "it shows nothing"

    def _say(self, *words: str) -> str:
        done = self._pal_run(*words)
        if done.returncode != 0:
            raise TrialFailedError(done.stderr.strip().removeprefix("pal: ") or f"pal {words[0]} failed")
        return done.stdout

    def _ask(self, *words: str) -> str:
        return self._pal_run(*words).stdout

    def _pal_run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        try:
            return subprocess.run(
                [self._pal, *words],
                env=self.environment,
                cwd=self._folder / "project",
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_COMMAND_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise TrialFailedError(f"pal {words[0]} did not end within {_COMMAND_LIMIT_S:.0f} s") from error

    def _until(
        self, is_so: Callable[[], bool], trouble: Callable[[], str], *, limit_s: float = _LIMIT_S
    ) -> None:
        end = time.monotonic() + limit_s
        while not is_so():
            if time.monotonic() > end:
                raise TrialFailedError(trouble())
            time.sleep(_LOOK_S)

    # Remaining processes

    def _left_over(self) -> list[tuple[int, str]]:
        """Return processes that were started for the session and still run, without the bus itself."""
        found = [
            (pid, words.replace(b"\0", b" ").decode(errors="replace")) for pid, words in self.processes()
        ]
        return [(pid, words[:60].strip()) for pid, words in found if "palaver.daemon" not in words]

    def processes(self) -> Iterator[tuple[int, bytes]]:
        """Yield every process that was started with this bus; nothing if the system does not show it."""
        mark = b"PALAVER_HOME=" + os.fsencode(self._folder / "bus")
        for entry in Path("/proc").glob("[0-9]*"):
            # A process may end during the look, or belong to another user.
            with suppress(OSError, ValueError):
                if mark in (entry / "environ").read_bytes().split(b"\0") and int(entry.name) != os.getpid():
                    yield int(entry.name), (entry / "cmdline").read_bytes()

    def close(self) -> None:
        """Stop the bus, and end every other remaining process by its id."""
        with suppress(TrialFailedError):
            self._ask("down")
        # A process with another session or parent is found by its environment only.
        for pid, _ in list(self.processes()):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def try_out(harness: str, program: str, version: str, environment: Mapping[str, str], date: str) -> Tried:
    """Run the self-test of a harness, and leave no files or processes."""
    with _folder(harness, program) as folder, mock_model(Script()) as model:
        account = account_for(harness, model.url, str(folder / "project"))
        for name, text in account.files.items():
            path = folder / "account" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        usual = environment.get("PATH", os.defpath)
        # `bin` first: `pal` looks for the harness by its name, and must find this program.
        trial = Trial(harness, folder, account, model.script, f"{folder / 'bin'}{os.pathsep}{usual}")
        try:
            results = trial.run()
        finally:
            trial.close()
        return Tried(harness=harness, version=version, date=date, results=results, lanes=trial.lanes)


@contextmanager
def _folder(harness: str, program: str) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="pal-doctor-")).resolve()
    try:
        for name in ("account", "tmp", "project", "bin"):
            (folder / name).mkdir()
        (folder / "project" / "README").write_text("Nothing to see here.\n")
        (folder / "bin" / harness).symlink_to(Path(program).resolve())
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# --------------------
# Ask a program for its version, in a temporary home directory, without leaving anything.
#
# Harnesses create folders, caches and logs in their home, even when they only print their version; and some
# start processes for it. Neither remains: the home is deleted, and the processes are ended. Only a program
# that fails there, such as the shim of a version manager, is asked once more in the user's home.

_VERSION: Final = re.compile(r"\d+\.\d+\.\d+[\w.+-]*")
_LIMIT_BYTES: Final = 64 * 1024
_QUIET: Final = {"DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
_FOLDERS: Final = {
    "HOME": "home",
    "TMPDIR": "tmp",
    "XDG_CONFIG_HOME": "home/.config",
    "XDG_DATA_HOME": "home/.local/share",
    "XDG_STATE_HOME": "home/.local/state",
    "XDG_CACHE_HOME": "home/.cache",
    "CLAUDE_CONFIG_DIR": "home/.claude",
    "CODEX_HOME": "home/.codex",
    "GEMINI_CLI_HOME": "home",
}


Running = subprocess.Popen[bytes]


class NoVersionError(Exception):
    """A program did not print its version; the text says why."""


class _StatusError(NoVersionError):
    """It ran, and failed."""


def ask_version(
    program: str, environment: Mapping[str, str], limit_s: float, started: list[Running] | None = None
) -> str:
    """Return the version that a program prints; empty if it prints none. Raises NoVersionError and OSError.

    The running process is added to `started`: a person's Ctrl-C does not reach it, so the caller has to `end`
    it.
    """
    try:
        return _ask(program, environment, limit_s, started, _FOLDERS)
    except _StatusError:
        return _ask(program, environment, limit_s, started, {})


def _ask(
    program: str,
    environment: Mapping[str, str],
    limit_s: float,
    started: list[Running] | None,
    folders: Mapping[str, str],
) -> str:
    with tempfile.TemporaryDirectory(prefix="pal-doctor-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        own = {variable: folder / below for variable, below in folders.items()}
        for one in own.values():
            one.mkdir(parents=True, exist_ok=True)
        output = folder / "said"
        # Output goes to a file: a process that it leaves running would keep a pipe open.
        with output.open("wb") as out:
            running = subprocess.Popen(
                [str(Path(program).absolute()), "--version"],
                env={**environment, **_QUIET, **{variable: str(path) for variable, path in own.items()}},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.DEVNULL,
                # So that `end` reaches everything that the program starts.
                start_new_session=True,
            )
        if started is not None:
            started.append(running)
        try:
            status = running.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise NoVersionError(f"no reply within {limit_s:g} seconds") from None
        finally:
            # Also after it has ended: it may have started other processes.
            end(running)
            running.wait()
        if status:
            failure = _StatusError if status > 0 else NoVersionError  # a killed program is not asked again
            raise failure(f"'--version' ended with status {status}")
        with output.open(encoding="utf-8", errors="replace") as file:
            found = _VERSION.search(file.read(_LIMIT_BYTES))
        return found[0] if found else ""


def end(running: Running) -> None:
    """End a program with all processes that it has started."""
    with suppress(OSError):  # nothing is left of it
        os.killpg(running.pid, signal.SIGKILL)


# --------------------
# Look at each harness, print the findings, and run the self-test if it was requested.

_VERSION_LIMIT_S: Final = 30.0
# The status of a shell for a command that Ctrl-C has ended: 128 and the number of SIGINT.
_INTERRUPTED: Final = 130
PROVEN_FILE: Final = "proven.json"


class DoctorOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon's own checks, and the options of the command."""

    checks: list[dict[str, object]]
    is_json: bool = False
    harnesses: tuple[str, ...] = ()
    is_self_test: bool = False


def proven() -> tuple[Tried, ...]:
    """Return the self-tests that were recorded for this version."""
    content = (files("palaver.app") / PROVEN_FILE).read_bytes()
    return msgspec.json.decode(content, type=tuple[Tried, ...])


def doctor(order: DoctorOrder, environment: Mapping[str, str]) -> int:
    """Print the findings; the status is 1 if something needs attention."""
    is_well = all(check["ok"] for check in order.checks)
    wanted = order.harnesses or PROGRAMS
    programs = {name: path for name in wanted if (path := shutil.which(name, path=environment.get("PATH")))}
    missing = [name for name in order.harnesses if name not in programs]
    found = _looked_at(programs, environment)
    if order.is_self_test:
        found = [_tried(one, environment, is_loud=not order.is_json) for one in found]
    is_well = is_well and not missing and all(one.tried is None or one.tried.is_well for one in found)
    known = proven()
    if order.is_json:
        views = [{"kind": "check", **check} for check in order.checks]
        for one in found:
            is_ok = one.tried is None or one.tried.is_well
            views.append({"kind": "harness", "ok": is_ok, **found_view(one, known)})
        for name in missing:
            view = {"kind": "harness", "ok": False, "harness": name, "path": None, "version": None}
            views.append(view | {"advice": "install it, or add its folder to PATH"})
        sys.stdout.writelines(f"{json.dumps(view, ensure_ascii=False)}\n" for view in views)
        return 0 if is_well else 1
    paint = paint_for(environment, is_terminal=sys.stdout.isatty(), harness=harness_of(environment))
    for ok, line in _lines(found, missing, known):
        mark = paint.green("ok  ") if ok else paint.red("look")
        sys.stdout.write(f"{mark} {paint.safe(line, keep_lines=True)}\n")
    return 0 if is_well else 1


def _lines(found: Sequence[Found], missing: Sequence[str], known: Sequence[Tried]) -> list[tuple[bool, str]]:
    lines = [line for one in found for line in found_lines(one, known)]
    lines += [(False, f"{name} is not on your PATH") for name in missing]
    if not found and not missing:
        lines.append((True, f"no harness on your PATH ({', '.join(PROGRAMS)})"))
    return lines


def _looked_at(programs: Mapping[str, str], environment: Mapping[str, str]) -> list[Found]:
    """Ask all harnesses at the same time; an interrupt ends all of them."""
    started: list[Running] = []
    with ThreadPoolExecutor(max_workers=len(PROGRAMS)) as pool:
        try:
            return list(pool.map(lambda one: look_at(one, programs[one], environment, started), programs))
        except KeyboardInterrupt:
            for one in started:
                # The pool waits for its threads, and each thread for its program, up to the time limit.
                if one.returncode is None:
                    end(one)
            raise


def look_at(
    harness: str,
    path: str,
    environment: Mapping[str, str],
    started: list[Running] | None = None,
    *,
    limit_s: float = _VERSION_LIMIT_S,
) -> Found:
    """Ask a harness for its version; without a version it still counts as installed."""
    try:
        version = ask_version(path, environment, limit_s, started)
        return Found(harness=harness, path=path, version=version)
    except OSError as error:
        return Found(harness=harness, path=path, version="", trouble=f"{error.strerror}")
    except NoVersionError as error:
        return Found(harness=harness, path=path, version="", trouble=str(error))


def _tried(found: Found, environment: Mapping[str, str], *, is_loud: bool) -> Found:
    if is_loud and sys.stderr.isatty():
        sys.stderr.write(f"testing {found.harness} {found.version} ...\n")
    today = datetime.now(UTC).date().isoformat()
    tried = try_out(found.harness, found.path, found.version, environment, today)
    return msgspec.structs.replace(found, tried=tried)


def doctor_without_bus(
    home: Path, *, is_home_named: bool, harnesses: Sequence[str], is_self_test: bool, is_json: bool
) -> int:
    """Check the harnesses while the bus is stopped, and say so.

    `is_home_named`: the user gave the home with --home. The status is 1, because the log was not checked.
    """
    what = f"the bus is not running (home {home}); its log was not checked"
    up = f"pal up --home {shlex.quote(str(home))}" if is_home_named else "pal up"
    advice = f"'{up}' starts it" if home.exists() else f"the home does not exist; '{up}' creates it"
    order = DoctorOrder(
        checks=[{"ok": False, "check": what, "advice": advice}],
        is_json=is_json,
        harnesses=tuple(harnesses),
        is_self_test=is_self_test,
    )
    if not is_json:
        paint = paint_for(os.environ, is_terminal=sys.stdout.isatty(), harness=harness_of(os.environ))
        sys.stdout.write(f"{paint.red('look')} {paint.safe(what)}\n     {advice}\n")
    try:
        return doctor(order, os.environ)
    except KeyboardInterrupt:
        return _INTERRUPTED


def main(words: Sequence[str]) -> int:
    """Run the daemon's order to this process."""
    try:
        return doctor(msgspec.json.decode(words[0], type=DoctorOrder), os.environ)
    except KeyboardInterrupt:
        return _INTERRUPTED
