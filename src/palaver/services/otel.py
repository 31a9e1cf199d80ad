"""Send numbers and spans of messages to an OTLP collector over HTTP, if the setting `otel_endpoint` is set.

A message has a span `create`, and for each recipient `deliver`, `seen` and `answered`, in one trace. Their
ids follow from the seq, so that spans of several daemons fit together. They contain no text, and names of
agents only with the setting `metrics_names`. Needs the extra `palaver[otel]`, which is imported in a thread.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from palaver.config import LiveSettings, Settings
from palaver.errors import PalaverError
from palaver.ids import is_ulid
from palaver.log.api import EventKey, EventKind
from palaver.protocol.envelope import Event
from palaver.protocol.events import ENDS, MessageSent, State
from palaver.services.metrics import (
    MessageStep,
    MetricFamily,
    MetricKind,
    Metrics,
    Numbers,
    Steps,
    lane_label,
)
from palaver.services.queries import Queries
from palaver.state.agents import read_entry
from palaver.state.rows import Rows
from palaver.version import __version__

if TYPE_CHECKING:
    import h11

# --------------------
# Spans. Pure.

SYSTEM: Final = "palaver"
CREATE: Final = "create"
DELIVER: Final = "deliver"
SEEN: Final = "seen"
ANSWERED: Final = "answered"
_TYPES: Final = {CREATE: "create", DELIVER: "send", SEEN: "process", ANSWERED: "settle"}
"""The operation type of each span, as the conventions for messaging name it."""
_KINDS: Final = {CREATE: 4, DELIVER: 3, SEEN: 5, ANSWERED: 3}
"""The kind of each span: producer, client, consumer, client."""
_NS_PER_MS: Final = 1_000_000

AttributeValue = str | int


class SpanId(NamedTuple):
    """The identity of a span."""

    trace: bytes
    span: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One span. Times are Unix milliseconds."""

    id: SpanId
    name: str
    start_ms: int
    end_ms: int
    parent: bytes = b""
    links: Sequence[SpanId] = ()
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    error: str = ""


class SpanMaker:
    """Makes the spans of events, which come in seq order."""

    def __init__(self, device: str, rows: Rows, steps: Steps) -> None:
        self._device = device
        self._rows = rows
        self._steps = steps

    def of(self, event: Event, *, with_names: bool) -> Iterator[Span]:
        """Yield the spans that end with an event."""
        steps = list(self._steps.of(event))
        is_new = isinstance(event.body, MessageSent) and not event.imported
        if is_new or any(step.state == State.QUEUED and step.origin.seq == event.seq for step in steps):
            yield self._created(event, with_names=with_names)
        for step in steps:
            if (name := _name_of(step)) is not None:
                yield self._stepped(step, name, with_names=with_names)

    def _created(self, event: Event, *, with_names: bool) -> Span:
        origin = self._steps.origin_of(event.seq)
        attributes = _attributes(CREATE, event.id, event.seq)
        attributes["palaver.priority"] = "normal" if origin is None else origin.priority
        if with_names:
            attributes["messaging.client.id"] = event.sender
        id = self._id(event.seq, CREATE)
        return Span(id=id, name=CREATE, start_ms=event.ts, end_ms=event.ts, attributes=attributes)

    def _stepped(self, step: MessageStep, name: str, *, with_names: bool) -> Span:
        origin = step.origin
        create = self._id(origin.seq, CREATE)
        attributes = _attributes(name, origin.id, origin.seq)
        attributes |= {"palaver.priority": origin.priority, "palaver.lane": lane_label(step.lane)}
        if step.grade:
            attributes["palaver.grade"] = step.grade
        if with_names:
            attributes["messaging.destination.name"] = step.mailbox
        start_ms, links = self._before(step, name, create)
        if name == ANSWERED:
            links = [*links, self._id(step.seq, CREATE)]
        return Span(
            id=self._id(origin.seq, name, step.mailbox),
            name=name,
            # After the clock was set back, a span would otherwise end before it begins.
            start_ms=min(start_ms, step.ts),
            end_ms=step.ts,
            parent=create.span,
            links=links,
            attributes=attributes,
            error=step.state if step.state in ENDS else "",
        )

    def _before(self, step: MessageStep, name: str, create: SpanId) -> tuple[int, list[SpanId]]:
        """Return when a step began, and the span before it."""
        entry = read_entry(self._rows, step.origin.seq, step.mailbox)
        if entry is not None and name == SEEN and entry.submitted:
            return entry.submitted, [create, self._id(step.origin.seq, DELIVER, step.mailbox)]
        if entry is not None and name == ANSWERED and entry.seen:
            return entry.seen, [create, self._id(step.origin.seq, SEEN, step.mailbox)]
        return step.origin.ts, [create]

    def _id(self, seq: int, name: str, mailbox: str = "") -> SpanId:
        # Computed and not drawn, so that a span can name another one that was sent before a restart.
        trace = blake2b(f"{self._device}/{seq}".encode(), digest_size=16).digest()
        # The sizes are those of OTLP: 16 bytes for a trace, and 8 for a span.
        return SpanId(trace, blake2b(f"{name}/{mailbox}".encode(), digest_size=8, key=trace).digest())


