"""Misspelled names: the nearest name is suggested, and a filter that cannot match is reported."""

from collections.abc import Iterator

import pytest
from tests.daemon.stage import Home, new_home


@pytest.fixture(scope="module")
def still() -> Iterator[Home]:
    """A bus with the agent anna and a thread."""
    with new_home() as home:
        home.start_daemon()
        home.shell().ok("join", "--name", "anna")
        home.ok("send", "@anna", "--thread", "pr-123", "--", "hello")
        yield home


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        (("whoami", "--as", "ana"), "did you mean anna?"),
        (("thread", "show", "pr-12"), "did you mean pr-123?"),
        (("thread", "show", "zzzzzz"), "'pal thread list' shows them"),
        (("config", "get", "brake_hop"), "did you mean brake_hops?"),
        (("config", "get", "zzzzzz"), "the settings are: log_level, "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_unknown_name_is_refused_with_the_nearest_one(
    still: Home, words: tuple[str, ...], nearest: str
) -> None:
    refused = still.pal(*words)

    assert refused.status == 1
    assert nearest in refused.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("events", "--from", "ana"), "unknown agent: ana; did you mean anna?"),
        (("events", "--agent", "@Ana"), "unknown agent: @Ana; did you mean anna?"),
        (("events", "--from", "zzzzzz"), "unknown agent: zzzzzz; 'pal list -v' shows"),
        (("events", "--type", "mesage"), "the log has no event of type mesage; did you mean message?"),
        (("recv", "--peek", "--as", "anna", "--from", "ana"), "unknown agent: ana"),
        (("events", "sub", "--as", "anna", "--agent", "ana"), "unknown agent: ana"),
        (("events", "sub", "--as", "anna", "--from", "ana"), "unknown agent: ana"),
        (("events", "sub", "--as", "anna", "--type", "mesage"), "did you mean message?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_filter_by_an_unknown_name_finds_nothing_and_says_so(
    still: Home, words: tuple[str, ...], expected: str
) -> None:
    found = still.pal(*words, "--json")

    assert (found.status, found.err.count("\n")) == (0, 1)
    assert expected in found.err


@pytest.mark.parametrize(
    "words",
    [
        ("--from", "anna", "--from", "@ANNA", "--from", "human"),
        ("--from", "script", "--agent", "[pal-events]"),
        ("--type", "message_sent", "--type", "message", "--type", "deploy.done"),
        ("--intent", "request", "--status", "listening", "--status", "seen", "--status", "exited"),
    ],
    ids=" ".join,
)
def test_filter_by_a_known_name_or_a_new_type_prints_no_warning(still: Home, words: tuple[str, ...]) -> None:
    found = still.ok("events", *words)

    assert found.err == ""


@pytest.mark.parametrize("before", [("events",), ("events", "sub", "--as", "anna")], ids=" ".join)
@pytest.mark.parametrize(
    ("words", "nearest"), [(("--intent", "requst"), "request"), (("--status", "idel"), "idle")]
)
def test_unknown_intent_or_state_is_refused(
    still: Home, before: tuple[str, ...], words: tuple[str, ...], nearest: str
) -> None:
    refused = still.pal(*before, *words)

    assert refused.status == 2
    assert f"did you mean {nearest}?" in refused.err


def test_empty_name_cannot_join(still: Home) -> None:
    refused = still.shell().pal("join", "--name", "", "--json")

    assert (refused.status, refused.error["error"]) == (2, "usage")


def test_second_join_is_refused_with_the_callers_name_whatever_its_pid(still: Home) -> None:
    luna = still.shell()
    name = luna.ok("join", "--json").json["name"]

    refused = luna.pal("join", "--name", "other", "--pid", "1", "--json")

    assert (refused.error["error"], refused.error["details"]["name"]) == ("already_joined", name)


def test_empty_name_of_a_started_agent_is_refused(still: Home) -> None:
    before = still.ok("list", "--names").out

    refused = still.pal("run", "--detach", "--name", "", "--", "true")

    assert (refused.status, "--name requires a value" in refused.err) == (2, True)
    assert still.ok("list", "--names").out == before
