"""Read the output of Codex 0.166: its screen in a terminal, and its transcript. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from palaver.harness.base import USAGE_LIMITS, Interrupt, KeyPress, Profile, TitleRule, View
from palaver.harness.transcripts import (
    ASSISTANT,
    SYSTEM,
    USER,
    Gathering,
    TranscriptFolder,
    items,
    joined,
    mapping,
    read_object,
    texts_in,
    time_ms,
    word,
)
from palaver.protocol.events import AgentState
from palaver.protocol.transcript import ToolCall, TranscriptEntry

# --------------------
# The screen, as version 0.166 draws it, and the profile for its terminal.
#
# The composer begins with a bright `›`; sent prompts follow a faint one. A dialog replaces the composer.
# Codex always reports its state by OSC 7501 and by its title. Enter while it is busy cancels the running
# model request; Tab queues the text after it.

HOOKS_NEED_REVIEW: Final = "hooks need review"
_CHOICE: Final = re.compile(r"› \d+\. ")
_REVIEW: Final = re.compile(r" *Hooks need review")
_REVIEW_KEYS: Final = re.compile(r" *enter confirm · esc \w+")


def read_composer(view: View) -> str | None:
    """Return the text from the last bright prompt to the blank row before the status."""
    first = view.row
    while first >= 0 and not view.bright[first].startswith("›"):
        first -= 1
    # The same sign marks the selected choice of a dialog.
    if first < 0 or _CHOICE.match(view.lines[first]):
        return None
    rows = [view.bright[first][2:]]
    for row in range(first + 1, len(view.lines)):
        line = view.lines[row]
        # The rows of the composer are indented. Other text below means that the sign is in the
        # conversation.
        if line and not line.startswith("  "):
            return None
        if not line and row > view.row:
            break
        rows.append(view.bright[row][2:])
    return "\n".join(rows)


def read_dialog(view: View) -> str | None:
    """Recognize the dialog at the start of Codex about new hooks; its keys are on the last line.

    Both must be visible, so that a conversation about this dialog does not count as one.
    """
    shown = [line for line in view.lines if line.strip()]
    is_asking = bool(shown) and _REVIEW_KEYS.fullmatch(shown[-1]) is not None
    return HOOKS_NEED_REVIEW if is_asking and any(_REVIEW.fullmatch(line) for line in shown) else None


PROFILE: Final = Profile(
    name="codex",
    read_composer=read_composer,
    read_dialog=read_dialog,
    dialogs=(re.compile(r"^ *Press enter to (?:confirm|continue|submit|select)\b.*\Z", re.MULTILINE),),
    busy=(re.compile(r"^\W*\w[^\n]*\(\d[\dhms ]*s? • esc to interrupt\)", re.MULTILINE),),
    compacting=(re.compile(r"^[•◦] Compacting\b", re.MULTILINE),),
    usage_limits=USAGE_LIMITS,
    titles=(
        TitleRule(
            pattern=re.compile(r"^\[ ?[!.] ?\] Action Required"),
            state=AgentState.BLOCKED,
            reason="permission",
        ),
        TitleRule(pattern=re.compile("^[\u2800-\u28ff] "), state=AgentState.ACTIVE),
        # Any other title is only the name of the folder, which Codex shows while it is idle.
        TitleRule(pattern=re.compile(r"^\S"), state=AgentState.IDLE),
    ),
    has_paste=True,
    folded_paste=re.compile(r"\[Pasted Content \d+ chars\]"),
    queue_key=b"\t",
    interrupt=Interrupt(keys=b"\x1b"),
    quit=(KeyPress(keys=b"\x03", wait_ms=300), KeyPress(keys=b"\x03", wait_ms=5_000)),
)


# --------------------
# The transcript: JSON lines, one `rollout` file per thread.
#
# The items of the conversation are read; the events between them repeat the same content. The setup that
# Codex sends to the model (instructions, skills, the environment) is not part of the conversation.

_SETUP: Final = re.compile(
    r"\s*(?:<(?:environment_context|user_instructions|user_shell_command|permissions instructions|"
    r"collaboration_mode|apps_instructions|plugins_instructions|skills_instructions|INSTRUCTIONS|"
    r"personality_spec|model_switch)\b|# AGENTS\.md instructions)"
)
"""How a text begins that Codex itself adds at the start of a thread or of a turn."""

_HOOK_PROMPT: Final = re.compile(r"\s*<hook_prompt\b[^>]*>(.*?)(?:</hook_prompt>)?\s*", re.DOTALL)
_HEAD: Final = re.compile(
    r"(?:(?:Chunk ID|Wall time|Original token count|Total output lines): .*\n"
    r"|(?:Process exited with code|Exit code:) (?P<status>-?[0-9]+)\n){1,6}Output:\n"
)
"""The header that Codex writes for the model before the output of a command."""


class CodexTranscript:
    """Reads the lines of one thread."""

    def entries(self, lines: Iterable[bytes]) -> Iterator[TranscriptEntry]:
        thread = _Thread()
        for line in lines:
            if (whole := read_object(line)) is not None:
                yield from thread.read(whole)
        yield from thread.rest()


class _Thread:
    """The state of reading one thread.

    Items carry no turn id: tool results and user messages start a new turn.
    """

    def __init__(self) -> None:
        self._gathering = Gathering()
        self._turn = 0

    def read(self, whole: Mapping[str, object]) -> Iterator[TranscriptEntry]:
        payload, ts = mapping(whole.get("payload")), time_ms(whole.get("timestamp"))
        kind = whole.get("type")
        if kind == "response_item":
            yield from self._read_item(payload, whole, ts)
        elif kind == "compacted":
            text = word(payload.get("message")) or "The conversation was compacted."
            yield from self._gathering.add_text(SYSTEM, text, whole, ts)
        elif kind == "event_msg" and payload.get("type") == "turn_aborted":
            reason = word(payload.get("reason")) or "interrupted"
            yield from self._gathering.add_text(SYSTEM, f"The turn was ended: {reason}.", whole, ts)

    def rest(self) -> Iterator[TranscriptEntry]:
        return self._gathering.rest()

    def _read_item(
        self, item: Mapping[str, object], whole: Mapping[str, object], ts: int
    ) -> Iterator[TranscriptEntry]:
        kind = word(item.get("type"))
        if kind == "message":
            yield from self._read_message(item, whole, ts)
        elif kind.endswith("_call_output"):
            self._turn += 1
            text, is_error = _read_output(item.get("output"))
            call_id = word(item.get("call_id"))
            yield from self._gathering.answered(call_id, text, is_error=is_error, whole=whole, ts=ts)
        elif kind.endswith("_call"):
            call_id = word(item.get("call_id")) or word(item.get("id"))
            yield from self._gathering.assistant(
                str(self._turn), "", [(call_id, _read_call(kind, item))], whole, ts
            )

    def _read_message(
        self, item: Mapping[str, object], whole: Mapping[str, object], ts: int
    ) -> Iterator[TranscriptEntry]:
        text = texts_in(item.get("content"))
        if not text:
            return
        if item.get("role") == ASSISTANT:
            yield from self._gathering.assistant(str(self._turn), text, (), whole, ts)
            return
        if _is_setup(item, text):
            return
        if hook := _HOOK_PROMPT.fullmatch(text):
            yield from self._gathering.add_text(SYSTEM, hook[1], whole, ts)
            return
        role = USER if item.get("role") == USER else SYSTEM
        yield from self._gathering.add_text(role, text, whole, ts)
        if role == USER:
            self._turn += 1


def _is_setup(item: Mapping[str, object], text: str) -> bool:
    kinds = items(mapping(item.get("internal_chat_message_metadata_passthrough")).get("content_item_kinds"))
    is_marked = any(word(kind).endswith((".instructions", ".environment_context")) for kind in kinds)
    return is_marked or _SETUP.match(text) is not None


def _read_call(kind: str, item: Mapping[str, object]) -> ToolCall:
    """Read a call. Calls of the shell, a search or an image have no name; their kind is used."""
    name = joined((word(item.get("namespace")), word(item.get("name")))).replace("\n", ".")
    given = item.get("arguments", item.get("input", item.get("action")))
    if kind == "function_call" and isinstance(given, str):
        # Arguments are JSON in a string; a string that is not a complete object is kept as it is.
        found = read_object(given.encode("utf-8", "replace"))
        given = given if found is None else found
    return ToolCall(name=name or kind.removesuffix("_call"), input=given)


def _read_output(output: object) -> tuple[str, bool]:
    if isinstance(output, dict):
        return texts_in(output.get("content")), output.get("success") is False
    text = texts_in(output)
    head = _HEAD.match(text)
    if head is None:
        return text, False
    return text[head.end() :], (head["status"] or "0") != "0"


def codex_folders(session: str, environment: Mapping[str, str]) -> tuple[TranscriptFolder, ...]:
    """Return where the transcript of a thread may be, most likely first."""
    home = environment.get("HOME", "")
    folders = (environment.get("CODEX_HOME", ""), f"{home}/.codex" if home else "")
    name = f"rollout-*-{session}.jsonl"
    return tuple(
        found
        for folder in folders
        if folder
        for found in (
            TranscriptFolder(f"{folder}/sessions", f"*/*/*/{name}"),
            TranscriptFolder(f"{folder}/archived_sessions", name),
        )
    )
