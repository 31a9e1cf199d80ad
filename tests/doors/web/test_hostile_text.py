"""Markup in every text that the page shows: it stays text, on all six screens, and nothing is run.

The bus has rules for names, so its replies are replaced by values in which every text is markup.
"""

import json
import types
from collections.abc import Iterator, Mapping
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from playwright.sync_api import Browser, Page, Route, expect
from tests.doors.web.client import address_of, bus_with_page
from tests.doors.web.stage import SCREENS, Watched, chromium, problems, sign_in

from palaver.protocol import views
from palaver.protocol.views import AttentionKind, ViewValue

EVIL: Final = "<img src=x onerror='window.owned=1'><script>window.owned=1</script>\u202e"
SHOWN: Final = "<img src=x onerror='window.owned=1'><script>window.owned=1</script>\\u202e"
SEQ: Final = 7
PAGES: Final[dict[str, type[ViewValue]]] = {
    "agents": views.AgentsPage,
    "agent": views.AgentPage,
    "attention": views.AttentionPage,
    "permission": views.PermissionPage,
    "conversations": views.ConversationsPage,
    "messages": views.MessagesPage,
    "ledger": views.LedgerPage,
    "rooms": views.RoomsPage,
    "room": views.RoomPage,
    "log": views.LogPage,
    "seq": views.SeqPage,
    "past": views.Snapshot,
}


def filled(wanted: Any) -> Any:
    """Return a value of a type in which every text is markup, also the keys of mappings."""
    if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
        hints = get_type_hints(wanted)
        return wanted(**{name: filled(hints[name]) for name in wanted.__struct_fields__})
    if get_origin(wanted) in (Union, types.UnionType):
        return filled(get_args(wanted)[0])
    if get_origin(wanted) is tuple:
        arguments = get_args(wanted)
        return tuple(filled(one) for one in (arguments[:1] if arguments[-1] is ... else arguments))
    if get_origin(wanted) is not None:
        return {EVIL: filled(get_args(wanted)[-1])}
    known: Mapping[Any, Any] = {str: EVIL, int: SEQ, bool: True, object: [EVIL, {EVIL: EVIL}]}
    return msgspec.Raw(msgspec.json.encode(_RECEIPTS)) if wanted is msgspec.Raw else known[wanted]


_RECEIPTS: Final = {
    "receipts": [
        dict.fromkeys(("agent", "name", "session", "state", "lane", "grade", "reason"), EVIL)
        | {"wait": {"code": EVIL, "text": EVIL, "moves": EVIL}}
    ]
}


def _snapshot() -> views.Snapshot:
    snapshot: views.Snapshot = filled(views.Snapshot)
    (entry,) = snapshot.attention
    kinds = [*AttentionKind, EVIL]
    entries = [msgspec.structs.replace(entry, key=f"{kind}/1", kind=str(kind)) for kind in kinds]
    (child,) = snapshot.agents
    parent = msgspec.structs.replace(child, name=f"{EVIL} parent", parent="", has_left=False)
    return msgspec.structs.replace(snapshot, attention=tuple(entries), agents=(parent, child))


_STREAM: Final = """
    const real = window.fetch;
    const open = () => new ReadableStream({ start: (to) => to.enqueue(new TextEncoder().encode(%s)) });
    window.fetch = (path, ...more) =>
      String(path).startsWith("/events") ? Promise.resolve(new Response(open())) : real(path, ...more);
"""
"""A stream that stays open: a request that the test answers would end."""


