"""The list widget: only visible rows are asked for, and the cursor stays on its row."""

from collections.abc import Sequence

import pytest
from tests.app.ui.fake_link import lines_of
from textual.app import App, ComposeResult
from textual.content import Content

from palaver.app.ui.rows import Lines, RowList


class Numbers:
    """A source of many rows that records which ones were asked for."""

    def __init__(self, total: int) -> None:
        self.first = 0
        self.total = total
        self.asked: set[int] = set()

    def row(self, index: int, width: int) -> Content | None:
        self.asked.add(index)
        return Content(f"row {self.first + index}")

    def want(self, first: int, last: int) -> None:
        pass

    def key(self, index: int) -> str:
        return str(self.first + index)

    def find(self, key: str) -> int:
        found = int(key) - self.first
        return found if 0 <= found < self.total else -1


class Page(App[None]):
    """One list on a page."""

    def __init__(self, rows: RowList) -> None:
        super().__init__()
        self.rows = rows
        self.heard: list[tuple[str, str]] = []

    def compose(self) -> ComposeResult:
        yield self.rows

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        self.heard.append(("chosen", event.key))

    def on_row_list_marked(self, event: RowList.Marked) -> None:
        self.heard.append(("marked", event.key))


def texts(rows: RowList) -> list[str]:
    return [line for line in lines_of(rows) if line]


async def test_million_rows_ask_only_for_the_visible_ones() -> None:
    source = Numbers(1_000_000)
    page = Page(RowList(source))

    async with page.run_test(size=(40, 10)) as pilot:
        await pilot.press("end", "home", "pagedown")

        assert texts(page.rows)[-1] == "  row 18"
        assert len(source.asked) < 100


async def test_cursor_stays_on_its_row_when_rows_come_before_it() -> None:
    source = Numbers(100)
    page = Page(RowList(source))

    async with page.run_test(size=(40, 10)) as pilot:
        await pilot.press("down", "down", "down")
        source.first, source.total = -50, 150
        page.rows.refresh_rows()
        await pilot.pause()

        assert page.rows.cursor_key == "3"
        assert "> row 3" in texts(page.rows)


async def test_cursor_goes_to_a_neighbour_when_its_row_goes() -> None:
    source = Numbers(4)
    page = Page(RowList(source))

    async with page.run_test(size=(40, 10)) as pilot:
        await pilot.press("end")
        source.total = 2
        page.rows.refresh_rows()
        await pilot.pause()

        assert page.rows.cursor_key == "1"


@pytest.mark.parametrize(("keys", "expected"), [([], "99"), (["up"], "48"), (["up", "end"], "99")])
async def test_list_at_its_end_follows_new_rows(keys: Sequence[str], expected: str) -> None:
    source = Numbers(50)
    page = Page(RowList(source, follows=True))

    async with page.run_test(size=(40, 10)) as pilot:
        await pilot.press(*keys)
        source.total = 100
        page.rows.refresh_rows()
        await pilot.pause()

        assert page.rows.cursor_key == expected


async def test_keys_and_mouse_do_the_same() -> None:
    page = Page(RowList(Numbers(50)))

    async with page.run_test(size=(40, 10)) as pilot:
        await pilot.press("down", "enter", "space")
        await pilot.click(RowList, offset=(10, 5))
        clicked = page.rows.cursor_key
        await pilot.double_click(RowList, offset=(10, 6))
        await pilot.click(RowList, offset=(1, 7))

        assert clicked == "5"
        assert page.heard == [("chosen", "1"), ("marked", "1"), ("chosen", "6"), ("marked", "7")]


async def test_wheel_moves_the_visible_part_and_keeps_the_cursor_in_it() -> None:
    page = Page(RowList(Numbers(50)))

    async with page.run_test(size=(40, 10)):
        page.rows.scroll_rows(20)

        assert (page.rows.top, page.rows.cursor_key) == (20, "20")


async def test_row_that_is_not_there_yet_is_shown_as_dots() -> None:
    class Missing(Numbers):
        def row(self, index: int, width: int) -> Content | None:
            return None

    page = Page(RowList(Missing(2)))

    async with page.run_test(size=(40, 4)):
        assert texts(page.rows) == ["> ...", "  ..."]


async def test_lines_of_one_entry_move_together() -> None:
    class Pairs(Numbers):
        def key(self, index: int) -> str:
            return str(index // 2)

        def find(self, key: str) -> int:
            return int(key) * 2

    page = Page(RowList(Pairs(20)))

    async with page.run_test(size=(40, 10)) as pilot:
        await pilot.press("down", "down")
        after_two = page.rows.cursor_key
        await pilot.press("up")

        assert (after_two, page.rows.cursor, page.rows.cursor_key) == ("2", 2, "1")
        assert texts(page.rows)[2:4] == ["> row 2", "  row 3"]


async def test_list_without_rows_says_so_and_takes_keys() -> None:
    page = Page(RowList(Lines(), empty="nothing here"))

    async with page.run_test(size=(40, 4)) as pilot:
        await pilot.press("down", "up", "end", "home", "pagedown", "enter", "space")

        assert texts(page.rows) == ["nothing here"]
        assert page.heard == []


async def test_text_of_a_narrow_list_without_rows_is_wrapped() -> None:
    page = Page(RowList(Lines(), empty="no rooms yet; an agent opens one"))

    async with page.run_test(size=(14, 4)):
        assert texts(page.rows) == ["no rooms yet;", "an agent opens", "one"]


async def test_list_in_one_line_and_one_column_can_be_drawn() -> None:
    page = Page(RowList(Numbers(50)))

    async with page.run_test(size=(1, 1)) as pilot:
        await pilot.press("end")
        await pilot.resize_terminal(3, 2)

        assert page.rows.cursor_key == "49"
