"""Spans and numbers as a real collector receives them."""

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from tests.fakes import open_memory
from tests.services.collector import Collector, attributes_of, point_of, running_collector
from tests.services.metric_stage import MetricStage, metric_stage

from palaver.protocol.envelope import Draft
from palaver.protocol.requests import Put
from palaver.services import otel
from palaver.services.otel import MISSING, OtelExport

SECRET = "the secret text"


class Exported:
    """A bus, its exporter, and the collector that it sends to."""

    def __init__(self, stage: MetricStage, collector: Collector, export: OtelExport) -> None:
        self.stage = stage
        self.bus = stage.bus
        self.collector = collector
        self.export = export

    def set(self, **settings: object) -> None:
        """Change settings, as 'pal config set' does."""
        live = self.stage.live
        live.take(replace(live.now, **settings), settings)  # type: ignore[arg-type]  # its fields

    async def span(self, name: str) -> Span:
        (found,) = self.collector.spans_named(name)
        return found


@asynccontextmanager
async def exported(
    home: Path, *, is_on: bool = True, every_s: float = 3_600, **settings: object
) -> AsyncIterator[Exported]:
    """Yield an exporter that sends only when the test orders it, unless `every_s` is short."""
    async with running_collector() as collector, asyncio.TaskGroup() as tasks:
        url = collector.url if is_on else ""
        async with metric_stage(home, open_memory, otel_endpoint=url, **settings) as stage:
            export = OtelExport(stage.queries, stage.metrics, stage.live, tasks.create_task, every_s=every_s)
            export.start()
            yield Exported(stage, collector, export)
            export.close()


def link_ids(span: Span) -> list[tuple[bytes, bytes]]:
    return [(link.trace_id, link.span_id) for link in span.links]


def id_of(span: Span) -> tuple[bytes, bytes]:
    return span.trace_id, span.span_id


async def test_spans_of_a_message_are_linked_in_one_trace(tmp_path: Path) -> None:
    async with exported(tmp_path) as stage:
        bus = stage.bus
        luna, nova = await bus.join("luna"), await bus.join("nova")
        message = await bus.send(luna, SECRET, "@nova", intent="request", thread="secretthread")
        bus.clock.advance(1)
        await bus.report("nova", "submitted", message.seq, lane="hook")
        bus.clock.advance(2)
        await bus.report("nova", "seen", message.seq, lane="hook", grade="context")
        bus.clock.advance(3)
        await bus.send(nova, SECRET, "@luna", reply_to=str(message.seq))

        await stage.export.send()

        create, reply = stage.collector.spans_named("create")
        deliver, seen = await stage.span("deliver"), await stage.span("seen")
        answered = await stage.span("answered")
        assert {one.trace_id for one in (deliver, seen, answered)} == {create.trace_id}
        assert {one.parent_span_id for one in (deliver, seen, answered)} == {create.span_id}
        assert link_ids(deliver) == [id_of(create)]
        assert link_ids(seen) == [id_of(create), id_of(deliver)]
        assert link_ids(answered) == [id_of(create), id_of(seen), id_of(reply)]
        lengths = [one.end_time_unix_nano - one.start_time_unix_nano for one in (deliver, seen, answered)]
        assert lengths == [1_000_000_000, 2_000_000_000, 3_000_000_000]


async def test_attributes_use_the_names_for_messaging(tmp_path: Path) -> None:
    async with exported(tmp_path) as stage:
        luna, nova = await stage.bus.join("luna"), await stage.bus.join("nova")
        message = await stage.bus.send(luna, "one", "@nova")
        await stage.bus.ack(nova, message.seq)

        await stage.export.send()

        assert attributes_of((await stage.span("create")).attributes) == {
            "messaging.system": "palaver",
            "messaging.operation.name": "create",
            "messaging.operation.type": "create",
            "messaging.message.id": message.id,
            "palaver.seq": message.seq,
            "palaver.priority": "normal",
        }
        assert attributes_of((await stage.span("seen")).attributes) == {
            "messaging.system": "palaver",
            "messaging.operation.name": "seen",
            "messaging.operation.type": "process",
            "messaging.message.id": message.id,
            "palaver.seq": message.seq,
            "palaver.priority": "normal",
            "palaver.lane": "sdk",
            "palaver.grade": "acked",
        }
        assert (await stage.span("create")).kind == Span.SPAN_KIND_PRODUCER
        assert (await stage.span("seen")).kind == Span.SPAN_KIND_CONSUMER
        assert stage.collector.resource["service.name"] == "palaver"


