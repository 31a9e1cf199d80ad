"""The page in a real browser: all screens, by keyboard, without errors, and through restarts of the bus."""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect
from tests.daemon.stage import Home, Shell, check_output, run_as_person
from tests.daemon.test_permissions import ask, decision
from tests.doors.web.client import address_of, bus_with_page
from tests.doors.web.stage import (
    DESK,
    PHONE,
    SCREENS,
    PageStage,
    Watched,
    chromium,
    open_by_keyboard,
    problems,
    sign_in,
)
from tests.limits import LIMIT_S

EVIL = "<img src=x onerror=\"document.title='owned'\">"
MARK = "<img src=x onerror=alert(1)>"
"""The same without quotes, for a line of shell."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def stage(browser: Browser) -> Iterator[PageStage]:
    settings = {"approvals": 1, "approvals_wait_s": 3600, "web_approvals": 1, "brake_per_minute": 1}
    with bus_with_page(**settings) as home:
        made = PageStage(home, browser)
        room = home.path.parent / "project"
        room.mkdir()
        subprocess.run(["git", "init", "-q", str(room)], check=True)
        for name in ("luna", "nova"):
            made.agents[name].ok("room", "join", str(room))
        _plant(made.agents["luna"], room)
        made.agents["luna"].ok("send", "@nova", "--", f"{EVIL} zero\u200bwidth")
        made.agents["luna"].ok("send", "@human", "--intent", "request", "--", f"Which database? {EVIL}")
        yield made
        assert made.watched.errors == []
        made.context.close()


@pytest.fixture(autouse=True)
def _start_at_now(stage: PageStage) -> None:
    stage.page.set_viewport_size({"width": DESK[0], "height": DESK[1]})
    stage.page.emulate_media(color_scheme="light")
    stage.page.goto(address_of(stage.home) + "/#/now")
    expect(stage.page.get_by_text("bus up")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
def test_every_screen_is_accessible(stage: PageStage, scheme: Any, size: tuple[int, int]) -> None:
    page = stage.page
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": size[0], "height": size[1]})

    for screen in SCREENS:
        stage.open(screen)
        assert problems(page) == [], screen
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= size[0], screen
        row = page.locator("main .row").first
        if row.count() and screen != "Log":
            row.click()
            expect(page.locator(".detail h2").first).to_be_visible()
            assert problems(page) == [], f"{screen}, opened"
            page.keyboard.press("Escape")
            page.goto(address_of(stage.home) + "/#/now")


def test_only_now_is_read_aloud_and_notices_are_off(stage: PageStage) -> None:
    page = stage.page

    for screen in SCREENS:
        stage.open(screen)
        live = page.locator("[aria-live], [role=alert], [role=status], [role=log]")
        assert live.count() == (1 if screen == "Now" else 0), screen

    expect(page.get_by_role("button", name="Notices off")).to_have_attribute("aria-pressed", "false")


def _plant(luna: Shell, room: Path) -> None:
    """Put markup into everything else that an agent can write."""
    file = room / f"{EVIL.replace('/', '')}.txt"
    file.write_text(EVIL)
    job = luna.begin_script(f"cd {shlex.quote(str(room))}")
    assert job.end().status == 0
    luna.ok("note", "add", EVIL)
    luna.ok("task", "create", EVIL, "--description", EVIL, "--assignee", "nova")
    luna.ok("session", "create", "luna", "chat", "--title", EVIL)
    luna.ok("route", f"w/{EVIL}", "--command", EVIL, "--payload", json.dumps({EVIL: [EVIL]}))
    luna.ok("bundle", "create", EVIL, "--description", EVIL, "--files", file.name)
    luna.ok("stick", "claim")
    luna.ok(
        "stick", "pass", "nova", "--handoff", json.dumps({"status": EVIL, "next_action": EVIL, EVIL: EVIL})
    )
    luna.ok("status", "set", "active", "--detail", EVIL)


def test_foreign_text_is_text_everywhere(stage: PageStage) -> None:
    page = stage.page
    job = ask(stage.agents["kilo"], tool_name=f"Bash {MARK}", tool_input={MARK: MARK})
    page.get_by_role("option").filter(has_text="asks permission").first.click()
    expect(page.locator("pre")).to_contain_text("<img src=x")
    for link in ("agents/luna", f"rooms/{_room(stage.home)}", "talk/%40luna%40nova"):
        page.goto(f"{address_of(stage.home)}/#/{link}")
        expect(page.locator(".detail").get_by_text("<img src=x").first).to_be_visible()
        assert page.locator("img").count() == 0
    asked = stage.home.events("--type", "permission.asked")[-1]["payload"]["permission"]
    check_output(run_as_person(stage.home, "deny", asked))
    job.end()
    for screen in ("Now", "Agents", "Talk", "Log"):
        stage.open(screen)
        expect(page.get_by_text("<img src=x").first).to_be_visible()
        assert page.locator("img").count() == 0
        assert "owned" not in page.title()

    stage.open("Log")
    expect(page.get_by_text("zero\\u200bwidth").first).to_be_visible()


def test_no_character_of_a_request_is_hidden(stage: PageStage) -> None:
    """The text that a person decides about shows blanks, joiners and variants as numbers."""
    hidden = "\u115f\u1160\u3164\uffa0\u2800\u034f\u17b4\ufe0f\U000e0100\u00a0\u2003\u202e\u200d\u0301\x1b"
    script = 'async (text) => (await import("/dom.js")).exact(text)'

    shown = stage.page.evaluate(script, f"rm {hidden} x")

    assert not set(hidden) & set(shown)
    assert shown.startswith("rm \\u115f\\u1160\\u3164\\uffa0\\u2800")


def test_request_to_the_person_arrives_on_any_screen_and_is_answered(stage: PageStage) -> None:
    page = stage.page
    stage.open("Rooms")
    before = page.locator("nav .count").first.text_content() or "0"

    stage.agents["kilo"].ok("send", "@human", "--intent", "request", "--", "May I rename the table?")

    expect(page.locator("nav .count").first).to_have_text(f" {int(before) + 1}")
    page.keyboard.press("1")
    page.get_by_role("option", name="May I rename the table?").click()
    page.get_by_label("Reply").fill("yes, do")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("This has ended")).to_be_visible()
    assert "yes, do" in stage.home.texts()


def test_permission_held_message_and_request_are_settled_by_keyboard(stage: PageStage) -> None:
    page, nova = stage.page, stage.agents["nova"]
    job = ask(stage.agents["mira"])
    nova.ok("send", "@kilo", "--", "one")
    held = nova.pal("send", "@kilo", "--json", "--", "two")
    while held.status == 0:
        held = nova.pal("send", "@kilo", "--json", "--", "three")
    seq = held.error["details"]["message"]

    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    open_by_keyboard(page, "asks permission")
    expect(page.get_by_role("button", name="Approve")).to_be_visible()
    assert '"command": "touch x"' in (page.locator("pre").text_content() or "")
    page.keyboard.press("a")
    expect(page.get_by_text("This has ended")).to_be_visible()
    assert decision(job.end())["behavior"] == "allow"

    page.keyboard.press("Escape")
    open_by_keyboard(page, "held message")
    page.keyboard.press("l")
    expect(page.get_by_text("This has ended")).to_be_visible()
    states = check_output(stage.home.pal("receipts", str(seq), "--json")).json["receipts"]
    assert {one["state"] for one in states} == {"queued"}


def test_entry_released_elsewhere_is_refused_here(stage: PageStage) -> None:
    page, nova = stage.page, stage.agents["nova"]
    held = nova.pal("send", "@mira", "--json", "--", "one")
    while held.status == 0:
        held = nova.pal("send", "@mira", "--json", "--", "two")
    seq = held.error["details"]["message"]
    page.get_by_role("option").filter(has_text="held message").first.click()
    expect(page.get_by_role("button", name="Release")).to_be_enabled()

    check_output(run_as_person(stage.home, "release", str(seq)))

    expect(page.get_by_text(f"This has ended: #{seq} was released by human.")).to_be_visible()
    expect(page.get_by_role("button", name="Release")).to_be_disabled()


def test_permission_answered_elsewhere_says_by_whom_and_where(stage: PageStage) -> None:
    page = stage.page
    job = ask(stage.agents["mira"], session_id="s9", tool_input={"command": "touch elsewhere"})
    page.get_by_role("option", name="touch elsewhere").click()
    expect(page.get_by_role("button", name="Approve")).to_be_enabled()
    asked = stage.home.events("--type", "permission.asked")[-1]["payload"]["permission"]

    check_output(run_as_person(stage.home, "deny", asked))

    sentence = "This has ended: it was already answered: human denied it with 'pal deny'."
    expect(page.get_by_text(sentence)).to_be_visible()
    expect(page.get_by_role("button", name="Approve")).to_be_disabled()
    assert decision(job.end())["behavior"] == "deny"


def test_agent_that_is_no_longer_blocked_ends_its_entry(stage: PageStage) -> None:
    page, hasty = stage.page, stage.home.shell()
    hasty.ok("join", "--name", "hasty")
    hasty.ok("status", "set", "blocked", "--detail", "a dialog of its own")
    page.get_by_role("option", name="a dialog of its own").click()
    expect(page.get_by_role("button", name="Show agent")).to_be_visible()

    hasty.ok("status", "set", "idle")

    expect(page.get_by_text("This has ended: hasty is idle now.")).to_be_visible()


def test_request_answered_elsewhere_keeps_the_reply_unsent(stage: PageStage) -> None:
    page, asker = stage.page, stage.home.shell()
    asker.ok("join", "--name", "asker")
    asked = asker.ok("send", "@human", "--intent", "request", "--json", "--", "Tabs or spaces?")
    seq = str(asked.json["seq"])
    page.get_by_role("option", name="Tabs or spaces?").click()
    page.get_by_label("Reply").fill("tabs, I think")

    check_output(run_as_person(stage.home, "send", "@asker", "--reply-to", seq, "--", "spaces"))
    expect(page.get_by_text(f"This has ended: #{seq} was answered by human with #")).to_be_visible()
    page.keyboard.press("Control+Enter")

    expect(page.get_by_text(f"Not sent: #{seq} was answered by human with #")).to_be_visible()
    assert "tabs, I think" not in stage.home.texts()


def test_ledger_equals_the_receipts_of_the_command(stage: PageStage) -> None:
    page = stage.page
    seq = stage.home.ok("send", "@mira", "--json", "--", "for the ledger").json["seq"]
    stage.open("Log")
    expect(page.get_by_text("for the ledger")).to_be_visible()

    with page.expect_response(lambda one: '"ledger"' in (one.request.post_data or "")) as asked:
        page.get_by_role("option").filter(has_text="for the ledger").first.click()

    shown = asked.value.json()["receipts"]
    assert shown == stage.home.ok("receipts", str(seq), "--json").json
    expect(page.get_by_role("dialog")).to_contain_text("Steps")
    assert problems(page) == []
    page.keyboard.press("Escape")


def test_ledger_of_a_message_to_many_is_shown_in_pages(stage: PageStage) -> None:
    page = stage.page
    paths = [f"nobody/{number:02}" for number in range(60)]
    stage.home.ok("send", *paths, "--", "to sixty paths")
    stage.open("Log")

    page.get_by_role("option").filter(has_text="to sixty paths").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 to 50 of 60")
    last = dialog.get_by_role("cell", name="nobody/55")
    expect(last).to_have_count(0)
    dialog.get_by_role("button", name="Next recipients").press("Enter")
    expect(dialog).to_contain_text("51 to 60 of 60")

    expect(last).to_have_count(2)
    expect(dialog.get_by_role("button", name="Next recipients")).to_be_disabled()
    assert problems(page) == []
    page.keyboard.press("Escape")


def test_names_are_completed_in_the_text_and_in_the_recipients(stage: PageStage) -> None:
    page = stage.page
    stage.open("Talk")
    page.keyboard.press("w")
    text, names = page.get_by_label("Message", exact=True), page.get_by_role("listbox", name="Names")

    page.keyboard.type("ask @")
    expect(names).to_contain_text("@luna")
    assert problems(page) == []
    page.keyboard.type("l")
    expect(names.get_by_role("option")).to_have_text(["@luna"])
    expect(text).to_have_attribute(
        "aria-activedescendant", names.get_by_role("option").get_attribute("id") or ""
    )
    page.keyboard.press("Enter")
    expect(text).to_have_value("ask @luna ")
    page.keyboard.type("or @")
    page.keyboard.press("ArrowDown")
    second = names.get_by_role("option", selected=True).text_content()
    page.keyboard.press("Tab")
    page.keyboard.type("or me@l")
    expect(names).to_be_hidden()
    page.keyboard.type(" @k")
    page.keyboard.press("Escape")
    expect(names).to_be_hidden()
    expect(text).to_be_focused()
    expect(text).to_have_value(f"ask @luna or {second} or me@l @k")

    to = page.get_by_role("combobox", name="To")
    to.focus()
    page.keyboard.type("mi")
    expect(to).to_have_attribute("aria-expanded", "true")
    assert problems(page) == []
    names.get_by_role("option").click()
    expect(to).to_have_value("@mira ")
    expect(to).to_have_attribute("aria-expanded", "false")
    text.fill("")


def test_messages_are_sent_from_a_conversation(stage: PageStage) -> None:
    page = stage.page
    page.goto(address_of(stage.home) + "/#/talk/" + "%23" + _room(stage.home))
    expect(page.get_by_label("To", exact=True)).to_have_value(f"#{_room(stage.home)}")

    page.get_by_label("Message", exact=True).fill("hello, room")
    page.get_by_role("button", name="Send").click()

    expect(page.get_by_role("listbox", name="Messages")).to_contain_text("hello, room")
    box = page.locator(".composer").bounding_box()
    messages = page.get_by_role("listbox", name="Messages").bounding_box()
    assert box is not None
    assert messages is not None
    assert box["y"] >= messages["y"] + messages["height"], "the composer covers the messages"


def _room(home: Home) -> str:
    found: str = home.ok("room", "list", "--json").lines[0]["room"]
    return found


def test_long_lists_have_few_rows_in_the_document(stage: PageStage) -> None:
    page = stage.page
    program = (
        "import asyncio, palaver\n"
        "async def main():\n"
        "    async with palaver.connect(name='flood') as me:\n"
        "        for n in range(600):\n"
        "            await me.send('@flood', f'line {n}')\n"
        "asyncio.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", program], env=stage.home.environment, check=True, timeout=LIMIT_S)

    stage.open("Log")
    expect(page.get_by_text("line 599").first).to_be_visible()
    list_box = page.get_by_role("listbox", name="Events")
    for _ in range(30):
        list_box.evaluate("(box) => { box.scrollTop = 0; }")
        page.wait_for_function(
            "(box) => box.scrollTop > 0 || box.textContent.includes('#1 ')", arg=list_box.element_handle()
        )
        assert stage.rows() <= 300
    expect(page.get_by_text("#1 ").first).to_be_visible()
    page.get_by_label("Go to seq or time").fill("300")
    page.keyboard.press("Enter")
    expect(page.locator(".cursor")).to_contain_text("#300 ")
    assert stage.rows() <= 300


def test_ten_thousand_agents_are_a_few_rows_and_can_be_filtered(stage: PageStage) -> None:
    """The stream is replaced by a snapshot with many agents: to start them would take long."""
    rows = [
        {"name": f"agent{n:05}", "state": "idle", "since": 1, "seq": 1, "is_present": True}
        for n in range(10_000)
    ]
    snapshot = {
        "epoch": "many-1",
        "seq": 1_000_000_000,
        "now": 1,
        "me": "human",
        "device": "x",
        "version": "1",
        "counts": {"agents": {"idle": len(rows)}},
        "agents": rows,
        "agents_total": len(rows),
    }
    body = f"id: 1\nevent: snapshot\ndata: {json.dumps(snapshot)}\n\n"
    with stage.context.browser.new_context(storage_state=stage.context.storage_state()) as context:  # type: ignore[union-attr]  # it has one
        page = context.new_page()
        Watched(page)
        page.route("**/events*", lambda route: route.fulfill(content_type="text/event-stream", body=body))
        page.route("**/api/view", lambda route: route.fulfill(json=snapshot))
        page.goto(address_of(stage.home) + "/#/agents")
        expect(page.get_by_text("10000 of 10000 agents")).to_be_visible()

        page.get_by_role("listbox", name="Agents").press("End")
        expect(page.locator(".cursor")).to_contain_text("agent09999")
        page.get_by_role("listbox", name="Agents").press("Home")
        expect(page.locator(".cursor")).to_contain_text("agent00000")
        assert page.locator("[role=option]").count() <= 300
        page.get_by_label("Filter").fill("agent0777")

        expect(page.get_by_text("10 of 10000 agents")).to_be_visible()
        expect(page.locator("main .row")).to_have_count(10)


def test_past_shows_the_bus_as_it_was_and_sends_nothing(stage: PageStage) -> None:
    page = stage.page
    seq = stage.home.ok("send", "@mira", "--json", "--", "a mark in time").json["seq"]
    stage.home.ok("send", "@mira", "--json", "--", "after the mark")
    stage.open("Past")

    page.get_by_label("Seq").fill(str(seq))
    page.get_by_role("button", name="Show").first.click()
    expect(page.get_by_text(f"The bus as it was at #{seq}")).to_be_visible()

    stage.open("Log")
    expect(page.get_by_text("a mark in time").first).to_be_visible()
    assert page.get_by_text("after the mark").count() == 0
    stage.open("Talk")
    assert page.get_by_role("button", name="Send").count() == 0
    page.keyboard.press("ArrowRight")
    expect(page.get_by_text(f"The bus as it was at #{seq + 1}")).to_be_visible()
    assert problems(page) == []
    page.get_by_role("button", name="Return to now").click()
    expect(page.get_by_text("The bus as it was")).to_have_count(0)


def test_address_that_cannot_be_decoded_opens_its_screen(stage: PageStage) -> None:
    stage.page.evaluate("location.hash = '#/past/%'")
    stage.page.get_by_label("Seq").fill("3")
    stage.page.get_by_label("Seq").press("Enter")

    expect(stage.page.get_by_text("All screens show the bus at #3.")).to_be_visible(timeout=LIMIT_S * 1000)
    stage.page.get_by_role("button", name="Return to now").first.click()


def test_page_goes_on_after_the_bus_was_down(stage: PageStage) -> None:
    page = stage.page
    page.evaluate("window.isSamePage = true")

    stage.home.ok("down")
    expect(page.get_by_text("The page shows the last known state")).to_be_visible()
    expect(page.get_by_text("bus away")).to_be_visible()
    assert problems(page) == []
    stage.home.start_daemon()

    expect(page.get_by_text("bus up")).to_be_visible()
    stage.home.ok("send", "@human", "--intent", "request", "--", "Are you back?")
    expect(page.get_by_role("option").filter(has_text="Are you back?")).to_be_visible()
    assert page.evaluate("window.isSamePage")


def test_fifty_tabs_share_one_stream(stage: PageStage) -> None:
    pages = [stage.context.new_page() for _ in range(50)]
    watched = [Watched(page) for page in pages]
    try:
        for page in pages:
            page.goto(address_of(stage.home) + "/#/now", wait_until="commit")
        stage.home.ok("send", "@human", "--intent", "request", "--", "for all tabs")
        for page in pages:
            expect(page.get_by_role("option").filter(has_text="for all tabs")).to_be_visible()
        # The tab that reads the stream closes: another one goes on.
        stage.page.goto("about:blank")
        stage.home.ok("send", "@human", "--intent", "request", "--", "after the first")
        for page in pages[::10]:
            expect(page.get_by_role("option").filter(has_text="after the first")).to_be_visible()
        assert [one.errors for one in watched if one.errors] == []
    finally:
        for page in pages:
            page.close()


def test_signed_out_page_shows_the_sign_in(stage: PageStage, browser: Browser) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        watched = Watched(page)
        sign_in(stage.home, page, "--read-only")
        expect(page.get_by_text("read-only")).to_be_visible()
        id = page.evaluate(
            "fetch('/api/session', {headers: {'X-Palaver': localStorage['palaver-key']}}).then(r => r.json())"
        )["id"]

        check_output(run_as_person(stage.home, "web", "revoke", id))

        expect(page.get_by_label("Code")).to_be_visible()
        assert problems(page) == []
        assert watched.errors == []


def test_denied_page_says_so_and_stays_outside(stage: PageStage, browser: Browser) -> None:
    with browser.new_context() as context:
        page = context.new_page()

        sign_in(stage.home, page, reply="n")

        expect(page.get_by_text("was not allowed")).to_be_visible()
        assert json.loads(page.evaluate("JSON.stringify({...localStorage})")) == {}


def test_complete_name_of_a_recipient_is_not_replaced_by_a_longer_one(stage: PageStage) -> None:
    page = stage.page
    stage.home.shell().ok("join", "--name", "nov")  # The list has had nova before.
    stage.open("Talk")
    page.keyboard.press("w")
    to = page.get_by_role("combobox", name="To")
    names = page.get_by_role("listbox", name="Names")

    to.focus()
    page.keyboard.type("nov")
    expect(names.get_by_role("option")).to_have_text(["@nov", "@nova"])
    page.keyboard.press("Tab")

    expect(to).to_have_value("@nov ")
