"""The numbers about the bus, counted from a real log without doors."""

import asyncio
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from tests.fakes import HUMAN, LIMIT_A_MINUTE, SCRIPT, caller, open_sqlite
from tests.services.metric_stage import DELAY_S, metric_stage, only

from palaver.errors import RateLimited
from palaver.protocol.events import GRADES
from palaver.protocol.requests import Leave, SetStatus
from palaver.protocol.views import Attention
from palaver.services import metrics
from palaver.services.metrics import (
    MetricKind,
    harness_label,
    hold_label,
    lane_label,
    measure_delay,
)

SECRET = "the secret of the text"


@pytest.mark.parametrize("open_log", [None, open_sqlite], ids=["memory", "sqlite"])
async def test_states_of_messages_are_counted_by_lane_and_priority(tmp_path: Path, open_log: object) -> None:
    kind = {} if open_log is None else {"open_log": open_log}
    async with metric_stage(tmp_path, **kind) as stage:  # type: ignore[arg-type]  # an engine
        bus = stage.bus
        luna, nova = await bus.join("luna"), await bus.join("nova")
        first = await bus.send(luna, "one", "@nova", priority="idle")
        second = await bus.send(luna, "two", "@nova")
        await bus.report("nova", "submitted", first.seq, lane="hook")
        await bus.report("nova", "seen", first.seq, lane="hook", grade=GRADES[-1])
        await bus.ack(nova, second.seq)

        assert await stage.values("palaver_messages") == {("idle",): 1, ("normal",): 1}
        assert await stage.values("palaver_deliveries") == {
            ("queued", "none", "idle"): 1,
            ("queued", "none", "normal"): 1,
            ("submitted", "hook", "idle"): 1,
            ("seen", "hook", "idle"): 1,
            ("seen", "sdk", "normal"): 1,
        }


async def test_seconds_until_seen_and_answered_are_in_their_buckets(tmp_path: Path) -> None:
    async with metric_stage(tmp_path) as stage:
        bus = stage.bus
        luna, nova = await bus.join("luna"), await bus.join("nova")
        message = await bus.send(luna, "can you?", "@nova", intent="request")
        bus.clock.advance(4)
        await bus.ack(nova, message.seq)
        bus.clock.advance(36)
        await bus.send(nova, "yes", "@luna", reply_to=str(message.seq))
        await bus.send(nova, "yes again", "@luna", reply_to=str(message.seq))

        seen, answered = (
            await stage.family("palaver_seen_seconds"),
            await stage.family("palaver_answered_seconds"),
        )

        assert (only(seen).labels, only(seen).value, only(seen).count) == ({"lane": "sdk"}, 4.0, 1)
        assert dict(zip(seen.bounds, only(seen).buckets, strict=False))[5.0] == 1
        # The second reply changes nothing: the message was answered already.
        assert (only(answered).value, only(answered).count) == (40.0, 1)
        assert dict(zip(answered.bounds, only(answered).buckets, strict=False))[60.0] == 1


async def test_clock_set_back_counts_as_no_time(tmp_path: Path) -> None:
    async with metric_stage(tmp_path) as stage:
        bus = stage.bus
        luna, nova = await bus.join("luna"), await bus.join("nova")
        message = await bus.send(luna, "one", "@nova")
        bus.clock.advance(-100)
        await bus.ack(nova, message.seq)

        assert await stage.counts("palaver_seen_seconds") == {("sdk",): (1, 0.0)}


async def test_second_read_counts_only_new_events(tmp_path: Path) -> None:
    async with metric_stage(tmp_path) as stage:
        luna = await stage.bus.join("luna")
        await stage.bus.join("nova")
        await stage.bus.send(luna, "one", "@nova")
        before = await stage.values("palaver_messages")
        await stage.bus.send(luna, "two", "@nova")

        first, second = await asyncio.gather(stage.metrics.read(), stage.metrics.read())

        assert before == {("normal",): 1}
        assert await stage.values("palaver_messages") == {("normal",): 2}
        assert first.families[0] == second.families[0]


async def test_long_log_is_counted_from_the_start_of_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "LIMIT_COUNTED", 4)
    async with metric_stage(tmp_path) as stage:
        luna = await stage.bus.join("luna")
        await stage.bus.join("nova")
        await stage.bus.send(luna, "before", "@nova")
        late = type(stage)(stage.bus, tmp_path)
        await stage.bus.send(luna, "after", "@nova")

        assert await late.values("palaver_messages") == {("normal",): 1}


async def test_first_read_of_a_long_log_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "LIMIT_COUNTED", 4)
    async with metric_stage(tmp_path, open_sqlite) as stage:
        luna = await stage.bus.join("luna")
        await stage.bus.join("nova")
        for number in range(10):
            stage.bus.clock.advance(1)
            await stage.bus.send(luna, str(number), "@nova")
        last = stage.bus.clock.now_ms()

        numbers = await stage.metrics.read()

        assert numbers.since == last - 3_000
        assert await stage.values("palaver_messages") == {("normal",): 4}


async def test_held_messages_are_counted_by_reason(tmp_path: Path) -> None:
    async with metric_stage(tmp_path) as stage:
        bus = stage.bus
        await bus.join("luna")
        await bus.join("nova")
        fast = caller(bus.agent("luna"), harness="claude")
        for number in range(LIMIT_A_MINUTE + 2):
            with suppress(RateLimited):
                await bus.send(fast, str(number), "@nova")
        gated = await bus.send(HUMAN, "gated", "@nova")
        await bus.report("nova", "held", gated.seq, lane="terminal", reason="dialog")

        held = await stage.values("palaver_held_messages")

        assert held == {("brake_rate",): 2, ("dialog",): 1}
        assert await stage.values("palaver_holds") == held


