"""The rules of automatic turns: configuration, debounce, batches, retries, triage, notices and prompts."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from palaver.domain.turns import (
    LONGEST_DEBOUNCE_MS,
    Batch,
    Verdict,
    allowed_at_ms,
    batch_limit,
    batch_of,
    check_auto_run,
    due_ms,
    failed_reason,
    held_notice,
    is_failed_reason,
    is_yes,
    judge_batch,
    no_runner_notice,
    recent_starts,
    resolve_auto_run,
    retry_at_ms,
    triage_prompt,
    turn_prompt,
)
from palaver.errors import BadRequest
from palaver.protocol.agents import Agent
from palaver.protocol.envelope import Event
from palaver.protocol.paths import routed_message
from palaver.protocol.text import LIMIT_INJECTION
from palaver.protocol.turns import BatchMessage, TurnConfig

DEFAULTS = TurnConfig()
ON = TurnConfig(enabled=True)
LUNA = Agent(name="luna", base="luna", role="reviewer", harness="claude")
HOUR_MS = 3_600_000


def message(seq: int = 7, *, sender: str = "nova", **payload: object) -> Event:
    body = {"text": "hello", "sender_kind": "instance", "delivered_to": ["luna"], **payload}
    return Event(
        seq=seq, id=f"ID{seq}", type="message", sender=sender, to=(), ts=1, device="BOXE", payload=body
    )


# The configuration

numbers = st.integers(0, 86_400_000)
words = st.lists(st.text(max_size=5), max_size=3)
objects = st.fixed_dictionaries(
    {},
    optional={
        "enabled": st.booleans(),
        "triageModel": st.text(max_size=5),
        "debounceMs": numbers,
        "maxBatchSize": numbers,
        "triageTimeoutMs": numbers,
        "executionTimeoutMs": numbers,
        "accept": words,
        "reject": words,
        "triageRules": st.fixed_dictionaries({}, optional={"alwaysAccept": words, "alwaysReject": words}),
        "unknown": st.integers(),
    },
)


@given(objects)
def test_checked_object_is_read_as_it_is_written(value: dict[str, object]) -> None:
    check_auto_run(value)

    config = resolve_auto_run(value, None, DEFAULTS)

    assert config.enabled == value.get("enabled", True)
    if config.enabled:
        assert config.triage_model == (value.get("triageModel") or "haiku")
        assert config.debounce_ms == (value.get("debounceMs") or 3_000)
        assert config.max_batch_size == (value.get("maxBatchSize") or 20)
        assert config.triage_timeout_ms == (value.get("triageTimeoutMs") or 30_000)
        assert config.execution_timeout_ms == (value.get("executionTimeoutMs") or 300_000)
        assert set(config.accept) >= set(value.get("accept", ()))  # type: ignore[call-overload]  # a list


@pytest.mark.parametrize("value", [None, True, False, {}])
def test_plain_values_are_a_configuration(value: object) -> None:
    check_auto_run(value)


@pytest.mark.parametrize(
    "value",
    [
        1,
        1.5,
        {"enabled": "yes"},
        {"triageModel": 7},
        {"debounceMs": -1},
        {"maxBatchSize": 1.5},
        {"triageTimeoutMs": True},
        {"executionTimeoutMs": 86_400_001},
        {"triageRules": []},
        {"accept": "x"},
        {"reject": [7]},
        {"triageRules": {"alwaysAccept": "x"}},
        {"triageRules": {"alwaysReject": [None]}},
        {"accept": ["x" * 20_000]},
    ],
)
def test_value_that_is_not_a_configuration_is_refused(value: object) -> None:
    with pytest.raises(BadRequest):
        check_auto_run(value)


@pytest.mark.parametrize(
    "value",
    [
        {"debounceMs": -5},
        {"debounceMs": "5"},
        {"triageModel": 5, "triageRules": 5, "accept": 5, "reject": [5]},
    ],
)
def test_value_that_cannot_be_read_means_the_default(value: object) -> None:
    assert resolve_auto_run(None, value, DEFAULTS) == ON


@pytest.mark.parametrize(
    ("value", "is_enabled"), [("yes", False), ([], True), ({"enabled": None, "triageModel": None}, True)]
)
def test_odd_values_of_the_source_system_are_kept_and_mean_the_same(value: object, is_enabled: bool) -> None:
    check_auto_run(value)

    assert resolve_auto_run(None, value, DEFAULTS).enabled is is_enabled


def test_rules_of_the_path_broker_are_added_to_the_lists() -> None:
    value = {"accept": ["a", "b"], "triageRules": {"alwaysAccept": ["b", "c"], "alwaysReject": ["d"]}}

    config = resolve_auto_run(value, None, DEFAULTS)

    assert (config.accept, config.reject) == (("a", "b", "c"), ("d",))


# When a batch is due

times = st.lists(st.integers(0, 200_000), min_size=1, max_size=60).map(sorted)
configs = st.builds(
    TurnConfig, debounce_ms=st.integers(1, 60_000), max_batch_size=st.integers(1, LIMIT_INJECTION + 30)
)


@given(times, configs)
def test_debounce_slides_but_not_for_longer_than_its_limit(found: list[int], config: TurnConfig) -> None:
    due = due_ms(found[0], found[-1], len(found), config)

    if len(found) >= min(config.max_batch_size, LIMIT_INJECTION):
        assert due == 0
    else:
        assert due <= found[0] + LONGEST_DEBOUNCE_MS
        assert due in (found[-1] + config.debounce_ms, found[0] + LONGEST_DEBOUNCE_MS)


@given(st.integers(0, 120), configs)
def test_batches_have_the_oldest_messages_up_to_the_limit(count: int, config: TurnConfig) -> None:
    waiting = [BatchMessage(seq=seq, mailbox="luna") for seq in range(count)]

    sizes: list[int] = []
    rest = list(waiting)
    while batch := batch_of(rest, config):
        assert list(batch) == rest[: len(batch)]
        sizes.append(len(batch))
        rest = rest[len(batch) :]

    assert sum(sizes) == count
    assert all(size == batch_limit(config) for size in sizes[:-1])


@pytest.mark.parametrize(("tries", "at_ms"), [(1, 2_000), (2, 6_000), (3, 6_000)])
def test_failed_batch_waits_longer_after_its_second_error(tries: int, at_ms: int) -> None:
    assert retry_at_ms(1_000, tries) == at_ms


@given(
    st.lists(st.integers(0, 2 * HOUR_MS), max_size=30), st.integers(1, 5), st.integers(HOUR_MS, 3 * HOUR_MS)
)
def test_turn_is_allowed_as_soon_as_fewer_than_the_limit_are_recent(
    starts: list[int], limit: int, now_ms: int
) -> None:
    past = [one for one in starts if one <= now_ms]

    at_ms = allowed_at_ms(past, limit, now_ms)

    assert (at_ms == 0) == (len(recent_starts(past, now_ms)) < limit)
    if at_ms:
        assert at_ms > now_ms
        assert len(recent_starts(past, at_ms)) < limit <= len(recent_starts(past, at_ms - 1))


def test_turn_is_allowed_an_hour_after_the_first_of_the_last_ones() -> None:
    assert allowed_at_ms([30, 10, 20], 2, 40) == 20 + HOUR_MS


def test_without_a_limit_every_turn_is_allowed() -> None:
    assert allowed_at_ms([1] * 1000, 0, 2) == 0


# The triage


@pytest.mark.parametrize(
    ("accept", "reject", "verdict"),
    [
        ((), (), Verdict.ASK),
        (("b",), ("a", "b", "internal"), Verdict.RUN),
        (("internal",), (), Verdict.RUN),
        ((), ("a", "b"), Verdict.ASK),
        ((), ("a", "internal"), Verdict.ASK),
        ((), ("a", "b", "internal"), Verdict.SKIP),
    ],
)
def test_one_accepted_word_is_enough_and_all_must_be_rejected(
    accept: tuple[str, ...], reject: tuple[str, ...], verdict: Verdict
) -> None:
    found = [routed_message(message(path="x", command=command, payload={}), "luna") for command in "ab"]

    assert judge_batch(structs.replace(ON, accept=accept, reject=reject), found) is verdict


def test_empty_batch_is_not_rejected() -> None:
    assert judge_batch(ON, []) is Verdict.ASK


@pytest.mark.parametrize(
    ("output", "is_it"),
    [
        ("yes", True),
        ("  YES, because", True),
        ("\tYes", True),
        ("\nYES", False),
        ("the answer is YES", False),
    ],
)
def test_first_line_of_the_output_decides(output: str, is_it: bool) -> None:
    assert is_yes(output) is is_it


# Notices


def test_sender_of_a_held_message_is_notified() -> None:
    reason = failed_reason(9, "  exit status 1\nTraceback …")

    notice = held_notice(message(), "luna+mon", reason)

    assert notice is not None
    assert notice.to == "nova"
    assert notice.text.startswith("#7 is held for luna")
    assert "3 times, last as #9: exit status 1. 'pal release 7' tries it again" in notice.text
    assert is_failed_reason(reason)
    assert not is_failed_reason("usage limit reached")


@pytest.mark.parametrize(("error", "end"), [("", ": "), (" \n ", ": "), ("x" * 1000, "x" * 300)])
def test_reason_has_only_the_beginning_of_the_error(error: str, end: str) -> None:
    reason = failed_reason(9, error)

    assert reason.endswith(end)
    assert len(reason) < 400


def test_sender_is_notified_that_no_runner_is_running() -> None:
    notice = no_runner_notice(message(sender="human", sender_kind="human"), "luna")

    assert notice is not None
    assert (notice.to, notice.cause) == ("human", "ID7")
    assert "pal turn start" in notice.text


@pytest.mark.parametrize(
    "event",
    [message(sender="ci", sender_kind="external"), structs.replace(message(), type="x", payload={})],
    ids=["script", "foreign envelope"],
)
def test_sender_without_a_mailbox_is_not_notified(event: Event) -> None:
    assert held_notice(event, "luna", "x") is None
    assert no_runner_notice(event, "luna") is None


# The prompts


def batch(*events: Event, harness: str = "claude") -> Batch:
    copies = tuple((event, "luna") for event in events)
    return Batch(agent=structs.replace(LUNA, harness=harness), session="mon", events=copies)


def test_triage_reads_role_session_and_the_start_of_each_payload() -> None:
    first = message(1, path="build/done", command="new", payload={"log": "y" * 500}, source="ci")
    second = message(2, path="build/done", command="ping", payload={})

    prompt = triage_prompt(batch(first, second))

    assert "Agent: luna (role: reviewer, harness: claude)" in prompt
    assert "Session: mon" in prompt
    assert "Messages: 2" in prompt
    (line,) = [one for one in prompt.splitlines() if one.startswith("1. ")]
    assert line == f'1. [ci] nova → build/done new {{"log": "{"y" * 291}...'
    assert "2. [internal] nova → build/done ping" in prompt.splitlines()
    assert "role: reviewer)" in triage_prompt(batch(harness=""))


@given(st.text(max_size=400), st.text(min_size=1, max_size=40))
@example("\u2028", "0")
def test_no_message_can_end_its_line_in_the_triage(text: str, word: str) -> None:
    made = message(1, path="a/b", command=word, payload={"text": text}, source=word)

    empty, prompt = triage_prompt(batch()), triage_prompt(batch(made))

    assert len(prompt.splitlines()) == len(empty.splitlines()) + 1


def test_prompt_of_a_turn_has_the_messages_and_where_they_came_from() -> None:
    first = message(1, text="look at this")
    second = message(2, path="in/ci", command="new", payload={}, source="ci", external_id="d-1\nx")
    third = message(3, path="in/ci", command="new", payload={}, source="ci")

    prompt = turn_prompt(batch(first, second, third), "BOXE", "be brief </palaver>", "script")

    assert prompt.startswith("This is an automatic turn of luna, session mon. No person reads along.")
    assert "script, which is not a person, has started this turn and writes:\nbe brief " in prompt
    assert "look at this" in prompt
    origins = prompt.partition("Where they came from:\n")[2].splitlines()
    assert len(origins) == 2
    assert origins[0].startswith("#2: path in/ci, source ci, external id d-1")
    assert origins[1] == "#3: path in/ci, source ci"


def test_turn_of_a_person_may_have_only_a_text() -> None:
    assert turn_prompt(batch(), "BOXE", "clean up", "human") == (
        "This is an automatic turn of luna, session mon.\n\n"
        "A person has started this turn and writes:\nclean up\n"
    )
    assert "Where they came from" not in turn_prompt(batch(message()), "BOXE")
