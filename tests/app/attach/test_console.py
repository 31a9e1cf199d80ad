r"""The meaning of keys on the attach screen, however they are split; a paste is never a command."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.app.attach.console import (
    PRIORITIES,
    Act,
    AgentChoice,
    Console,
    CopyText,
    LookBack,
    Meant,
    Mode,
    RawKeys,
    Say,
    ShowAgent,
)

MENU = b"\x1c"


def press(console: Console, keys: bytes) -> list[Meant]:
    return list(console.feed(keys))


def mode_of(console: Console) -> Mode:
    """Return the mode. A call, so that the type checker does not assume an earlier value."""
    return console.mode


@pytest.fixture
def console() -> Console:
    return Console("luna")


def test_enter_sends_the_line_with_the_shown_priority(console: Console) -> None:
    assert press(console, b"hello\r") == [Say("hello", "normal")]
    assert press(console, b"stop\t\r") == [Say("stop", "interrupt")]
    assert console.editor.text == ""


def test_tab_cycles_forward_through_the_priorities_and_shift_tab_back(console: Console) -> None:
    seen = []
    for _ in PRIORITIES:
        seen.append(console.priority)
        press(console, b"\t")

    assert tuple(seen) == ("normal", "interrupt", "idle-first", "idle")
    assert console.priority == "normal"
    press(console, b"\x1b[Z")
    assert console.priority == "idle"


def test_bar_is_normal_again_after_an_interrupt_and_only_then(console: Console) -> None:
    assert press(console, b"\tstop\r") == [Say("stop", "interrupt")]
    assert console.priority == "normal"

    press(console, b"\t\t")
    assert press(console, b"later\r") == [Say("later", "idle-first")]

    assert console.priority == "idle-first"


def test_refused_line_is_put_back_with_its_priority(console: Console) -> None:
    press(console, b"\tstop\r")

    console.put_back("stop", "interrupt")

    assert (console.editor.text, console.priority) == ("stop", "interrupt")


def test_refused_line_does_not_replace_the_next_one(console: Console) -> None:
    press(console, b"\tstop\rnext")

    console.put_back("stop", "interrupt")

    assert (console.editor.text, console.priority) == ("next", "normal")


def test_empty_line_is_not_sent(console: Console) -> None:
    assert press(console, b"\r") == []
    assert press(console, b"  \r") == []
    assert "nothing to send" in console.notice


@pytest.mark.parametrize("key", [b"\x03", b"\x04"])
def test_keys_that_end_other_programs_show_how_to_detach(console: Console, key: bytes) -> None:
    assert press(console, key) == []
    assert "Ctrl-\\ d detaches" in console.notice
    press(console, b"x")
    assert console.notice == ""


@pytest.mark.parametrize(
    ("key", "meant", "mode"),
    [
        (b"d", [Act.LEAVE], Mode.INPUT),
        (b"r", [Act.REDRAW], Mode.INPUT),
        (b"s", [Act.SCROLL], Mode.SCROLL),
        (b"n", [Act.LIST_AGENTS], Mode.AGENTS),
        (b"p", [Act.TAKE_KEYBOARD], Mode.KEYS),
        (b"t", [Act.FORCE_KEYBOARD], Mode.KEYS),
        (b"q", [], Mode.QUIT),
        (b"?", [], Mode.HELP),
        (b"x", [], Mode.INPUT),
        (b"\x1c", [], Mode.INPUT),
        (b"\x1b[A", [], Mode.INPUT),
    ],
)
def test_each_menu_choice_has_its_action(
    console: Console, key: bytes, meant: list[Meant], mode: Mode
) -> None:
    assert press(console, MENU + key) == meant
    assert mode_of(console) is mode


def test_lone_escape_closes_the_menu_when_nothing_follows(console: Console) -> None:
    press(console, MENU + b"\x1b")
    assert mode_of(console) is Mode.MENU
    assert console.has_half

    assert list(console.settle()) == []

    assert mode_of(console) is Mode.INPUT
    assert not console.has_half


def test_lone_escape_in_the_bar_does_not_swallow_the_next_key(console: Console) -> None:
    press(console, b"a\x1b")
    list(console.settle())
    press(console, b"b")

    assert console.editor.text == "ab"


def test_quitting_asks_once(console: Console) -> None:
    assert press(console, MENU + b"qn") == []
    assert press(console, MENU + b"qy") == [Act.STOP]
    assert mode_of(console) is Mode.INPUT


@given(st.binary(max_size=30).filter(lambda keys: MENU not in keys))
def test_passthrough_sends_every_key_unchanged(keys: bytes) -> None:
    console = Console("luna")
    press(console, MENU + b"p")

    meant = [one for number in range(len(keys)) for one in console.feed(keys[number : number + 1])]

    assert b"".join(one.keys for one in meant if isinstance(one, RawKeys)) == keys
    assert mode_of(console) is Mode.KEYS


def test_keys_around_the_end_of_passthrough_go_to_the_right_receiver(console: Console) -> None:
    press(console, MENU + b"p")

    assert press(console, b"ls\x1chello") == [RawKeys(b"ls"), Act.GIVE_KEYBOARD]
    assert console.editor.text == "hello"


@given(st.integers(0, 30))
def test_paste_never_ends_passthrough_wherever_it_is_split(cut: int) -> None:
    console = Console("luna")
    press(console, MENU + b"p")
    keys = b"\x1b[200~a\x1cb\x1b[201~c"

    meant = [*console.feed(keys[:cut]), *console.feed(keys[cut:])]

    assert b"".join(one.keys for one in meant if isinstance(one, RawKeys)) == keys
    assert mode_of(console) is Mode.KEYS
    assert press(console, MENU) == [Act.GIVE_KEYBOARD]


def test_paste_into_the_bar_is_text(console: Console) -> None:
    assert press(console, b"\x1b[200~a\tb\x1cd\r\x1b[201~") == []

    assert mode_of(console) is Mode.INPUT
    assert console.editor.text == "a\tb\x1cd\n"


def test_keyboard_of_another_viewer_is_taken_over_only_explicitly(console: Console) -> None:
    console.hear_keyboard("other")

    assert press(console, MENU + b"p") == []
    assert mode_of(console) is Mode.INPUT
    assert "takes it over" in console.notice
    assert press(console, MENU + b"t") == [Act.FORCE_KEYBOARD]


def test_viewer_that_loses_the_keyboard_returns_to_the_bar(console: Console) -> None:
    press(console, MENU + b"p")
    console.hear_keyboard("own")

    console.hear_keyboard("other")

    assert mode_of(console) is Mode.INPUT
    assert console.notice == "another terminal took the keyboard"


def test_refused_passthrough_ends_and_another_refusal_does_not(console: Console) -> None:
    press(console, MENU + b"p")
    console.refuse("no such priority", "input")
    assert mode_of(console) is Mode.KEYS

    console.refuse("another has it", "passthrough")

    assert mode_of(console) is Mode.INPUT
    assert console.notice == "another has it"


def test_scrollback_moves_up_and_down_within_its_limit(console: Console) -> None:
    past = console.past
    past.page = 5
    press(console, b"\x1b[5~")
    assert (console.mode, past.back) == (Mode.SCROLL, 5)
    past.show(["line"] * 18, is_complete=True)

    moves = [(b"\x1b[A", 6), (b"\x1b[5~", 11), (b"g", 12), (b"\x1b[6~", 7), (b"j", 6), (b"G", 0)]
    for key, position in moves:
        press(console, key)
        assert (key, past.back) == (key, position)

    press(console, b"\x1b[6~")
    assert mode_of(console) is Mode.INPUT


def look_back(console: Console, count: int = 30, page: int = 4) -> LookBack:
    """Scroll back over numbered lines; return the scroll-back."""
    console.past.page = page
    press(console, MENU + b"s")
    console.past.show([f"line {number}" for number in range(count)], is_complete=True)
    return console.past


def test_search_goes_up_to_the_nearest_match_and_on_from_there(console: Console) -> None:
    past = look_back(console)

    press(console, b"/line 1\r")

    assert mode_of(console) is Mode.SCROLL
    assert past.lines[-1 - (past.found or 0)] == "line 19"
    assert past.back <= (past.found or 0) <= past.back + past.page
    found = []
    for key in (b"n", b"N", b"N", b"n"):
        press(console, key)
        found.append(past.lines[-1 - (past.found or 0)])
    assert found == ["line 18", "line 19", "line 1", "line 19"]


def test_search_ignores_case_unless_the_text_has_upper_case(console: Console) -> None:
    past = look_back(console)
    past.show(["Error one", "error two"], is_complete=True)

    press(console, b"/error\r")
    assert len(past.matches()) == 2
    press(console, b"/Error\r")

    assert past.matches() == [1]


def test_search_without_a_match_says_so_and_moves_nothing(console: Console) -> None:
    past = look_back(console)
    before = past.back

    press(console, b"/nothing\r")

    assert console.notice == "not found: nothing"
    assert (past.back, past.found) == (before, None)


def test_next_match_without_a_search_says_how_to_search(console: Console) -> None:
    look_back(console)

    press(console, b"n")

    assert console.notice == "/ searches; then n and N go on"


@pytest.mark.parametrize(("key", "mode"), [(b"\x03", Mode.SCROLL), (MENU, Mode.INPUT)])
def test_search_can_be_abandoned(console: Console, key: bytes, mode: Mode) -> None:
    past = look_back(console)

    press(console, b"/line" + key)

    assert mode_of(console) is mode
    assert past.needle == ""


def test_escape_ends_the_typing_of_a_search(console: Console) -> None:
    look_back(console)
    press(console, b"/line\x1b")
    assert mode_of(console) is Mode.SEARCH

    list(console.settle())

    assert mode_of(console) is Mode.SCROLL


def test_keys_after_a_search_act_on_the_scrollback(console: Console) -> None:
    past = look_back(console)

    assert press(console, b"/line 20\rvkky") == [CopyText("line 18\nline 19\nline 20")]

    assert past.mark is None


def test_copy_without_a_mark_takes_the_shown_lines(console: Console) -> None:
    look_back(console)

    assert press(console, b"y") == [CopyText("line 21\nline 22\nline 23\nline 24\nline 25")]


def test_marked_lines_follow_the_keys_in_both_directions(console: Console) -> None:
    past = look_back(console)
    press(console, b"G/line 29\rv")

    assert press(console, b"jy") == [CopyText("line 29")]
    press(console, b"v" + b"\x1b[5~" * 2)
    assert len(past.selected) == 9
    assert past.back + past.page == past.at
    press(console, b"\x1b[6~" * 2)
    assert past.back == 0

    assert press(console, b"gy") == [CopyText("\n".join(f"line {number}" for number in range(30)))]


def test_search_while_marking_extends_the_mark(console: Console) -> None:
    look_back(console)

    assert press(console, b"/line 24\rv/line 22\ry") == [CopyText("line 22\nline 23\nline 24")]


def test_escape_ends_the_marking_first(console: Console) -> None:
    past = look_back(console)
    press(console, b"v\x1b")
    list(console.settle())
    assert (mode_of(console), past.mark) == (Mode.SCROLL, None)

    press(console, b"\x1b")
    list(console.settle())

    assert mode_of(console) is Mode.INPUT


def test_older_lines_that_arrive_later_keep_match_and_mark(console: Console) -> None:
    past = look_back(console)
    press(console, b"/line 24\rv")

    past.show([*("older " * 20).split(), *past.lines], is_complete=True)

    assert press(console, b"y") == [CopyText("line 24")]
    past.show(["one"], is_complete=True)
    assert (past.found, past.back, past.at) == (None, 0, 0)


def test_navigator_shows_the_chosen_agent(console: Console) -> None:
    press(console, MENU + b"n")
    console.offer([AgentChoice(name="nova", state="idle"), AgentChoice(name="kira", state="active")])

    assert press(console, b"\x1b[B\x1b[B\r") == [ShowAgent("kira")]
    assert press(console, b"k\r") == [ShowAgent("nova")]
    assert press(console, b"r") == [Act.LIST_AGENTS]
    console.offer([])
    assert press(console, b"\r") == []
    press(console, b"q")
    assert mode_of(console) is Mode.INPUT


def test_agent_without_a_terminal_is_not_shown(console: Console) -> None:
    press(console, MENU + b"n")
    console.offer([AgentChoice(name="nova", state="idle", has_terminal=False)])

    assert press(console, b"\r") == []
    assert console.notice == "nova has no terminal that 'pal' started"


def test_list_of_agents_that_comes_too_late_is_dropped(console: Console) -> None:
    press(console, MENU + b"nq")

    console.offer([AgentChoice(name="nova", state="idle")])

    assert console.agents is None


def test_help_scrolls_and_any_other_key_closes_it(console: Console) -> None:
    press(console, MENU + b"?")
    console.limit = 3

    press(console, b"\x1b[B\x1b[B")
    assert console.back == 2
    press(console, b"x")

    assert mode_of(console) is Mode.INPUT
    assert console.editor.text == ""


def test_without_room_for_a_bar_keys_go_to_the_agent_and_the_menu_works(console: Console) -> None:
    assert list(console.set_bare(is_bare=True)) == [Act.TAKE_KEYBOARD]
    assert list(console.set_bare(is_bare=True)) == []

    assert press(console, b"ls\r") == [RawKeys(b"ls\r")]
    press(console, MENU)
    assert mode_of(console) is Mode.MENU
    press(console, b"x")
    assert mode_of(console) is Mode.KEYS
    assert press(console, MENU + b"d") == [Act.LEAVE]


def test_with_room_again_the_bar_returns_and_the_keyboard_is_given_up(console: Console) -> None:
    list(console.set_bare(is_bare=True))

    assert list(console.set_bare(is_bare=False)) == [Act.GIVE_KEYBOARD]
    assert mode_of(console) is Mode.INPUT


@given(st.lists(st.binary(max_size=8), max_size=8))
def test_any_keys_leave_a_way_back_to_the_input_bar(pieces: list[bytes]) -> None:
    console = Console("luna")
    for piece in pieces:
        press(console, piece)
        list(console.settle())

    press(console, b"\x1b[201~" + b"\x1b[201~")
    list(console.settle())
    for _ in range(3):
        if mode_of(console) is not Mode.INPUT:
            press(console, MENU)

    assert mode_of(console) is Mode.INPUT


def test_keyboard_can_start_with_the_agent() -> None:
    console = Console("luna", keys_first=True)

    assert list(console.begin()) == [Act.TAKE_KEYBOARD]
    assert list(console.feed(b"\x1b")) == [RawKeys(b"\x1b")]
    assert list(console.feed(b"\x1c")) == [Act.GIVE_KEYBOARD]
    assert console.mode is Mode.INPUT
    list(console.feed(b"draft"))
    list(console.feed(b"\x1b"))
    assert list(console.settle()) == [Act.TAKE_KEYBOARD]
    assert console.editor.text == "draft"


@pytest.mark.parametrize("key", [b"\x1a", b"\x1b[122;5u", b"\x1b[122;133:1u", b"\x1b[27;5;122~"])
def test_ctrl_z_suspends_where_the_keyboard_starts_with_the_agent(key: bytes) -> None:
    console = Console("luna", keys_first=True)
    list(console.begin())

    assert list(console.feed(b"a" + key + b"b" + key)) == [
        RawKeys(b"a"),
        Act.SUSPEND,
        RawKeys(b"b"),
        Act.SUSPEND,
    ]
    assert list(console.feed(b"\x1b[200~" + key + b"\x1b[201~")) == [
        RawKeys(b"\x1b[200~" + key + b"\x1b[201~")
    ]
    assert console.mode is Mode.KEYS


def test_ctrl_z_in_passthrough_is_passed_on() -> None:
    console = Console("luna")
    press(console, MENU + b"p")

    assert list(console.feed(b"a\x1ab")) == [RawKeys(b"a\x1ab")]


def test_growing_terminal_leaves_the_keyboard_with_the_agent() -> None:
    console = Console("luna", keys_first=True)
    list(console.begin())

    list(console.set_bare(is_bare=True))

    assert list(console.set_bare(is_bare=False)) == []
    assert console.mode is Mode.KEYS