def _name_of(step: MessageStep) -> str | None:
    """Return the name of the span that ends with a step; None if no span does."""
    if step.state in (State.SEEN, State.ANSWERED):
        return SEEN if step.state == State.SEEN else ANSWERED
    return DELIVER if step.state == State.SUBMITTED or step.state in ENDS else None


def _attributes(name: str, id: str, seq: int) -> dict[str, AttributeValue]:
    # Programs choose the ids of their envelopes, and could put any text into them.
    known = {"messaging.message.id": id} if is_ulid(id) else {}
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": name,
        "messaging.operation.type": _TYPES[name],
        "palaver.seq": seq,
        **known,
    }


# --------------------
# The official messages of OTLP.

_AT_ONCE: Final = 50
"""Spans that are encoded in one step of the event loop."""


class OtlpCodec:
    """Encodes spans and numbers. The modules of the extra are its only source of types."""

    def __init__(self, device: str) -> None:
        """Import the modules, which takes a while. Raises ImportError without the extra."""
        from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
        from opentelemetry.proto.common.v1 import common_pb2
        from opentelemetry.proto.metrics.v1 import metrics_pb2
        from opentelemetry.proto.resource.v1 import resource_pb2
        from opentelemetry.proto.trace.v1 import trace_pb2

        self._common: ModuleType = common_pb2
        self._metrics: ModuleType = metrics_pb2
        self._traces: ModuleType = trace_pb2
        self._metrics_request: Callable[..., Any] = metrics_service_pb2.ExportMetricsServiceRequest
        self._traces_request: Callable[..., Any] = trace_service_pb2.ExportTraceServiceRequest
        self._scope = common_pb2.InstrumentationScope(name=SYSTEM, version=__version__)
        self._resource = resource_pb2.Resource(
            attributes=self._pairs(
                {
                    "service.name": SYSTEM,
                    "service.version": __version__,
                    "service.instance.id": device,
                }
            )
        )

    async def encode_spans(self, spans: Sequence[Span]) -> bytes:
        """Return the body of a request with spans."""
        made = []
        for first in range(0, len(spans), _AT_ONCE):
            made += [self._span(span) for span in spans[first : first + _AT_ONCE]]
            await asyncio.sleep(0)
        scoped = self._traces.ScopeSpans(scope=self._scope, spans=made)
        resource = self._traces.ResourceSpans(resource=self._resource, scope_spans=[scoped])
        body: bytes = self._traces_request(resource_spans=[resource]).SerializeToString()
        return body

    def encode_numbers(self, numbers: Numbers) -> bytes:
        """Return the body of a request with all numbers."""
        made = [self._metric(family, numbers) for family in numbers.families if family.samples]
        scoped = self._metrics.ScopeMetrics(scope=self._scope, metrics=made)
        resource = self._metrics.ResourceMetrics(resource=self._resource, scope_metrics=[scoped])
        body: bytes = self._metrics_request(resource_metrics=[resource]).SerializeToString()
        return body

    def _pairs(self, values: Mapping[str, AttributeValue]) -> list[Any]:
        return [self._common.KeyValue(key=key, value=self._value(one)) for key, one in values.items()]

    def _value(self, value: AttributeValue) -> Any:
        if isinstance(value, int):
            return self._common.AnyValue(int_value=value)
        return self._common.AnyValue(string_value=value)

    def _span(self, span: Span) -> Any:
        traces = self._traces
        error = {"error.type": span.error} if span.error else {}
        code = traces.Status.STATUS_CODE_ERROR if span.error else traces.Status.STATUS_CODE_UNSET
        return traces.Span(
            trace_id=span.id.trace,
            span_id=span.id.span,
            parent_span_id=span.parent,
            name=span.name,
            kind=_KINDS[span.name],
            start_time_unix_nano=span.start_ms * _NS_PER_MS,
            end_time_unix_nano=span.end_ms * _NS_PER_MS,
            attributes=self._pairs({**span.attributes, **error}),
            links=[traces.Span.Link(trace_id=one.trace, span_id=one.span) for one in span.links],
            status=traces.Status(code=code),
        )

    def _metric(self, family: MetricFamily, numbers: Numbers) -> Any:
        metrics = self._metrics
        times = {
            "start_time_unix_nano": numbers.since * _NS_PER_MS,
            "time_unix_nano": numbers.now * _NS_PER_MS,
        }
        unit = "s" if family.name.endswith("_seconds") else "By" if family.name.endswith("_bytes") else ""
        cumulative = metrics.AGGREGATION_TEMPORALITY_CUMULATIVE
        metric = metrics.Metric(name=family.name, description=family.help, unit=unit)
        points = [(sample, {"attributes": self._pairs(sample.labels), **times}) for sample in family.samples]
        match family.kind:
            case MetricKind.HISTOGRAM:
                metric.histogram.aggregation_temporality = cumulative
                metric.histogram.data_points.extend(
                    metrics.HistogramDataPoint(
                        count=sample.count,
                        sum=sample.value,
                        bucket_counts=sample.buckets,
                        explicit_bounds=family.bounds,
                        **common,
                    )
                    for sample, common in points
                )
            case MetricKind.COUNTER:
                metric.sum.aggregation_temporality = cumulative
                metric.sum.is_monotonic = True
                metric.sum.data_points.extend(
                    metrics.NumberDataPoint(as_int=int(sample.value), **common) for sample, common in points
                )
            case MetricKind.GAUGE:
                metric.gauge.data_points.extend(
                    metrics.NumberDataPoint(as_double=sample.value, **common) for sample, common in points
                )
        return metric