async def test_no_text_and_no_name_reaches_the_collector(tmp_path: Path) -> None:
    async with exported(tmp_path) as stage:
        luna, nova = await stage.bus.join("luna"), await stage.bus.join("nova")
        message = await stage.bus.send(luna, SECRET, "@nova", thread="secretthread")
        await stage.bus.report("nova", "held", message.seq, lane="secretlane", reason="secretreason")
        foreign = Draft.new("secrettype", "luna", {"secretkey": SECRET}, to=["nova"])
        await stage.bus.submit(luna, Put(envelope=foreign))
        await stage.bus.ack(nova, message.seq)

        await stage.export.send()

        assert stage.collector.spans
        assert stage.collector.metrics
        for word in (b"secret", b"luna", b"nova"):
            assert word not in stage.collector.raw


async def test_id_that_a_program_chose_freely_is_not_exported(tmp_path: Path) -> None:
    async with exported(tmp_path) as stage:
        luna, _ = await stage.bus.join("luna"), await stage.bus.join("nova")
        foreign = Draft(type="custom", id="secret words as an id", sender="luna", to=("nova",), ts=1)
        await stage.bus.submit(luna, Put(envelope=foreign))

        await stage.export.send()

        assert b"secret" not in stage.collector.raw
        assert "messaging.message.id" not in attributes_of((await stage.span("create")).attributes)


async def test_names_are_sent_only_with_their_setting(tmp_path: Path) -> None:
    async with exported(tmp_path, metrics_names=1) as stage:
        luna, nova = await stage.bus.join("luna"), await stage.bus.join("nova")
        message = await stage.bus.send(luna, "one", "@nova")
        await stage.bus.ack(nova, message.seq)

        await stage.export.send()

        create, seen = await stage.span("create"), await stage.span("seen")
        assert attributes_of(create.attributes)["messaging.client.id"] == "luna"
        assert attributes_of(seen.attributes)["messaging.destination.name"] == "nova"


async def test_refused_message_has_a_failed_span(tmp_path: Path) -> None:
    async with exported(tmp_path) as stage:
        luna, _ = await stage.bus.join("luna"), await stage.bus.join("nova")
        message = await stage.bus.send(luna, "one", "@nova")
        await stage.bus.report("nova", "refused", message.seq, lane="native", reason="secret")

        await stage.export.send()

        deliver = await stage.span("deliver")
        assert deliver.status.code == Status.STATUS_CODE_ERROR
        assert attributes_of(deliver.attributes)["error.type"] == "refused"


async def test_numbers_arrive_with_their_kinds(tmp_path: Path) -> None:
    async with exported(tmp_path) as stage:
        luna, nova = await stage.bus.join("luna"), await stage.bus.join("nova")
        message = await stage.bus.send(luna, "one", "@nova")
        stage.bus.clock.advance(4)
        await stage.bus.ack(nova, message.seq)

        await stage.export.send()

        metrics = stage.collector.metrics
        assert metrics["palaver_messages"].sum.is_monotonic
        assert point_of(metrics["palaver_messages"], {"priority": "normal"}).as_int == 1  # type: ignore[attr-defined]  # a point
        seen = metrics["palaver_seen_seconds"].histogram.data_points[0]
        assert (seen.count, seen.sum, len(seen.bucket_counts)) == (1, 4.0, len(seen.explicit_bounds) + 1)
        assert metrics["palaver_seen_seconds"].unit == "s"
        assert metrics["palaver_log_seq"].gauge.data_points[0].as_double == stage.bus.log.last()


async def test_spans_have_the_same_ids_after_a_restart(tmp_path: Path) -> None:
    async with exported(tmp_path) as stage:
        luna, nova = await stage.bus.join("luna"), await stage.bus.join("nova")
        message = await stage.bus.send(luna, "one", "@nova")
        await stage.export.send()
        again = OtelExport(stage.stage.queries, stage.stage.metrics, stage.stage.live, _run_nothing)
        again.start()
        await stage.bus.ack(nova, message.seq)

        await again.send()

        assert link_ids(await stage.span("seen")) == [id_of(await stage.span("create"))]


def _run_nothing(work: Coroutine[Any, Any, None]) -> None:
    work.close()


async def test_nothing_is_heard_or_sent_while_the_setting_is_empty(tmp_path: Path) -> None:
    async with exported(tmp_path, is_on=False, every_s=0.001) as stage:
        luna = await stage.bus.join("luna")
        await stage.bus.send(luna, "before", "@human")
        stage.set(otel_endpoint=stage.collector.url)
        await stage.bus.send(luna, "after", "@human")
        await stage.collector.until_received()
        stage.set(otel_endpoint="")

        assert len(stage.collector.spans_named("create")) <= 1


