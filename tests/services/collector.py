"""A small OTLP collector on this machine. It reads requests with the official messages."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import h11
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tests.limits import LIMIT_S


@dataclass
class Collector:
    """The received data. The test sets the status of the next replies."""

    url: str = ""
    status: int = 200
    is_silent: bool = False
    """It closes each connection without a reply."""
    requests: list[str] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    metrics: dict[str, Metric] = field(default_factory=dict)
    resource: dict[str, str | int] = field(default_factory=dict)
    raw: bytes = b""
    received: asyncio.Event = field(default_factory=asyncio.Event)

    def spans_named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    async def until_received(self) -> None:
        async with asyncio.timeout(LIMIT_S):
            await self.received.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER)
        head, body = None, b""
        while (event := connection.next_event()) is not h11.PAUSED and type(event) is not h11.EndOfMessage:
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(65536))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.ConnectionClosed):  # before a whole request
                writer.close()
                return
        assert head is not None
        if not self.is_silent:
            if self.status == 200:
                self._take(head, body)
            answer = h11.Response(status_code=self.status, headers=[("Content-Length", "0")])
            writer.write((connection.send(answer) or b"") + (connection.send(h11.EndOfMessage()) or b""))
        self.requests.append(head.target.decode())
        self.received.set()
        writer.close()

    def _take(self, head: h11.Request, body: bytes) -> None:
        assert dict(head.headers)[b"content-type"] == b"application/x-protobuf"
        self.raw += body
        if head.target == b"/v1/traces":
            for traces in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resource |= attributes_of(traces.resource.attributes)
                self.spans += [span for scope in traces.scope_spans for span in scope.spans]
        else:
            for metrics in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                self.metrics |= {one.name: one for scope in metrics.scope_metrics for one in scope.metrics}


def attributes_of(pairs: object) -> dict[str, str | int]:
    """Return attributes as a dictionary."""
    found: dict[str, str | int] = {}
    for pair in pairs:  # type: ignore[attr-defined]  # a repeated field
        assert isinstance(pair, KeyValue)
        found[pair.key] = getattr(pair.value, pair.value.WhichOneof("value") or "string_value")
    return found


def point_of(metric: Metric, labels: Mapping[str, str]) -> object:
    """Return the point of a metric with these labels."""
    kind = metric.WhichOneof("data")
    assert kind is not None
    (found,) = [
        point for point in getattr(metric, kind).data_points if attributes_of(point.attributes) == labels
    ]
    return found


@asynccontextmanager
async def running_collector() -> AsyncIterator[Collector]:
    """Yield a collector at a free port."""
    collector = Collector()
    server = await asyncio.start_server(collector.serve, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        collector.url = f"http://{host}:{port}"
        yield collector