# --------------------
# One HTTP request.

POST_LIMIT_S: Final = 10.0
"""Seconds that one request may take, with its connection."""
LIMIT_ANSWER_BYTES: Final = 64 * 1024
"""Bytes of a reply that are read at once."""
_RETRY: Final = frozenset({429, 502, 503, 504})
"""Replies after which the same data is sent again later."""


async def post(url: str, body: bytes) -> int:
    """Send protobuf data to a URL, and return the status. Raises OSError if there is no reply."""
    import h11  # only an exporter needs it

    parts = urlsplit(url)
    is_secure = parts.scheme == "https"
    port = parts.port or (443 if is_secure else 80)
    # It reads all certificates of the system.
    context = await asyncio.to_thread(ssl.create_default_context) if is_secure else None
    reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=context)
    try:
        connection = h11.Connection(h11.CLIENT)
        head = h11.Request(
            method="POST",
            target=parts.path or "/",
            headers=[
                ("Host", parts.netloc),
                ("Content-Type", "application/x-protobuf"),
                ("Content-Length", str(len(body))),
                ("User-Agent", f"{SYSTEM}/{__version__}"),
                ("Connection", "close"),
            ],
        )
        for event in (head, h11.Data(data=body), h11.EndOfMessage()):
            writer.write(connection.send(event) or b"")
        await writer.drain()
        return await _read_status(connection, reader)
    except h11.LocalProtocolError as error:
        raise OSError(f"the URL cannot be used: {error}") from error
    except h11.RemoteProtocolError as error:
        raise OSError(f"the reply is not HTTP: {error}") from error
    finally:
        writer.close()
        # The status is known by then, or another error is raised already.
        with suppress(OSError):
            await writer.wait_closed()


async def _read_status(connection: "h11.Connection", reader: asyncio.StreamReader) -> int:
    import h11  # as above

    while True:
        event = connection.next_event()
        if isinstance(event, h11.Response):
            # The body is not read: only the status decides what happens with the data.
            return event.status_code
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(LIMIT_ANSWER_BYTES))
        elif not isinstance(event, h11.InformationalResponse):
            raise OSError("the connection was closed without a reply")


# --------------------
# The exporter.

EVERY_S: Final = 10.0
"""Seconds between two exports."""
LIMIT_EVENTS: Final = 10_000
"""Events that wait to be sent. When they are more, the oldest are dropped."""
LIMIT_BATCH: Final = 500
"""Spans in one request."""
MISSING: Final = "otel_endpoint is set, but its extra is missing: install it with pip install 'palaver[otel]'"

_TYPES_HEARD: Final[frozenset[EventKey]] = frozenset({"message", "delivery", EventKind.DELIVERED})
_logger: Final = logging.getLogger("palaver.otel")

Post = Callable[[str, bytes], Coroutine[Any, Any, int]]
CreateTask = Callable[[Coroutine[Any, Any, None]], object]