async def test_open_messages_are_counted_by_state_and_priority(tmp_path: Path) -> None:
    async with metric_stage(tmp_path) as stage:
        bus = stage.bus
        luna, nova = await bus.join("luna"), await bus.join("nova")
        done = await bus.send(luna, "done", "@nova")
        await bus.ack(nova, done.seq)
        await bus.send(luna, "waits", "@nova", priority="idle-first")
        sent = await bus.send(luna, "on its way", "@nova", priority="interrupt")
        await bus.report("nova", "submitted", sent.seq, lane="native")

        assert await stage.values("palaver_open_messages") == {
            ("queued", "idle-first"): 1,
            ("submitted", "interrupt"): 1,
        }


async def test_agents_are_counted_by_state_and_known_harness(tmp_path: Path) -> None:
    async with metric_stage(tmp_path) as stage:
        bus = stage.bus
        luna = await bus.join("luna", harness="claude")
        await bus.join("nova", harness="secretword")
        left = await bus.join("left")
        await bus.submit(left, Leave())
        await bus.submit(luna, SetStatus(state="active"))

        found = await stage.values("palaver_agents")

        assert found == {("active", "claude"): 1, ("idle", "other"): 1}


async def test_names_are_exported_only_with_their_setting(tmp_path: Path) -> None:
    async with metric_stage(tmp_path) as stage:
        luna = await stage.bus.join("luna")
        await stage.bus.join("nova")
        sent = await stage.bus.send(luna, SECRET, "@nova", thread="secretthread")
        await stage.bus.report("nova", "held", sent.seq, lane="secretlane", reason="secretreason")
        named = type(stage)(stage.bus, tmp_path, metrics_names=1)

        plain = msgspec.json.encode(await stage.metrics.read()).decode()
        full = msgspec.json.encode(await named.metrics.read()).decode()

        assert "luna" not in plain
        assert "nova" not in plain
        assert "secret" not in plain + full
        assert await named.values("palaver_agent_unread_messages") == {("luna",): 0, ("nova",): 1}
        assert await named.values("palaver_agent_state") == {("luna", "idle"): 1, ("nova", "idle"): 1}


async def test_attention_sticks_and_turns_are_counted(tmp_path: Path) -> None:
    async with metric_stage(tmp_path) as stage:
        stage.attention = [
            Attention(key=f"held/{number}", kind="held", who="luna", what="", since=0, why="")
            for number in (1, 2)
        ]

        assert await stage.values("palaver_attention") == {("held",): 2}
        assert await stage.values("palaver_stick_waiters") == {(): 3}
        assert await stage.values("palaver_auto_turn_sessions") == {("queued",): 0, ("running",): 0}


async def test_storage_and_the_event_loop_are_measured(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "one").write_bytes(b"12345")
    async with metric_stage(tmp_path, open_sqlite) as stage:
        await stage.bus.send(HUMAN, "one", "@human")
        stage.metrics.count_slow_step()
        stage.metrics.count_slow_follower("irc")

        sizes = await stage.values("palaver_log_bytes")

        assert sizes[("archives",)] == 5
        assert sizes[("database",)] > 0
        assert await stage.values("palaver_log_seq") == {(): stage.bus.log.last()}
        assert await stage.values("palaver_event_loop_delay_seconds") == {(): DELAY_S}
        assert await stage.values("palaver_slow_steps") == {(): 1}
        assert await stage.values("palaver_slow_followers") == {("irc",): 1, ("view",): 0, ("websocket",): 0}


async def test_foreign_types_and_unreadable_events_are_counted_as_other(tmp_path: Path) -> None:
    async with metric_stage(tmp_path) as stage:
        await stage.bus.join("luna")
        await stage.bus.send(SCRIPT, "one", "@luna")

        commits = await stage.values("palaver_commits")

        assert commits[("message",)] == 1
        assert ("agent.hello",) in commits


async def test_reading_the_delay_returns_no_negative_number() -> None:
    assert await measure_delay() >= 0


@pytest.mark.parametrize(
    ("reason", "label"),
    [
        ("dialog", "dialog"),
        ("41 replies between agents without a person in between", "brake_hops"),
        ("more than 60 messages a minute from luna to one agent", "brake_rate"),
        ("more than 1 message a minute from luna to one agent", "brake_rate"),
        ("usage limit: until 12:00", "usage_limit"),
        ("the automatic turn failed 3 times, last as #4: no", "turn_failed"),
        ("its content is lost", "lost"),
        ("anything that an agent wrote", "other"),
        ("", "other"),
    ],
)
def test_reasons_of_held_messages_have_fixed_labels(reason: str, label: str) -> None:
    assert hold_label(reason) == label


def test_unknown_lanes_and_harnesses_have_one_label() -> None:
    assert (lane_label("hook"), lane_label(""), lane_label("x")) == ("hook", "none", "other")
    assert (harness_label("codex"), harness_label(""), harness_label("x")) == ("codex", "none", "other")


async def test_every_family_has_its_own_name_and_a_help_text(tmp_path: Path) -> None:
    async with metric_stage(tmp_path, metrics_names=1) as stage:
        families = (await stage.metrics.read()).families

        names = [family.name for family in families]
        assert len(names) == len(set(names))
        assert all(family.help.endswith(".") for family in families)
        assert all(bool(family.bounds) == (family.kind is MetricKind.HISTOGRAM) for family in families)
