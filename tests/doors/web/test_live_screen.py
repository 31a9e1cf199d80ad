"""The live screen of an agent on the page: as text, only while it is shown, and as `pal peek` prints."""

import shlex
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest
from playwright.sync_api import Browser, Page, Request, expect
from tests.daemon.holder import FakeHolder, ticket_of, words_of
from tests.daemon.stage import Home, run_script_as_person, wait_until
from tests.doors.web.client import PageClient, address_of, bus_with_page
from tests.doors.web.stage import Watched, chromium, problems, sign_in
from tests.limits import LIMIT_S

EVIL: Final = "<img src=x onerror=\"document.title='owned'\">"
_LINES: Final = "screen.txt"
"""What is written into this file of the home appears on the screen of kira."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    """A bus with an agent in a terminal, and one without."""
    with bus_with_page() as made:
        lines = made.path / _LINES
        lines.write_text(f"{EVIL}\n")
        words = shlex.join(
            ["pal", "run", "--name", "kira", "--detach", "--", "tail", "-n", "+1", "-f", str(lines)]
        )
        assert run_script_as_person(made, words).status == 0
        wait_until(lambda: "onerror" in made.pal("peek", "kira").out)
        made.shell().ok("join", "--name", "mira")
        yield made
        assert run_script_as_person(made, "pal kill kira").status == 0


@pytest.fixture(params=[(), ("--read-only",)], ids=["full", "read-only"])
def page(request: pytest.FixtureRequest, browser: Browser, home: Home) -> Iterator[Page]:
    with browser.new_context() as context:
        watched = Watched(context.new_page())
        sign_in(home, watched.page, *request.param)
        expect(watched.page.get_by_text("bus up")).to_be_visible()
        yield watched.page
        assert watched.errors == []


def _write(home: Home, line: str) -> None:
    with (home.path / _LINES).open("a") as file:
        file.write(f"{line}\n")


def test_screen_is_live_text_and_ends_with_the_opened_agent(home: Home, page: Page) -> None:
    asked: list[Request] = []
    page.on("request", lambda one: asked.append(one) if one.url.endswith("/api/screen") else None)
    page.goto(address_of(home) + "/#/agents")
    expect(page.get_by_role("option").filter(has_text="kira")).to_be_visible()
    assert asked == []

    page.goto(address_of(home) + "/#/agents/kira")
    screen = page.get_by_role("region", name="Screen of the agent")
    expect(screen).to_contain_text("<img src=x onerror=")
    assert page.locator("img").count() == 0
    assert problems(page) == []
    line = f"hello, after {len((home.path / _LINES).read_text())} bytes"
    _write(home, line)
    expect(screen).to_contain_text(line)
    shown = [line.rstrip() for line in (screen.text_content() or "").split("\n")]
    assert shown[1:] == [line.rstrip() for line in home.ok("peek", "kira").out.rstrip().split("\n")][1:]

    page.goto(address_of(home) + "/#/agents/mira")
    expect(page.get_by_role("heading", name="mira")).to_be_visible()
    expect(screen).to_be_hidden()
    page.goto(address_of(home) + "/#/now")
    count = len(asked)
    _write(home, "not for this page")
    home.ok("send", "@human", "--intent", "request", "--", "a later thing")
    expect(page.get_by_role("option").filter(has_text="a later thing").first).to_be_visible()
    assert len(asked) == count
    assert "owned" not in page.title()


def test_reason_of_a_waiting_message_follows_the_gate(home: Home, page: Page) -> None:
    """A gate is not in the log: the page learns of it without an event."""
    with FakeHolder(home) as holder:
        holder.hold(ticket_of(words_of(home, "run", "--", "bash"))).open_lane(is_open=False)
        name = holder.held["name"]
        home.ok("send", f"@{name}", "--", "hello")
        page.goto(f"{address_of(home)}/#/agents/{name}")
        waiting = page.locator(".detail").get_by_role("listitem").filter(has_text="hello").first

        holder.gate(open=False, reason="draft")
        expect(waiting).to_contain_text(f"text that was not sent is in the composer of {name}")
        holder.gate(open=False, reason="dialog")
        expect(waiting).to_contain_text(f"a dialog is open in the terminal of {name}")


def test_many_tabs_show_the_screen_and_can_still_act(home: Home, browser: Browser) -> None:
    """A browser opens only six connections to the bus: waiting for screens must not take all of them."""
    with browser.new_context() as context:
        first = Watched(context.new_page())
        sign_in(home, first.page)
        expect(first.page.get_by_text("bus up")).to_be_visible()
        tabs = [first, *(Watched(context.new_page()) for _ in range(7))]
        for tab in tabs:
            tab.page.goto(address_of(home) + "/#/agents/kira", wait_until="commit")
        for tab in tabs:
            expect(tab.page.get_by_role("region", name="Screen of the agent")).to_contain_text("onerror")

        _write(home, "for all tabs")
        for tab in tabs:
            expect(tab.page.get_by_role("region", name="Screen of the agent")).to_contain_text("for all tabs")
        tabs[-1].page.get_by_role("link", name="Talk").click()
        tabs[-1].page.get_by_role("combobox", name="To").fill("@mira")
        tabs[-1].page.get_by_label("Message", exact=True).fill("from the last tab")
        tabs[-1].page.get_by_role("button", name="Send").click()
        expect(tabs[-1].page.locator(".composer .outcome")).to_contain_text("to mira")
        assert [tab.errors for tab in tabs if tab.errors] == []


def test_waiting_for_a_screen_does_not_delay_the_end_of_the_bus(browser: Browser) -> None:
    with bus_with_page() as home, FakeHolder(home) as holder, browser.new_context() as context:
        holder.hold(ticket_of(words_of(home, "run", "--", "bash")))
        watched = Watched(context.new_page())
        sign_in(home, watched.page)
        watched.page.goto(f"{address_of(home)}/#/agents/{holder.held['name']}")
        assert holder.next_push()["verb"] == "peek"  # It is never answered.

        home.ok("down")

        expect(watched.page.get_by_text("bus away")).to_be_visible()
        assert watched.errors == []


def test_waiting_request_for_a_screen_ends_with_the_bus() -> None:
    with bus_with_page() as home, FakeHolder(home) as holder, ThreadPoolExecutor(1) as threads:
        client = PageClient(home)
        client.sign_in()
        holder.hold(ticket_of(words_of(home, "run", "--", "bash")))
        body = {"name": holder.held["name"], "known": "0"}
        waiting = threads.submit(client.post, "/api/screen", body)
        assert holder.next_push()["verb"] == "peek"

        home.ok("down")

        assert waiting.result(LIMIT_S).status_code == 503
