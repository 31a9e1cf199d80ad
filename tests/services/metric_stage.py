"""A bus without doors whose numbers a test reads."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.fakes import Bus, OpenLog, open_memory, opened_bus

from palaver.config import KEYS, LiveSettings, LoadedSettings, Settings
from palaver.protocol.views import Attention
from palaver.services.metrics import MetricFamily, Metrics, MetricSources, Numbers, Sample
from palaver.services.queries import Queries

DELAY_S = 0.25


class MetricStage:
    """The bus, and its numbers."""

    def __init__(self, bus: Bus, home: Path, **settings: object) -> None:
        self.bus = bus
        self.live = live_settings(**settings)
        self.attention: Iterable[Attention] = ()
        self.queries = Queries(bus.log)
        self.metrics = Metrics(
            MetricSources(
                queries=self.queries,
                home=home,
                clock=bus.clock,
                live=self.live,
                agents=bus.broker.directory.all,
                attention=self._read_attention,
                count_waiting=lambda: 3,
            ),
            measure_delay=_delay,
        )

    async def _read_attention(self) -> Iterable[Attention]:
        return self.attention

    async def family(self, name: str) -> MetricFamily:
        return family_in(await self.metrics.read(), name)

    async def values(self, name: str) -> dict[tuple[str, ...], float]:
        """Return the samples of a family by their labels."""
        return {tuple(one.labels.values()): one.value for one in (await self.family(name)).samples}

    async def counts(self, name: str) -> dict[tuple[str, ...], tuple[int, float]]:
        """Return how many values the histograms of a family have, and their sum."""
        samples = (await self.family(name)).samples
        return {tuple(one.labels.values()): (one.count, one.value) for one in samples}


async def _delay() -> float:
    return DELAY_S


def live_settings(**settings: object) -> LiveSettings:
    made = Settings(**settings)  # type: ignore[arg-type]  # its fields
    return LiveSettings(LoadedSettings(settings=made, origins=dict.fromkeys(KEYS, "default")))


def family_in(numbers: Numbers, name: str) -> MetricFamily:
    return next(family for family in numbers.families if family.name == name)


def only(family: MetricFamily) -> Sample:
    (sample,) = family.samples
    return sample


@asynccontextmanager
async def metric_stage(
    home: Path, open_log: OpenLog = open_memory, **settings: object
) -> AsyncIterator[MetricStage]:
    async with opened_bus(open_log, home) as bus:
        yield MetricStage(bus, home, **settings)


def parse_openmetrics(text: str) -> list[Metric]:
    """Read OpenMetrics text with the official parser, which refuses every mistake in it."""
    return list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]  # it has no types
