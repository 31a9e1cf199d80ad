"""Four agents, and three things that wait: a person settles all of them on the page, at two sizes."""

from collections.abc import Callable, Iterator
from typing import Final

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.daemon.stage import Job, check_output
from tests.daemon.test_permissions import ask, decision
from tests.doors.web.client import bus_with_page
from tests.doors.web.stage import DESK, PHONE, PageStage, chromium, keep_picture, open_by_keyboard, problems

_COMMAND: Final = "docker compose up --detach --wait && psql -f schema/2026-11-18-customers.sql"
_QUESTION: Final = "The table customers has 2 million rows. May I lock it for a minute, or shall I copy it?"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


class Waiting:
    """A bus on which a permission, a held message and a request wait for the person."""

    def __init__(self, stage: PageStage) -> None:
        self.stage = stage
        luna, nova = stage.agents["luna"], stage.agents["nova"]
        self.job: Job = ask(luna, tool_input={"command": _COMMAND, "description": "Start the database"})
        nova.ok("send", "@mira", "--", "The schema is ready for review.")
        sent = nova.pal("send", "@mira", "--json", "--", "Please rebase: your branch has the old schema.")
        self.held: int = sent.error["details"]["message"]
        asked = stage.agents["kilo"].ok("send", "@human", "--intent", "request", "--json", "--", _QUESTION)
        self.asked: int = asked.json["seq"]

    def check_effects(self) -> None:
        """Check in the log that each of the three was settled, by the person, once."""
        home = self.stage.home
        assert decision(self.job.end())["behavior"] == "allow"
        (answered,) = home.events("--type", "permission.answered")
        assert (answered["from"], answered["payload"]["decision"]) == ("human", "allow")
        receipts = check_output(home.pal("receipts", str(self.held), "--json")).json["receipts"]
        assert [(one["name"], one["state"]) for one in receipts] == [("mira", "queued")]
        releases = [
            event
            for event in home.events("--type", "delivery")
            if self.held in event["payload"]["messages"] and event.get("by") == "human"
        ]
        assert len(releases) == 1
        (reply,) = [event for event in home.events("--type", "message") if event["from"] == "human"]
        assert (reply["to"], reply["payload"]["text"]) == (["kilo"], "copy it")
        assert check_output(home.pal("pending", "--json")).lines == []


@pytest.fixture
def waiting(browser: Browser) -> Iterator[Waiting]:
    settings = {"approvals": 1, "approvals_wait_s": 3600, "web_approvals": 1, "brake_per_minute": 1}
    with bus_with_page(**settings) as home:
        stage = PageStage(home, browser)
        yield Waiting(stage)
        assert stage.watched.errors == []
        stage.context.close()


def _open_by_mouse(page: Page, text: str) -> None:
    page.get_by_role("option").filter(has_text=text).first.click()


def _settle_by_mouse(page: Page) -> None:
    page.get_by_role("button", name="Approve").click()
    _ended(page, "human allowed it on the page")
    _back_by_mouse(page)
    _open_by_mouse(page, "held message")
    page.get_by_role("button", name="Release").click()
    _ended(page, "was released by human")
    _back_by_mouse(page)
    _open_by_mouse(page, "asks you")
    page.get_by_label("Reply").fill("copy it")
    page.get_by_role("button", name="Send").click()
    _ended(page, "was answered by human with #")


def _back_by_mouse(page: Page) -> None:
    back = page.get_by_role("button", name="Back to the list")
    if back.is_visible():
        back.click()


def _settle_by_keyboard(page: Page) -> None:
    page.keyboard.press("a")
    _ended(page, "human allowed it on the page")
    page.keyboard.press("Escape")
    open_by_keyboard(page, "held message")
    page.keyboard.press("l")
    _ended(page, "was released by human")
    page.keyboard.press("Escape")
    open_by_keyboard(page, "asks you")
    page.keyboard.press("r")
    page.keyboard.type("copy it")
    page.keyboard.press("Control+Enter")
    _ended(page, "was answered by human with #")


def _ended(page: Page, how: str) -> None:
    expect(page.get_by_text("This has ended: ")).to_contain_text(how)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("open_entry", "settle"),
    [(_open_by_mouse, _settle_by_mouse), (open_by_keyboard, _settle_by_keyboard)],
    ids=["mouse", "keyboard"],
)
@pytest.mark.parametrize("size", [PHONE, DESK], ids=["360x740", "1280x800"])
def test_person_settles_all_three_on_the_page(
    waiting: Waiting,
    size: tuple[int, int],
    open_entry: Callable[[Page, str], None],
    settle: Callable[[Page], None],
    scheme: str,
) -> None:
    page = waiting.stage.page
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    expect(page.get_by_role("heading", name="3 things wait for you")).to_be_visible()
    name = f"{size[0]}-{scheme}"
    keep_picture(page, f"now-{name}")

    open_entry(page, "asks permission")
    expect(page.get_by_role("button", name="Approve")).to_be_enabled()
    assert _COMMAND in (page.locator("pre").text_content() or "")
    keep_picture(page, f"permission-{name}")
    assert problems(page) == []
    settle(page)
    keep_picture(page, f"settled-{name}")

    expect(page.get_by_text("0 waiting for you")).to_be_visible()
    assert problems(page) == []
    waiting.check_effects()
