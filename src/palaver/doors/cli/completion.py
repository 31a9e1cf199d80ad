"""Complete a command line: `pal completion`, the candidates at the cursor, and the scripts that request them.

The scripts call `pal __complete -- WORD...`. Such a call must never start the bus. On any error the scripts
offer nothing and print nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from palaver.config import KEYS
from palaver.doors.cli.call import Call
from palaver.doors.cli.events import asked_for, subscriptions_of
from palaver.doors.cli.paths import sessions_of, subscriptions_of_all
from palaver.doors.cli.spec import (
    GLOBAL_EXCLUSIVE,
    Command,
    Completes,
    Option,
    Positional,
    Table,
    Trace,
    is_option,
    trace,
)
from palaver.errors import UsageError
from palaver.harness.programs import GENERIC
from palaver.harness.registry import PROFILES
from palaver.protocol.agents import HARNESS_WORDS
from palaver.protocol.display import safe_for_agent
from palaver.protocol.events import MessageSent
from palaver.protocol.message import short_id
from palaver.protocol.query import Query
from palaver.protocol.subscriptions import format_watch_id
from palaver.state.references import read_newest_bundles, read_tasks
from palaver.state.rooms import read_notes, read_open_rooms, read_rooms_of

# --------------------
# Rows of the commands.

SHELLS: Final = ("bash", "zsh", "fish")

COMPLETION_COMMANDS: Final = (
    Command(
        path=("completion",),
        group="Help",
        summary="Print a completion script for your shell.",
        description=(
            "It completes commands, options, agents, tags (@api-), harnesses, threads, message numbers, "
            "patterns of paths, webhooks, and the ids of notes, tasks, bundles, tokens, sessions and "
            "subscriptions. While the bus is not running it offers no names, and it never starts the bus."
        ),
        positionals=(Positional(name="SHELL", help="Your shell.", choices=SHELLS),),
        examples=(
            ('eval "$(pal completion bash)"', "in ~/.bashrc"),
            ('eval "$(pal completion zsh)"', "in ~/.zshrc, after compinit"),
            ("pal completion fish | source", "in ~/.config/fish/config.fish"),
        ),
    ),
    Command(
        path=("__complete",),
        summary="Print completion candidates, one per line.",
        rest="WORD...",
        is_hidden=True,
    ),
)

# --------------------
# Functions of the commands.

_OFFERED: Final = 20
"""How many notes or tasks completion offers, newest first."""


async def completion(call: Call) -> int:
    """Print the completion script of a shell."""
    await call.say(completion_script(call.parsed.positionals[0]))
    return 0


async def complete_words(call: Call) -> int:
    """Print the candidates for a completion script, one per line."""
    words = call.parsed.after if call.parsed.after is not None else call.parsed.positionals
    rows = call.services.queries.rows
    # Only the newest: the user's prompt waits for this read at every press of Tab.
    recent = await call.services.queries.read(Query(types=("message",), last=100))

    def candidates(kind: str) -> list[str]:
        if kind == "agents":
            return sorted(agent.name for agent in call.services.broker.directory.all() if not agent.left)
        if kind == "all agents":
            return sorted(agent.name for agent in call.services.broker.directory.all())
        if kind == "tags":
            here = (agent for agent in call.services.broker.directory.all() if not agent.left)
            return sorted({agent.tag for agent in here if agent.tag})
        if kind == "harnesses":
            return sorted(PROFILES.keys() - {GENERIC.name})
        if kind == "launchable":
            return list(HARNESS_WORDS)
        if kind == "threads":
            bodies = (event.body for event in recent)
            return sorted({body.thread for body in bodies if isinstance(body, MessageSent) and body.thread})
        if kind == "ids":
            return [str(event.seq) for event in reversed(recent)][:20]
        if kind == "rooms":
            return [f"{room.id}\t{room.path}" for room in read_open_rooms(rows)]
        if kind == "notes":
            rooms = read_rooms_of(rows, call.caller.name)
            notes = [note for room in rooms for note in read_notes(rows, room.id, limit=_OFFERED)]
            return [f"{short_id(note.id)}\t{note.text}" for note in notes]
        if kind == "bundles":
            return [f"{id_}\t{row.title}" for id_, row in reversed(read_newest_bundles(rows, _OFFERED))]
        if kind == "tokens":
            tokens = call.services.callers.tokens.all()
            return [
                f"{token.id}\t{token.name or ' '.join(token.acts_for)}, {token.standing}" for token in tokens
            ]
        if kind == "registered":
            # A token that acts for several agents has no name.
            return sorted({one.name for one in call.services.callers.tokens.all() if one.name})
        if kind == "webhooks":
            return [f"{one.service}\t{one.scheme}" for one in call.services.callers.webhooks.all()]
        if kind == "subscriptions":
            made, watches = subscriptions_of(rows, call.caller.name)
            asked = [
                f"{format_watch_id(one.agent, one.request)}\trequest #{one.request} to {one.agent}"
                for one in watches
            ]
            return [*(f"{one.id}\t{asked_for(one)}" for one in made), *asked]
        if kind == "sessions":
            return [f"{one.id}\t{one.title}" for one in sessions_of(call, _agent_of(call, words))]
        if kind == "path subscriptions":
            owner = _agent_of(call, words)
            found = subscriptions_of_all(call, owner)
            return [f"{one.pattern}\t{session and f'session {session}'}" for session, one in found]
        if kind == "tasks":
            return [f"{task.seq}\t{task.title}" for task in read_tasks(rows, is_open=True, limit=_OFFERED)]
        if kind == "permissions":
            return [f"{one.id}\t{one.agent}: {one.text}" for one in call.services.agents.permissions.all()]
        if kind == "settings":
            return list(KEYS)
        return []

    await call.say_lines(complete(call.table, words, candidates))
    return 0


def _agent_of(call: Call, words: Sequence[str]) -> str:
    """Return the agent whose sessions are meant: of the arguments, of --as, or the caller."""
    # The last word is the one at the cursor, and may be incomplete.
    written = trace(call.table, words[:-1]).positionals[:1]
    # `trace` keeps the names of the options and not their values.
    for before, word in pairwise(words):
        written = (word,) if before == "--as" else written
    agent = call.services.broker.directory.find(written[0]) if written else None
    return call.caller.name if agent is None else agent.name


# --------------------
# The candidates at the cursor. Pure.

Candidates = Callable[[str], Sequence[str]]
"""Returns the values of a kind (agents, tags, ids …), each optionally with a tab and a description."""

FILES: Final = ":files"
"""Instead of candidates: the shell completes file names. The bus reads no directory for a client."""
DIRECTORIES: Final = ":directories"

_GROUPS: Final = (
    "@all\teverybody",
    "@human\tthe person",
    "@workers\tall workers",
    "@operators\tall operators",
    "@orchestrators\tall orchestrators",
    "@observers\tall observers",
)
_HARMLESS: Final = frozenset("-_./:@+,")
_DESCRIPTION: Final = 60
"""Characters of a description: a candidate should stay on one line."""


def complete(table: Table, words: Sequence[str], candidates: Candidates) -> list[str]:
    """Return the candidates for the last word, each as `word` or `word<tab>description`.

    `words` are the words after `pal` up to the cursor; the last may be empty. The result is only FILES or
    DIRECTORIES if the shell must complete a path. A word that a shell would not read back unchanged is left
    out, so that no name or thread can put a command on the user's command line.
    """
    if not words:
        return []
    *before, word = words
    seen = trace(table, before)
    if seen.is_after and seen.entry.command.rest is not None:
        return []  # A free text, or the arguments of another program.
    if seen.pending is not None and not is_option(word):
        found = _values(table, seen.pending, word, seen, candidates)
    elif word.startswith("-") and not seen.is_after:
        name, equals, value = word.partition("=")
        option = seen.entry.options.get(name)
        if not equals:
            found = _options(seen)
        elif option is None or option.metavar is None:
            return []
        else:
            found = _values(table, option, value, seen, candidates)
            # The shell completes a path itself, and its script puts the name of the option before it.
            if found not in ([FILES], [DIRECTORIES]):
                found = [f"{name}={one}" for one in found]
    else:
        found = _words(table, seen, word, candidates)
    if found in ([FILES], [DIRECTORIES]):
        return found
    return list(dict.fromkeys(_presentable(found, word)))


def _words(table: Table, seen: Trace, word: str, candidates: Candidates) -> list[str]:
    """Return the candidates for a plain word: the next word of the command, or its next argument."""
    found = []
    if not seen.positionals and not seen.is_after:
        found = [_described(one.path[-1], one.summary) for one in table.children_of(seen.entry)]
    positional = _next_positional(seen)
    if positional is not None:
        found += _values(table, positional, word, seen, candidates)
    if not found and not word and not seen.is_after and seen.entry.command.rest is None:
        return _options(seen)
    return found


def _next_positional(seen: Trace) -> Positional | None:
    positionals = seen.entry.command.positionals
    index = len(seen.positionals)
    if index < len(positionals):
        return positionals[index]
    return positionals[-1] if positionals and positionals[-1].many else None


def _values(
    table: Table, one: Option | Positional, word: str, seen: Trace, candidates: Candidates
) -> list[str]:
    if one.choices:
        return list(one.choices)
    kind: Completes | None = one.completes
    match kind:
        case None:
            return []
        case "files":
            return [FILES]
        case "directories":
            return [DIRECTORIES]
        case "commands":
            return _topics(table, seen.positionals)
        case "agents" | "all agents":
            names = candidates(kind)
            return [f"@{name}" for name in names] if word.startswith("@") else list(names)
        case "targets":
            tags = [_described(f"{tag}-", f"all agents with the tag {tag}") for tag in candidates("tags")]
            names = [*candidates("agents"), *tags]
            if word and not word.startswith("@"):
                return names
            return [*(f"@{name}" for name in names), *_GROUPS]
        case _:
            return list(candidates(kind))


def _topics(table: Table, path: Sequence[str]) -> list[str]:
    entry = table.find(path)
    if entry is None:
        return []
    return [_described(one.path[-1], one.summary) for one in table.children_of(entry)]


def _options(seen: Trace) -> list[str]:
    """Return the options that may still be given: no flag twice, and no option that another one excludes."""
    taken = set(seen.given)
    for names in (GLOBAL_EXCLUSIVE, *seen.entry.command.exclusive):
        if seen.given.intersection(names):
            taken.update(names)
    own = [*seen.entry.command.options, *seen.entry.options.values()]
    return [_described(one.name, one.help) for one in own if one.many or one.name not in taken]


def _described(word: str, text: str) -> str:
    return f"{word}\t{text.rstrip('.')}"


def _presentable(found: Sequence[str], prefix: str) -> Iterator[str]:
    for one in found:
        word, _, description = one.partition("\t")
        if not word.startswith(prefix) or not _is_harmless(word):
            continue
        # Agents write these texts, which could control the terminal of the user who presses Tab.
        description = safe_for_agent(description)
        if len(description) > _DESCRIPTION:
            description = description[: _DESCRIPTION - 1] + "…"
        yield f"{word}\t{description}" if description else word


def _is_harmless(word: str) -> bool:
    """Return whether a shell reads the word unchanged without quotes.

    Agents choose names, tags and threads. A list of allowed characters is safe for every shell, while a list
    of special ones would have to be complete for each of them.
    """
    if word.startswith("--"):
        word = word.replace("=", "", 1)
    return word != "" and all(char.isalnum() or char in _HARMLESS for char in word)


# --------------------
# The scripts for shells.


def completion_script(shell: str) -> str:
    """Return the script for a shell. Raises UsageError for an unknown shell."""
    script = _SCRIPTS.get(shell)
    if script is None:
        raise UsageError(f"no completion for {shell!r}; supported shells: {', '.join(_SCRIPTS)}")
    return script


# Readline breaks words at characters that are part of our words. The script joins the pieces, and removes the
# part before the last = or : from the candidates, because readline keeps that part (but not a leading @).
# In all three scripts, `command` skips an alias or function named pal. Standard input is empty, because the
# call must not read keys that the user types.
_BASH: Final = r"""# bash completion for pal; in ~/.bashrc: eval "$(pal completion bash)"
_pal_complete() {
    local rest="${COMP_LINE:0:COMP_POINT}" current="" piece trimmed line i
    local -a words
    words=()
    COMPREPLY=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        piece="${COMP_WORDS[i]}"
        trimmed="${rest#"${rest%%[![:space:]]*}"}"
        if ((i > 1)) && [[ "$trimmed" != "$rest" ]]; then
            words+=("$current")
            current=""
        fi
        ((i > 0)) && current+="${trimmed:0:${#piece}}"
        rest="${trimmed:${#piece}}"
    done
    words+=("$current")
    local apart="" breaks=""
    [[ "$COMP_WORDBREAKS" == *=* ]] && breaks+="="
    [[ "$COMP_WORDBREAKS" == *:* ]] && breaks+=":"
    [[ -n "$breaks" ]] && apart="${current%"${current##*[$breaks]}"}"
    while IFS= read -r line; do
        case "$line" in
            :files | :directories)
                compopt -o filenames 2>/dev/null
                local kind=-f
                [[ "$line" == :directories ]] && kind=-d
                while IFS= read -r line; do
                    COMPREPLY+=("$line")
                done < <(compgen "$kind" -- "${current#"$apart"}")
                return 0
                ;;
            *)
                line="${line%%$'\t'*}"
                COMPREPLY+=("${line#"$apart"}")
                ;;
        esac
    done < <(command pal __complete -- "${words[@]}" 2>/dev/null </dev/null)
    return 0
}
complete -F _pal_complete pal
"""

# The same text works in two ways: evaluated in ~/.zshrc, and as a file `_pal` in $fpath, which zsh runs as
# the function `_pal` itself. Therefore its end checks how it was called.
_ZSH: Final = r"""#compdef pal
# zsh completion for pal; in ~/.zshrc, after compinit: eval "$(pal completion zsh)"
_pal_complete() {
    local line word answer
    local -a plain shown
    answer="$(command pal __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null </dev/null)"
    for line in "${(@f)answer}"; do
        case "$line" in
            '') ;;
            :files)
                compset -P '--[^=]##='
                _files
                return
                ;;
            :directories)
                compset -P '--[^=]##='
                _files -/
                return
                ;;
            *)
                word="${line%%$'\t'*}"
                plain+=("$word")
                if [[ "$line" == *$'\t'* ]]; then
                    shown+=("$word  -- ${line#*$'\t'}")
                else
                    shown+=("$word")
                fi
                ;;
        esac
    done
    (( ${#plain} )) || return 1
    compadd -l -d shown -a plain
}
if [[ "$funcstack[1]" == _pal ]]; then
    _pal_complete
elif (( $+functions[compdef] )); then
    compdef _pal_complete pal
fi
"""

_FISH: Final = r"""# fish completion for pal; in ~/.config/fish/config.fish: pal completion fish | source
function __pal_complete
    set -l words (commandline -opc)
    set -e words[1]
    set -l current (commandline -ct)
    set -l lines (command pal __complete -- $words "$current" 2>/dev/null </dev/null)
    switch "$lines[1]"
        case :files :directories
            set -l option (string match -r -- '^--[^=]+=' "$current")
            set -l start (string replace -r -- '^--[^=]+=' '' "$current")
            set -l found (__fish_complete_path "$start")
            test "$lines[1]" = :directories; and set found (__fish_complete_directories "$start" '')
            for line in $found
                printf '%s%s\n' "$option" $line
            end
        case '*'
            for line in $lines
                printf '%s\n' $line
            end
    end
end
complete -c pal -f -a '(__pal_complete)'
"""

_SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
