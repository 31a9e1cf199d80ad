"""The events of a notice, its form in a terminal and for a command, and the effect of a bad command."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.limits import LIMIT_S

from palaver.app.notices import (
    LIMIT_CHARACTERS,
    NoticeRules,
    Notices,
    PersonNotice,
    command_words,
    join_notices,
    terminal_signal,
)
from palaver.client.view_link import BusAway
from palaver.errors import Disconnected
from palaver.protocol.lines import NoticeReply
from palaver.protocol.views import AgentRow, Attention, Changes, Counts, Snapshot


def row(name: str, state: str, *, since: int = 0, seq: int = 1, **fields: object) -> AgentRow:
    return AgentRow(name=name, state=state, since=since, seq=seq, **fields)  # type: ignore[arg-type]  # its fields


def entry(key: str, kind: str, who: str = "nova", since: int = 0) -> Attention:
    return Attention(key=key, kind=kind, who=who, what="SECRET", since=since, why="it waits for you")


def snapshot(*agents: AgentRow, attention: tuple[Attention, ...] = ()) -> Snapshot:
    return Snapshot(
        epoch="e",
        seq=1,
        now=0,
        me="human",
        device="TEST",
        version="1",
        counts=Counts(agents={}),
        agents=agents,
        attention=attention,
    )


def changes(
    *agents: AgentRow, attention: tuple[Attention, ...] = (), settled: tuple[str, ...] = ()
) -> Changes:
    return Changes(after=1, seq=2, agents=agents, attention=attention, settled=settled)


def notice_texts(*records: Snapshot | Changes) -> list[str]:
    """Return the sentences of all notices of some records."""
    rules = NoticeRules()
    return [notice.sentence for record in records for notice in rules.take(record)]


# The events that cause a notice


def test_entries_of_the_first_snapshot_cause_no_notice() -> None:
    assert notice_texts(snapshot(row("nova", "idle"), attention=(entry("request/4", "request"),))) == []


@pytest.mark.parametrize(
    ("key", "kind", "sentence"),
    [
        ("request/4", "request", "nova asks you"),
        ("permission/a", "permission", "nova asks for permission"),
        ("agent/nova", "blocked", "nova is blocked"),
    ],
)
def test_new_entry_causes_one_notice(key: str, kind: str, sentence: str) -> None:
    new = changes(attention=(entry(key, kind),))

    assert notice_texts(snapshot(), new, new) == [sentence]


@pytest.mark.parametrize("kind", ["held", "unconfirmed", "dead", "stick", "stale"])
def test_other_kinds_of_entries_cause_no_notice(kind: str) -> None:
    assert notice_texts(snapshot(), changes(attention=(entry("x/1", kind),))) == []


def test_entry_that_came_while_the_bus_was_away_causes_a_notice() -> None:
    before, new = entry("request/4", "request"), entry("request/5", "request", who="luna")

    assert notice_texts(snapshot(attention=(before,)), snapshot(attention=(before, new))) == ["luna asks you"]


def test_agent_that_is_blocked_again_causes_another_notice() -> None:
    first, second = entry("agent/nova", "blocked", since=1), entry("agent/nova", "blocked", since=9)

    assert notice_texts(
        snapshot(),
        changes(attention=(first,)),
        changes(settled=("agent/nova",)),
        changes(attention=(second,)),
    ) == ["nova is blocked", "nova is blocked"]


def test_permission_request_and_its_blocked_agent_are_one_event() -> None:
    blocked, asked = entry("agent/nova", "blocked", since=5), entry("permission/a", "permission", since=4)
    together = changes(attention=(blocked, asked))
    answered = changes(attention=(blocked,), settled=("permission/a",))

    assert notice_texts(snapshot(), together, answered) == ["nova asks for permission"]
    assert notice_texts(snapshot(), changes(attention=(asked,)), answered) == ["nova asks for permission"]


def test_agent_blocked_long_after_its_request_causes_a_notice() -> None:
    asked = changes(attention=(entry("permission/a", "permission", since=4),))
    later = changes(attention=(entry("agent/nova", "blocked", since=60_000),), settled=("permission/a",))

    assert notice_texts(snapshot(), asked, later) == ["nova asks for permission", "nova is blocked"]


@pytest.mark.parametrize(
    ("before", "after", "sentences"),
    [
        ("active", "idle", ["nova has finished"]),
        ("blocked", "idle", ["nova has finished"]),
        ("active", "exited", ["nova has exited"]),
        ("idle", "exited", ["nova has exited"]),
        ("starting", "idle", []),
        ("idle", "idle", []),
        ("idle", "active", []),
        ("exited", "exited", []),
        ("exited", "idle", []),
    ],
)
def test_end_of_work_causes_a_notice(before: str, after: str, sentences: list[str]) -> None:
    assert notice_texts(snapshot(row("nova", before)), changes(row("nova", after, seq=2))) == sentences


def test_agent_that_leaves_causes_one_notice() -> None:
    left = row("nova", "exited", seq=3, has_left=True)

    assert notice_texts(
        snapshot(row("nova", "idle")), changes(row("nova", "exited", seq=2)), changes(left)
    ) == ["nova has exited"]


def test_subagents_persons_and_unknown_agents_cause_no_notice() -> None:
    known = snapshot(row("nova_x_1", "active", parent="nova"), row("ann", "active", harness="human"))
    ended = changes(
        row("nova_x_1", "exited", seq=2, parent="nova"),
        row("ann", "exited", seq=2, harness="human"),
        row("new", "idle", seq=2),
    )

    assert notice_texts(known, ended) == []


def test_older_row_changes_nothing() -> None:
    assert notice_texts(snapshot(row("nova", "active", seq=5)), changes(row("nova", "idle", seq=4))) == []


# The form of a notice


def notice(sentence: str, *, reason: str = "", text: str = "") -> PersonNotice:
    return PersonNotice(
        key=sentence, who="nova", entries=frozenset(), sentence=sentence, reason=reason, text=text
    )


def test_line_has_the_reason_and_the_text_only_if_allowed() -> None:
    one = notice("nova asks you", reason="it expects a reply", text="SECRET")

    assert join_notices([one]) == "nova asks you: it expects a reply"
    assert join_notices([one], has_text=True) == "nova asks you: it expects a reply: SECRET"


def test_several_notices_are_one_line() -> None:
    many = [notice(f"a{number} has finished") for number in range(5)]

    assert join_notices(many[:2]) == "a0 has finished; a1 has finished"
    assert join_notices(many) == "a0 has finished; a1 has finished; a2 has finished; 2 more"
    assert join_notices(many[:1], unknown=2) == "a0 has finished; 2 more"


def test_line_is_short_and_has_no_control_characters() -> None:
    line = join_notices([notice("nova", reason="\x1b]0;x\x07\n\u202e" + "y" * 1_000)])

    assert len(line) == LIMIT_CHARACTERS
    assert line.isprintable()


@pytest.mark.parametrize(
    ("how", "signal"),
    [
        ("bell", "\a"),
        ("osc9", "\x1b]9;Palaver: a; b\a"),
        ("osc777", "\x1b]777;notify;Palaver;a, b\a"),
        ("off", ""),
    ],
)
def test_terminal_gets_the_sequence_of_the_setting(how: str, signal: str) -> None:
    assert terminal_signal(how, "a; b", {}) == signal


def test_tmux_gets_the_sequence_in_its_envelope() -> None:
    inside = {"TMUX": "/tmp/tmux-1000/default,1,0"}

    assert terminal_signal("osc9", "a", inside) == "\x1bPtmux;\x1b\x1b]9;Palaver: a\a\x1b\\"
    assert terminal_signal("bell", "a", inside) == "\a"


def test_words_of_the_command_are_never_split_again() -> None:
    line = "nova; $(rm -rf /) 'x"

    assert command_words(["send", "{title}", "--body={text}"], line) == ["send", "Palaver", f"--body={line}"]
    assert command_words(["say"], line) == ["say", line]


# Telling


class FakeLink:
    """A daemon that allows every notice, or whatever the test sets."""

    def __init__(self, **reply: object) -> None:
        self.asked: list[tuple[str, bool]] = []
        self.reply = reply
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.error: Exception | None = None

    async def notice(self, key: str, *, is_in_view: bool) -> NoticeReply:
        self.asked.append((key, is_in_view))
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return NoticeReply(**{"send": True, "keys": (key,), "notify": "bell", **self.reply})  # type: ignore[arg-type]  # its fields


class Stage:
    """Notices whose output the test reads."""

    def __init__(self, link: FakeLink, limit_s: float = LIMIT_S) -> None:
        self.link = link
        self.written = ""
        self.complaints: list[str] = []
        self.lines: asyncio.Queue[str] = asyncio.Queue()
        self.notices = Notices(
            link, self._write, self.complaints.append, {}, show=self.lines.put_nowait, command_limit_s=limit_s
        )
        self.notices.record(snapshot(row("nova", "active")))

    def _write(self, text: str) -> None:
        self.written += text

    def ask(self, number: int = 4, *in_view: str) -> None:
        """Let nova ask the person."""
        self.notices.record(changes(attention=(entry(f"request/{number}", "request"),)), in_view)

    async def line(self) -> str:
        async with asyncio.timeout(LIMIT_S):
            return await self.lines.get()

    async def quiet(self) -> None:
        """Wait until no notice is under way."""
        async with asyncio.timeout(LIMIT_S):
            await asyncio.gather(*self.notices._tasks)


@asynccontextmanager
async def stage(link: FakeLink, limit_s: float = LIMIT_S) -> AsyncIterator[Stage]:
    made = Stage(link, limit_s)
    yield made
    await made.notices.close()


async def test_allowed_notice_is_written_and_shown() -> None:
    async with stage(FakeLink()) as one:
        one.ask()

        assert await one.line() == "nova asks you: it waits for you"
        await one.quiet()
        assert one.written == "\a"
        assert one.link.asked == [("request/4@0", False)]


async def test_notice_has_a_text_only_if_the_daemon_allows_it() -> None:
    async with stage(FakeLink(has_text=True)) as one:
        one.ask()

        assert await one.line() == "nova asks you: it waits for you: SECRET"


async def test_refused_notice_writes_nothing() -> None:
    async with stage(FakeLink(send=False)) as one:
        one.ask()
        await one.quiet()

        assert one.written == ""


async def test_daemon_learns_which_entries_are_in_view() -> None:
    async with stage(FakeLink(send=False)) as one:
        one.ask(4, "request/4")
        one.ask(5, "agent/nova")
        one.notices.record(changes(row("nova", "idle", seq=3)), ["agent/nova"])
        await one.quiet()

        assert one.link.asked == [("request/4@0", True), ("request/5@0", False), ("idle/nova@0", True)]


async def test_notice_that_is_over_is_not_sent() -> None:
    link = FakeLink()
    link.may_answer.clear()
    async with stage(link) as one:
        one.ask(4)
        one.notices.record(changes(row("nova", "idle", since=7, seq=2)))
        one.notices.record(changes(row("nova", "active", since=8, seq=3), settled=("request/4",)))
        one.ask(5)
        link.may_answer.set()
        await one.quiet()

        assert one.lines.qsize() == 1
        assert one.written == "\a"


async def test_joined_notice_names_all_events() -> None:
    link = FakeLink(keys=("request/4@0", "request/5@0", "of another view"))
    async with stage(link) as one:
        link.may_answer.clear()
        one.ask(4)
        one.ask(5)
        await asyncio.sleep(0)
        link.may_answer.set()

        assert await one.line() == "nova asks you; nova asks you; 1 more"


async def test_lost_bus_causes_no_error() -> None:
    link = FakeLink()
    link.error = Disconnected("away")
    async with stage(link) as one:
        one.notices.record(BusAway(why="away"))
        one.ask()
        await one.quiet()

        assert (one.written, one.complaints) == ("", [])


# The command


async def test_command_gets_the_line_as_one_argument(tmp_path: Path) -> None:
    target = tmp_path / "out"
    script = "import sys; open(sys.argv[1], 'w').write('|'.join(sys.argv[2:]))"
    command = (sys.executable, "-c", script, str(target), "{title}", "<{text}>")
    async with stage(FakeLink(command=command)) as one:
        one.ask()
        await one.quiet()

        assert target.read_text() == "Palaver|<nova asks you: it waits for you>"
        assert one.complaints == []


@pytest.mark.parametrize(
    ("command", "limit_s", "words"),
    [
        (("/does/not/exist",), LIMIT_S, "cannot be started"),
        ((sys.executable, "-c", "raise SystemExit(7)"), LIMIT_S, "has failed with status 7"),
        ((sys.executable, "-c", "import time; time.sleep(3600)"), 0.2, "was ended after"),
        (("a\0b",), LIMIT_S, "cannot be started"),
    ],
)
async def test_bad_command_is_reported_once_and_stops_nothing(
    command: tuple[str, ...], limit_s: float, words: str
) -> None:
    async with stage(FakeLink(command=command), limit_s=limit_s) as one:
        one.ask(4)
        await one.quiet()
        one.ask(5)
        await one.quiet()

        assert one.written == "\a\a"
        assert len(one.complaints) == 1
        assert words in one.complaints[0]


async def test_command_that_hangs_does_not_delay_the_bell() -> None:
    hanging = (sys.executable, "-c", "import time; time.sleep(3600)")
    async with stage(FakeLink(command=hanging)) as one:
        one.ask(4)
        await one.line()
        one.ask(5)
        await one.line()

        assert one.written == "\a\a"


async def test_closing_ends_a_command_that_runs(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    script = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(3600)"
    async with stage(FakeLink(command=(sys.executable, "-c", script, str(begun)))) as one:
        one.ask()
        pid = int(await asyncio.to_thread(begun.read_text))

        await one.notices.close()

        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
