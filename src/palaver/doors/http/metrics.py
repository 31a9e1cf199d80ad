"""`GET /metrics`: the numbers of the bus as OpenMetrics text. Off unless the setting `metrics` is 1."""

import math
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from palaver.domain.rights import require
from palaver.doors.http.app import TOKEN, caller_of
from palaver.errors import NotAllowed, PalaverError, WhoAreYou
from palaver.protocol.agents import Standing
from palaver.services.metrics import MetricFamily, MetricKind, Numbers, Sample
from palaver.services.services import Services

MEDIA_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
OFF: Final = "the numbers of this bus are off: a person enables them with 'pal config set metrics 1'"

_STATUSES: Final[Mapping[type[PalaverError], int]] = {WhoAreYou: 401, NotAllowed: 403}


class HttpMetrics:
    """The handler of the path."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def answer(self, request: Request) -> Response:
        """Serve one request. The caller must be an observer or higher."""
        if not self._services.daemon.settings.metrics:
            return _refuse(404, "not_found", OFF)
        try:
            require(caller_of(self._services, request.scope[TOKEN]), Standing.OBSERVER, "reading metrics")
            numbers = await self._services.metrics.read()
        except PalaverError as error:
            return _refuse(_STATUSES.get(type(error), 503), error.code, str(error))
        return Response(format_openmetrics(numbers), headers={"content-type": MEDIA_TYPE, **_HEADERS})


_HEADERS: Final = {"cache-control": "no-store"}


def _refuse(status: int, code: str, sentence: str) -> Response:
    return JSONResponse({"error": code, "message": sentence}, status_code=status, headers=_HEADERS)


# --------------------
# The text form. Pure.

_SUFFIXES: Final = {MetricKind.COUNTER: "_total"}
_UNIT: Final = "seconds"


def format_openmetrics(numbers: Numbers) -> str:
    """Format all numbers as OpenMetrics 1.0 text."""
    lines = [line for family in numbers.families for line in _family_lines(family)]
    return "\n".join([*lines, "# EOF\n"])


def _family_lines(family: MetricFamily) -> Iterator[str]:
    yield f"# TYPE {family.name} {family.kind}"
    if family.name.endswith(f"_{_UNIT}"):
        yield f"# UNIT {family.name} {_UNIT}"
    yield f"# HELP {family.name} {_escaped(family.help)}"
    for sample in family.samples:
        if family.kind is MetricKind.HISTOGRAM:
            yield from _bucket_lines(family, sample)
        else:
            name = f"{family.name}{_SUFFIXES.get(family.kind, '')}"
            yield f"{name}{_labels(sample.labels)} {_number(sample.value)}"


def _bucket_lines(family: MetricFamily, sample: Sample) -> Iterator[str]:
    for bound, count in zip((*family.bounds, math.inf), accumulate(sample.buckets), strict=True):
        yield f"{family.name}_bucket{_labels({**sample.labels, 'le': _bound(bound)})} {count}"
    yield f"{family.name}_count{_labels(sample.labels)} {sample.count}"
    yield f"{family.name}_sum{_labels(sample.labels)} {_number(sample.value)}"


def _labels(labels: Mapping[str, str]) -> str:
    return (
        "{" + ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items()) + "}" if labels else ""
    )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _bound(value: float) -> str:
    return "+Inf" if value == math.inf else repr(float(value))


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