class OtelExport:
    """Sends while the setting is set, and costs nothing otherwise.

    A collector that does not answer is logged once, until it answers again. Spans wait for it up to a limit.
    """

    def __init__(
        self,
        queries: Queries,
        metrics: Metrics,
        live: LiveSettings,
        create_task: CreateTask,
        *,
        post: Post = post,
        every_s: float = EVERY_S,
    ) -> None:
        self._queries = queries
        self._metrics = metrics
        self._live = live
        self._create_task = create_task
        self._post = post
        self._every_s = every_s
        self._events: deque[Event] = deque(maxlen=LIMIT_EVENTS)
        self._spans: deque[Span] = deque(maxlen=LIMIT_EVENTS)
        self._maker: SpanMaker | None = None
        self._codec: OtlpCodec | None = None
        self._stop: Callable[[], None] | None = None
        self._end = asyncio.Event()

    @property
    def trouble(self) -> str:
        """Why nothing can be sent, as a sentence; empty if all is well."""
        return self._metrics.export_trouble

    def start(self) -> None:
        """Begin now, or when the setting is set."""
        self._live.watch(self._change)
        self._change(self._live.now)

    def close(self) -> None:
        """Stop. Events that wait are not sent."""
        if self._stop is not None:
            self._stop()
            self._stop = None
        self._events.clear()
        self._spans.clear()
        self._metrics.export_trouble = ""
        self._end.set()

    def _change(self, settings: Settings) -> None:
        is_on = bool(settings.otel_endpoint)
        if is_on and self._stop is None:
            # The handler only collects: it runs before a commit returns, and spans take longer to make.
            self._stop = self._queries.subscribe(self._events.extend, _TYPES_HEARD)
            # A new event: the task of an earlier setting may still be sending, and must end after that.
            self._end = asyncio.Event()
            self._create_task(self._run(self._end))
        elif not is_on:
            self.close()

    async def _run(self, end: asyncio.Event) -> None:
        try:
            await self._load()
        except ImportError:
            self._tell(MISSING)
            return
        while not end.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await end.wait()
            if not end.is_set():
                await self.send()

    async def _load(self) -> None:
        if self._codec is None:
            self._codec = await asyncio.to_thread(OtlpCodec, self._queries.device)
            queries = self._queries
            self._maker = SpanMaker(queries.device, queries.rows, Steps(queries.rows, queries.event))

    async def send(self) -> None:
        """Send all spans and numbers that are due now."""
        await self._load()
        assert self._codec is not None
        try:
            await self._make_spans()
            while self._spans:
                batch = [self._spans.popleft() for _ in range(min(LIMIT_BATCH, len(self._spans)))]
                if not await self._sent("/v1/traces", await self._codec.encode_spans(batch)):
                    # `extendleft` adds one by one, which reverses the order.
                    self._spans.extendleft(reversed(batch))
                    return
            await self._sent("/v1/metrics", self._codec.encode_numbers(await self._metrics.read()))
        except PalaverError as error:  # The log cannot be read at the moment.
            self._tell(f"numbers could not be sent: {error}")

    async def _make_spans(self) -> None:
        assert self._maker is not None
        with_names = bool(self._live.now.metrics_names)
        # The number of events is taken once: those that come during the awaits are sent the next time.
        for count in range(1, len(self._events) + 1):
            if not self._events:  # `close` has emptied it during the `sleep` below.
                return
            self._spans.extend(self._maker.of(self._events.popleft(), with_names=with_names))
            if count % _AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _sent(self, path: str, body: bytes) -> bool:
        """Send one request; False if it should be repeated later."""
        endpoint = self._live.now.otel_endpoint
        if not endpoint:  # The setting was cleared during an await of `send`.
            return True
        url = endpoint.rstrip("/") + path
        try:
            async with asyncio.timeout(POST_LIMIT_S):
                status = await self._post(url, body)
        except (OSError, ValueError) as error:  # A timeout is an OSError too.
            self._tell(f"the collector at {url} does not answer: {error or 'too slow'}")
            return False
        if status >= 300:
            self._tell(f"the collector at {url} refuses the data with status {status}")
            # Other refusals are permanent: the same data would be refused again and keep back the rest.
            return status not in _RETRY
        if self.trouble:
            _logger.info("the collector answers again")
            self._metrics.export_trouble = ""
        return True

    def _tell(self, sentence: str) -> None:
        # A request can fail after the setting was cleared, and then there is nothing left to report.
        if self._stop is not None and sentence != self.trouble:
            self._metrics.export_trouble = sentence
            _logger.warning("%s", sentence)