async def test_exporter_sends_by_itself(tmp_path: Path) -> None:
    async with exported(tmp_path, every_s=0.001) as stage:
        luna = await stage.bus.join("luna")
        await stage.bus.send(luna, "one", "@human")

        await stage.collector.until_received()

        assert stage.collector.requests[0] in ("/v1/traces", "/v1/metrics")


@pytest.mark.parametrize("failure", ["busy", "silent", "away"])
async def test_spans_wait_for_a_collector_that_does_not_answer(
    tmp_path: Path, failure: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with exported(tmp_path) as stage:
        collector = stage.collector
        luna = await stage.bus.join("luna")
        await stage.bus.send(luna, "one", "@human")
        url = collector.url
        collector.status, collector.is_silent = (503, False) if failure == "busy" else (200, True)
        if failure == "away":
            stage.set(otel_endpoint="http://127.0.0.1:1")
        await stage.export.send()
        await stage.export.send()
        records = [record for record in caplog.records if record.name == "palaver.otel"]
        collector.status, collector.is_silent = 200, False
        stage.set(otel_endpoint=url)

        await stage.export.send()

        assert len(records) == 1
        assert len(collector.spans_named("create")) == 1
        assert stage.export.trouble == ""


async def test_url_that_http_forbids_is_reported_and_ends_nothing(tmp_path: Path) -> None:
    async with exported(tmp_path) as made:
        made.set(otel_endpoint=f"{made.collector.url}/a b")

        await made.export.send()

        assert "the URL cannot be used" in made.export.trouble


async def test_setting_can_be_cleared_while_spans_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otel, "_AT_ONCE", 1)
    async with exported(tmp_path) as stage:
        luna = await stage.bus.join("luna")
        for text in ("one", "two", "three"):
            await stage.bus.send(luna, text, "@human")
        await stage.export.send()  # Loads the codec, so that the next one begins with the spans.
        for text in ("four", "five", "six"):
            await stage.bus.send(luna, text, "@human")
        requests = len(stage.collector.requests)

        sending = asyncio.create_task(stage.export.send())
        asyncio.get_running_loop().call_soon(lambda: stage.set(otel_endpoint=""))
        await sending

        assert len(stage.collector.requests) == requests
        assert stage.export.trouble == ""


async def test_failure_of_a_request_that_outlives_its_setting_is_no_trouble(tmp_path: Path) -> None:
    async with exported(tmp_path) as stage:

        async def post(url: str, body: bytes) -> int:
            stage.set(otel_endpoint="")
            raise OSError("away")

        export = OtelExport(
            stage.stage.queries, stage.stage.metrics, stage.stage.live, _run_nothing, post=post
        )
        export.start()

        await export.send()

        assert export.trouble == ""


async def test_spans_that_a_collector_refuses_are_dropped(tmp_path: Path) -> None:
    async with exported(tmp_path) as stage:
        luna = await stage.bus.join("luna")
        await stage.bus.send(luna, "one", "@human")
        stage.collector.status = 400
        await stage.export.send()
        assert "status 400" in stage.export.trouble
        stage.collector.status = 200

        await stage.export.send()

        assert stage.collector.spans == []


async def test_waiting_spans_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel, "LIMIT_EVENTS", 3)
    async with exported(tmp_path) as stage:
        luna = await stage.bus.join("luna")
        for number in range(5):
            await stage.bus.send(luna, str(number), "@human")

        await stage.export.send()

        assert len(stage.collector.spans_named("create")) == 3


async def test_many_spans_are_sent_in_several_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otel, "LIMIT_BATCH", 2)
    async with exported(tmp_path) as stage:
        luna = await stage.bus.join("luna")
        for number in range(5):
            await stage.bus.send(luna, str(number), "@human")

        await stage.export.send()

        assert stage.collector.requests == ["/v1/traces"] * 3 + ["/v1/metrics"]


async def test_missing_extra_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with exported(tmp_path, is_on=False) as stage:
        monkeypatch.setitem(sys.modules, "opentelemetry.proto.trace.v1", None)
        stage.stage.live.now = replace(stage.stage.live.now, otel_endpoint="http://127.0.0.1:1")
        started: list[Coroutine[Any, Any, None]] = []
        export = OtelExport(stage.stage.queries, stage.stage.metrics, stage.stage.live, started.append)
        export.start()

        await started[0]

        assert export.trouble == MISSING
        assert [record.getMessage() for record in caplog.records if record.name == "palaver.otel"] == [
            MISSING
        ]
