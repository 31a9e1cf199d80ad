"""Notices of the dashboard: it passes each record on, with the entries that the person sees."""

import msgspec
import pytest
from tests.app.ui.fake_link import FakeCommands, FakeLink, agent, entry, snapshot
from tests.app.ui.test_now import settle
from textual import events

from palaver.app.ui.agents import AgentScreen
from palaver.app.ui.app import PalaverApp
from palaver.protocol.views import Changes


def app_with(*names: str) -> tuple[PalaverApp, FakeLink]:
    link = FakeLink(snapshot(*(agent(name, "active") for name in names)))
    return PalaverApp(link, FakeCommands()), link


def asks(number: int, who: str = "luna") -> Changes:
    return Changes(after=9 + number, seq=10 + number, attention=(entry(f"request/{number}", who=who),))


def ends(name: str) -> Changes:
    row = msgspec.structs.replace(agent(name, "idle", seq=20), since=950_000)
    return Changes(after=19, seq=20, agents=(row,))


async def test_entry_in_the_visible_list_is_in_view() -> None:
    app, link = app_with("luna")

    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: app.store.has_snapshot)
        link.push(asks(1))
        await settle(pilot, lambda: bool(link.noticed))

    assert link.noticed == [("request/1@900000", True)]


@pytest.mark.parametrize("key", ["2", "3", "5"])
async def test_entry_is_not_in_view_on_another_screen(key: str) -> None:
    app, link = app_with("luna")

    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: app.store.has_snapshot)
        await pilot.press(key)
        await pilot.pause()
        link.push(asks(1))
        await settle(pilot, lambda: bool(link.noticed))

    assert link.noticed == [("request/1@900000", False)]


async def test_nothing_is_in_view_while_another_window_has_the_focus() -> None:
    app, link = app_with("luna")

    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: app.store.has_snapshot)
        app.post_message(events.AppBlur())
        await settle(pilot, lambda: not app.app_focus)
        link.push(asks(1))
        await settle(pilot, lambda: bool(link.noticed))

    assert link.noticed == [("request/1@900000", False)]


async def test_opened_agent_is_in_view() -> None:
    app, link = app_with("luna", "nova")

    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: app.store.has_snapshot)
        app.push_screen(AgentScreen("luna"))
        await settle(pilot, lambda: isinstance(app.bus_screen, AgentScreen) and app.bus_screen.is_ready)
        link.push(ends("luna"))
        link.push(ends("nova"))
        await settle(pilot, lambda: len(link.noticed) == 2)

    assert link.noticed == [("idle/luna@950000", True), ("idle/nova@950000", False)]


async def test_allowed_notice_rings_the_bell(monkeypatch: pytest.MonkeyPatch) -> None:
    rung: list[bool] = []
    monkeypatch.setattr(PalaverApp, "bell", lambda self: rung.append(True))
    app, link = app_with("luna")

    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: app.store.has_snapshot)
        await pilot.press("2")
        await pilot.pause()
        link.push(ends("luna"))
        await settle(pilot, lambda: bool(rung))

    assert rung == [True]
