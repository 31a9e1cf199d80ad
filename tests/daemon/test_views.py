"""Views of a person and of an agent, and the ledger as a view and as `pal receipts` show it."""

import asyncio
import random
import shlex
import sys
from collections.abc import Collection, Iterator

from tests.daemon.stage import Home, JsonLine, run_script_as_person
from tests.doors.web.client import PageClient, bus_with_page
from tests.limits import LIMIT_S

import palaver
from palaver.app.ui.messages import Look, ledger_lines
from palaver.client.view_link import ViewLink
from palaver.errors import PalaverError
from palaver.protocol.views import AskLedger, LedgerPage

MESSAGES = 500
AT_ONCE = 20
LOOK = Look(me="nobody", is_ascii=True, clock=str)

_READ_AS_PERSON = """
import asyncio, sys
from palaver.client.view_link import ViewLink

async def main():
    link = ViewLink(sys.argv[1])
    records = link.records()
    snapshot = await anext(records)
    print(snapshot.me, snapshot.counts.unread)
    await link.acknowledge(event.seq for event in snapshot.events if event.type == "message")
    async for change in records:
        if change.counts is not None and change.talks:
            print(change.counts.unread, change.talks[0].unread, len(change.moved))
            break
    await link.close()

asyncio.run(main())
"""


def read_as_person(home: Home) -> str:
    """Open a view as a person, and acknowledge every message in it; return what it printed."""
    words = (sys.executable, "-c", _READ_AS_PERSON, str(home.path))
    read = run_script_as_person(home, shlex.join(words))
    assert (read.status, read.err) == (0, "")
    return read.out


async def test_person_reads_messages_in_a_view(bus: Home) -> None:
    async with palaver.connect("luna", home=bus.path) as luna:
        sent = await luna.send("@human", "hello")

        shown = await asyncio.to_thread(read_as_person, bus)
        (receipt,) = await luna.receipts(sent.seq)

    assert shown.splitlines() == ["human 1", "0 0 1"]
    assert (receipt.state, receipt.lane) == ("seen", "ui")


async def test_agent_may_open_a_view_and_is_not_the_person(bus: Home) -> None:
    link = ViewLink(str(bus.path))
    records = link.records()

    snapshot = await anext(records)
    await link.close()

    assert getattr(snapshot, "me", "") == "script"


async def test_ledgers_of_both_views_equal_the_receipts_of_the_command() -> None:
    with bus_with_page(brake_per_minute=150) as home:
        chance = random.Random(16)
        seqs = await send_some(home, chance)
        link, page = ViewLink(str(home.path)), PageClient(home)
        await asyncio.to_thread(page.sign_in)

        for begin in range(0, len(seqs), AT_ONCE):
            some = seqs[begin : begin + AT_ONCE]
            await asyncio.gather(*(_compare(home, link, page, seq) for seq in some))
        await link.close()

    assert len(seqs) >= MESSAGES


async def send_some(home: Home, chance: random.Random) -> list[int]:
    """Send random messages, answer and acknowledge some, and leave others open. Return their seqs."""
    seqs: list[int] = []
    async with (
        palaver.connect("luna", home=home.path) as luna,
        palaver.connect("nova", home=home.path) as nova,
        palaver.connect("mira", home=home.path) as mira,
    ):
        agents = [luna, nova, mira]
        await luna.subscribe("build/**")
        await nova.subscribe("build/*", session="watch")
        while len(seqs) < MESSAGES:
            writer = chance.choice(agents)
            to = chance.choice(["@human", "@luna", "@nova", "@mira", "@all", "build/done", "nowhere/at/all"])
            answered = chance.choice(seqs) if seqs and chance.random() < 0.3 else ""
            try:
                sent = await writer.send(
                    to,
                    chance.choice(["short", "two\nlines", "wide 中文 \u202e", "x" * 5000]),
                    intent=chance.choice(["", "request", "inform", "ack"]),
                    reply_to=answered,
                    priority=chance.choice(["", "idle", "interrupt", "idle-first"]),
                    expires_ms=chance.choice([0, 0, 1, 3_600_000]),
                )
            except PalaverError:  # Such as a reply to oneself.
                continue
            seqs.append(sent.seq)
            if chance.random() < 0.1:
                await chance.choice(agents).receive(limit=5)
    return seqs


async def _compare(home: Home, link: ViewLink, page: PageClient, seq: int) -> None:
    """Compare until both were made within the same second: a reason can contain a duration."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            before = await link.ask(AskLedger(message=str(seq)), LedgerPage)
            printed = await asyncio.to_thread(home.ok, "receipts", str(seq), "--json")
            on_page = await asyncio.to_thread(page.ask, what="ledger", message=str(seq))
            after = await link.ask(AskLedger(message=str(seq)), LedgerPage)
            if bytes(before.receipts) == bytes(after.receipts):
                break
    assert bytes(after.receipts).decode() + "\n" == printed.out
    assert on_page["receipts"] == printed.json
    assert _drawn(after) == list(_expected(printed.json, {step.reason for step in after.steps}))


def _drawn(page: LedgerPage) -> list[str]:
    """Return the lines of the ledger in the dashboard, without the message and the steps."""
    lines = [line.plain for line in ledger_lines(page, LOOK, lambda ms: "STEP", 10_000)]
    begin = next(at for at, line in enumerate(lines) if line.startswith("STEP  stored by "))
    return [line for line in lines[begin + 1 :] if line and not line.startswith("  STEP")]


def _expected(printed: JsonLine, in_steps: Collection[str]) -> Iterator[str]:
    """Yield the line of each recipient, and why it waits or has ended, unless a step says that."""
    for receipt in printed["receipts"]:
        session = f" (session {receipt['session']})" if "session" in receipt else ""
        yield f"{receipt['name']}{session}  {LOOK.mark(receipt['state'])}"
        if wait := receipt.get("wait"):
            yield f"  Why: {wait['text']} [{wait['code']}]"
            yield f"  Next: {wait['moves']}"
        elif receipt.get("reason", "") not in in_steps:
            yield f"  Why: {receipt['reason']}"