class HostileBus:
    """Replies to the page in place of the bus."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.address = address
        self.is_refusing = False
        snapshot = msgspec.json.encode(_snapshot()).decode()
        stream = f"id: {SEQ}\nevent: snapshot\ndata: {snapshot}\n\n"
        page.add_init_script(_STREAM % json.dumps(stream))
        page.route("**/api/view", lambda route: route.fulfill(body=snapshot))
        page.route("**/api/session", lambda route: route.fulfill(json=self._session()))
        page.route("**/api/ask", self._ask)
        page.route(
            "**/api/act", lambda route: self._reply(route, {"text": EVIL, "results": [self._result()]})
        )
        page.route("**/api/screen", lambda route: self._reply(route, {"digest": EVIL, "text": EVIL}))

    def _session(self) -> dict[str, object]:
        return {"me": EVIL, "id": EVIL, "version": EVIL, "read_only": False, "approvals": True}

    def _result(self) -> dict[str, object]:
        return {"name": EVIL, "is_done": False, "text": EVIL}

    def _ask(self, route: Route) -> None:
        what = json.loads(route.request.post_data or "{}")["what"]
        page = _snapshot() if what == "past" else filled(PAGES[what])
        if what in ("agents", "conversations", "messages", "log"):
            page = msgspec.structs.replace(page, has_more=False)
        self._reply(route, json.loads(msgspec.json.encode(page)))

    def _reply(self, route: Route, body: object) -> None:
        if self.is_refusing:
            route.fulfill(status=400, json={"error": EVIL, "message": EVIL})
        else:
            route.fulfill(json=body)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def bus(browser: Browser) -> Iterator[HostileBus]:
    with bus_with_page() as home, browser.new_context() as context:
        watched = Watched(context.new_page())
        page, address = watched.page, address_of(home)
        sign_in(home, page)
        expect(page.get_by_text("bus up")).to_be_visible()
        made = HostileBus(page, address)
        page.goto("about:blank")
        page.goto(f"{address}/#/now")
        expect(page.get_by_role("option").filter(has_text="asks permission")).to_be_visible()
        yield made
        assert watched.errors == []


@pytest.fixture(autouse=True)
def _start_at_now(bus: HostileBus) -> None:
    bus.is_refusing = False
    bus.page.goto(f"{bus.address}/#/now")


def _open(page: Page, screen: str) -> None:
    page.keyboard.press(str(SCREENS.index(screen) + 1))
    expect(page.get_by_role("link", name=screen)).to_have_attribute("aria-current", "page")


def _check(page: Page, where: str) -> None:
    """Check that the markup is shown as text, and that nothing was made of it or run."""
    expect(page.locator("main, dialog").filter(has_text=SHOWN).first).to_be_attached()
    assert page.evaluate("window.owned") is None, where
    assert page.locator("img, body script, iframe, object, embed").count() == 0, where
    assert "\u202e" not in (page.locator("body").text_content() or ""), where


@pytest.mark.parametrize("screen", SCREENS[:4])
def test_markup_is_text_in_every_list_and_every_opened_entry(bus: HostileBus, screen: str) -> None:
    page = bus.page
    _open(page, screen)
    for box in page.locator("main input[type=checkbox]:visible").all():
        box.check()
    _check(page, screen)
    rows = page.locator(".master .row")
    expect(rows).to_have_count({"Now": 9, "Agents": 2}.get(screen, 1))

    for at in range(rows.count()):
        rows.nth(at).click()
        expect(page.locator(".detail h2").first).to_be_visible()
        expect(page.get_by_text("Loading")).to_have_count(0)
        _check(page, f"{screen}, entry {at}")

    assert problems(page) == []


def test_markup_is_text_in_the_log_and_its_dialogs(bus: HostileBus) -> None:
    page = bus.page
    _open(page, "Log")
    _check(page, "Log")
    page.locator("main .row").first.click()
    expect(page.get_by_role("dialog")).to_contain_text(SHOWN)
    _check(page, "Log, event")
    page.keyboard.press("Escape")

    _open(page, "Talk")
    page.locator(".master .row").first.click()
    messages = page.get_by_role("listbox", name="Messages")
    expect(messages.get_by_role("option")).not_to_have_count(0)
    messages.press("End")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("Steps")
    _check(page, "ledger")
    page.keyboard.press("Escape")


def test_markup_is_text_in_the_composer_and_in_results(bus: HostileBus) -> None:
    page = bus.page
    _open(page, "Talk")
    page.locator(".master .row").first.click()
    page.get_by_role("button", name="Quote").click()
    expect(page.locator(".quote").first).to_contain_text(SHOWN)
    page.get_by_label("Message", exact=True).press_sequentially(" @")
    expect(page.get_by_role("listbox", name="Names")).to_contain_text(SHOWN)
    _check(page, "completion")
    page.keyboard.press("Enter")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".composer .outcome")).to_contain_text(SHOWN)

    _open_agents_bar(page)
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text(SHOWN)
    _check(page, "question")
    page.get_by_role("dialog").get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator(".master .outcome")).to_contain_text(SHOWN)
    _check(page, "result")


def _open_agents_bar(page: Page) -> None:
    page.get_by_role("link", name="Agents").click()
    page.locator(".master .row").first.click()


def test_markup_is_text_in_refusals(bus: HostileBus) -> None:
    page = bus.page
    bus.is_refusing = True

    for screen in ("Now", "Agents", "Rooms"):
        _open(page, screen)
        page.goto(f"{bus.address}/#/{screen.lower()}/permission%2F1")
        expect(page.locator(".detail")).to_contain_text(SHOWN)
        _check(page, screen)
    _open(page, "Log")
    expect(page.locator("main .hint").first).to_contain_text(SHOWN)
    _check(page, "Log")


def test_markup_is_text_in_the_past(bus: HostileBus) -> None:
    page = bus.page
    _open(page, "Past")
    page.get_by_label("Seq").fill(str(SEQ))
    page.get_by_role("button", name="Show").first.click()
    expect(page.get_by_text(f"The bus as it was at #{SEQ}")).to_be_visible()

    for screen in SCREENS[:5]:
        _open(page, screen)
        _check(page, f"{screen} in the past")
    page.get_by_role("button", name="Return to now").click()
