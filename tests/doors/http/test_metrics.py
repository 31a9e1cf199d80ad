"""The text of `GET /metrics`, read with the official parser of Prometheus."""

import math
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.services.metric_stage import metric_stage, parse_openmetrics

from palaver.doors.http.listening import format_openmetrics
from palaver.services.metrics import MetricFamily, MetricKind, Numbers, Sample


def numbers(*families: MetricFamily) -> Numbers:
    return Numbers(since=0, now=0, families=families)


async def test_official_parser_reads_all_numbers(tmp_path: Path) -> None:
    async with metric_stage(tmp_path, metrics_names=1) as stage:
        luna, nova = await stage.bus.join("luna"), await stage.bus.join("nova")
        message = await stage.bus.send(luna, "one", "@nova")
        stage.bus.clock.advance(2)
        await stage.bus.ack(nova, message.seq)
        read = await stage.metrics.read()

        families = {one.name: one for one in parse_openmetrics(format_openmetrics(read))}

        assert set(families) == {family.name for family in read.families}
        assert {name: one.documentation for name, one in families.items()} == {
            family.name: family.help for family in read.families
        }
        seen = {
            (one.name, one.labels.get("le")): one.value for one in families["palaver_seen_seconds"].samples
        }
        assert seen["palaver_seen_seconds_bucket", "1.0"] == 0
        assert seen["palaver_seen_seconds_bucket", "2.5"] == 1
        assert seen["palaver_seen_seconds_bucket", "+Inf"] == 1
        assert seen["palaver_seen_seconds_sum", None] == 2


_WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(help=_WORDS, labels=st.dictionaries(st.sampled_from(["a", "b"]), _WORDS), value=st.floats(0, 1e12))
def test_any_text_and_number_survives_the_text_form(help: str, labels: dict[str, str], value: float) -> None:
    sample = Sample(labels=labels, value=value)
    family = MetricFamily(name="x", kind=MetricKind.GAUGE, help=help.strip(), samples=(sample,))

    (found,) = parse_openmetrics(format_openmetrics(numbers(family)))

    assert found.samples[0].labels == labels
    assert math.isclose(found.samples[0].value, value)


def test_buckets_are_cumulative() -> None:
    sample = Sample(labels={}, value=7.5, buckets=(1, 0, 2))
    family = MetricFamily(
        name="x_seconds", kind=MetricKind.HISTOGRAM, help="h", samples=(sample,), bounds=(1.0, 5.0)
    )

    text = format_openmetrics(numbers(family))

    assert text.splitlines()[3:] == [
        'x_seconds_bucket{le="1.0"} 1',
        'x_seconds_bucket{le="5.0"} 1',
        'x_seconds_bucket{le="+Inf"} 3',
        "x_seconds_count 3",
        "x_seconds_sum 7.5",
        "# EOF",
    ]
