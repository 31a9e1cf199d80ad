"""Views of the bus that stay open: a snapshot, then every change, without a gap or a repeat."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from palaver.clock import CallLater
from palaver.errors import BadRequest, Unavailable
from palaver.protocol.message import HUMAN
from palaver.protocol.views import AnyAsk, ViewValue
from palaver.services.past import Report
from palaver.services.view_facts import LiveFacts, ViewSources
from palaver.services.view_hub import OpenView, ViewHub
from palaver.services.view_pages import ViewPages
from palaver.services.view_reader import LogReader


class LiveViews:
    """The open views of one daemon. Without an open view it costs nothing."""

    def __init__(
        self,
        sources: ViewSources,
        *,
        epoch: str,
        call_later: CallLater,
        spawn: Callable[..., asyncio.Task[None]],
        past: Callable[[AnyAsk, Report | None], Awaitable[bytes]] | None = None,
    ) -> None:
        """`epoch` differs for each start of the daemon. `spawn` starts a task that ends with the daemon.

        `past` answers questions about a seq of the past.
        """
        self._sources = sources
        self._call_later = call_later
        self._spawn = spawn
        self._epoch = epoch
        self._past = past
        self._reader = LogReader(sources.queries)
        self._hub: ViewHub | None = None
        self._is_closed = False

    def open(self, after: int = 0, epoch: str = "", *, me: str = HUMAN) -> OpenView:
        """Open a view. One that continues gives the seq and the epoch of its last record.

        The epoch begins with the id of the home: a seq of another home is ignored.
        """
        hub = self._hub
        # A hub that is over still cleans up in its task and can take no view.
        if hub is None or hub.is_over:
            hub = self._hub = ViewHub(self._sources, self.facts, self._call_later)
            self._spawn(hub.run())
        # The same seq in another home is another event, so a view that continued from it would miss events.
        device = self._sources.queries.device
        is_ours = not epoch or epoch.startswith(f"{device}-")
        view = OpenView(hub, me, after if is_ours else 0, epoch if is_ours else "")
        hub.views.add(view)
        # A view that is opened while the daemon stops ends at once; no record would ever come.
        if self._is_closed:
            view.close()
        return view

    @property
    def facts(self) -> "LiveFacts":
        """Time, presence and lanes as of now."""
        return LiveFacts(self._sources, self._epoch)

    def pages(self) -> ViewPages:
        """Return the pages of the present."""
        queries = self._sources.queries
        return ViewPages(queries.rows, self._reader, self.facts)

    async def answer(self, question: AnyAsk, report: Report | None = None) -> ViewValue | msgspec.Raw:
        """Return the answer to a question, also about the past. Raises NotFound and other refusals.

        `report` gets the progress of a question about the past that takes long.
        """
        if not question.at:
            return await self.pages().answer(question)
        last = self._sources.queries.last()
        if question.at > last:
            raise BadRequest(f"there is no event #{question.at} yet; the last one is #{last}")
        if self._past is None:
            raise Unavailable("this daemon does not answer questions about the past")
        return msgspec.Raw(await self._past(question, report))

    @property
    def foreign(self) -> int:
        """The number of open views of others than the person."""
        return 0 if self._hub is None else sum(view.me != HUMAN for view in self._hub.views)

    @property
    def is_idle(self) -> bool:
        """Whether no view is open, and nothing follows the log for one."""
        return self._hub is None or self._hub.is_over

    def close(self) -> None:
        """End all views. Called when the daemon stops."""
        self._is_closed = True
        if self._hub is not None:
            self._hub.end()
