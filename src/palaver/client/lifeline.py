"""One name on the bus across restarts of the daemon. Knows requests and results, not their meaning."""

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Final

import msgspec

from palaver.client.answer import Joined, joined_from_json
from palaver.client.wire import Line, Wire, open_wire
from palaver.errors import Disconnected, PalaverError, ShuttingDown
from palaver.model.lines.program_ops import JoinOp, LeaveOp, ListenOp
from palaver.model.lines.wire import Op, op_to_json

_TRIES: Final = 5
_LEAVE_LIMIT_S: Final = 5.0

Answer = asyncio.Future[msgspec.Raw]


class Lifeline:
    """Requests are sent in the order of the calls; unanswered ones are sent again, in that order, after a
    loss.

    So each request must be safe to repeat: it carries an id, or is idempotent. While the daemon does not read
    or is being restarted, calls wait; nothing is dropped. If the reconnect fails, all waiting calls get the
    error, and the next call tries again.
    """

    def __init__(
        self,
        home: str,
        join: JoinOp,
        on_push: Callable[[Line], None],
        on_broken: Callable[[PalaverError], None],
    ) -> None:
        """Create a connection. `on_broken` is called when a reconnect has failed."""
        self._home = home
        self._join = join
        self._on_push = on_push
        self._on_broken = on_broken
        self._numbers = count(1)
        self._wire: Wire | None = None
        self._greeting: Answer | None = None
        self._greeting_number = 0
        self._calls: dict[int, tuple[bytes, Answer]] = {}
        self._returning: asyncio.Task[None] | None = None
        self._is_open = False
        self.is_listening = False
        """Whether every new connection starts with a listen request."""
        self.joined = Joined()

    # Connecting and leaving

    async def open(self) -> None:
        """Join; raises at once if the join is refused, and then leaves nothing open."""
        self._loop = asyncio.get_running_loop()
        self._is_open = True
        try:
            await self._connect(is_returning=False)
        except BaseException:
            self._is_open = False
            raise

    async def close(self) -> None:
        """Leave the bus, if the daemon is connected, and close. Waiting calls fail."""
        wire = self._wire
        try:
            if self._returning is not None:
                self._returning.cancel()
                await asyncio.wait([self._returning])
            elif wire is not None:
                goodbye = self.ask(LeaveOp())
                self._is_open = False
                async with asyncio.timeout(_LEAVE_LIMIT_S):
                    await goodbye
        except (PalaverError, TimeoutError):
            pass  # the daemon itself writes the leave event if the client does not return
        finally:
            self._is_open = False
            self._wire = None
            self._fail(Disconnected("the connection was closed"))
            if wire is not None:
                wire.close()
                await wire.wait_closed()

    async def _connect(self, *, is_returning: bool) -> None:
        tries_left = _TRIES
        while True:
            tries_left -= 1
            wire = await open_wire(self._home, self._hear, self._lose, is_returning=is_returning)
            try:
                self.joined = await self._greet(wire)
                break
            except (Disconnected, ShuttingDown):
                wire.close()
                if not tries_left:
                    raise
            except BaseException:
                wire.close()
                raise
        # No await between the join and here: later requests are written after the waiting ones.
        self._wire = wire
        if self.is_listening:
            wire.write(op_to_json(next(self._numbers), ListenOp()))
        self._calls = {number: call for number, call in self._calls.items() if not call[1].done()}
        for line, _ in self._calls.values():
            wire.write(line)

    async def _greet(self, wire: Wire) -> Joined:
        self._greeting = self._loop.create_future()
        self._greeting_number = next(self._numbers)
        join = self._join
        if self.joined.name:
            join = msgspec.structs.replace(join, name=self.joined.name, tag="")
        wire.write(op_to_json(self._greeting_number, join))
        answer = await self._greeting
        if wire.error is not None:
            raise wire.error  # lost again after the reply
        return joined_from_json(answer)

    def _lose(self, wire: Wire) -> None:
        assert wire.error is not None
        if self._greeting is not None and not self._greeting.done():
            self._greeting.set_exception(wire.error)
        if wire is self._wire:
            self._wire = None
            if self._is_open:
                self._come_back()
            else:
                self._fail(wire.error)

    def _come_back(self) -> None:
        if self._returning is None:
            self._returning = self._loop.create_task(self._return())

    async def _return(self) -> None:
        try:
            await self._connect(is_returning=True)
        except PalaverError as error:
            self._fail(error)
            self._on_broken(error)
        finally:
            self._returning = None

    def _fail(self, error: PalaverError) -> None:
        calls, self._calls = self._calls, {}
        for _, answer in calls.values():
            if not answer.done():
                answer.set_exception(error)

    # Requests

    def ask(self, request: Op) -> Answer:
        """Send a request; the future returns its result or raises its refusal.

        Raises at once if the request can never be sent. After cancelling the future it is unknown whether the
        request was executed.
        """
        if not self._is_open:
            raise Disconnected("the connection is not open: use it inside its `async with` block")
        number = next(self._numbers)
        line = op_to_json(number, request)
        answer: Answer = self._loop.create_future()
        self._calls[number] = line, answer
        if self._wire is not None:
            self._wire.write(line)
        else:
            self._come_back()
        return answer

    def _hear(self, line: Line) -> None:
        if line.push:
            self._on_push(line)
        elif line.req == self._greeting_number:
            assert self._greeting is not None
            _settle(self._greeting, line)
        elif line.error != ShuttingDown.code and (call := self._calls.pop(line.req, None)) is not None:
            # A request refused by a stopping daemon is sent to the next one.
            _settle(call[1], line)


def _settle(answer: Answer, line: Line) -> None:
    if answer.done():
        return
    if line.error:
        answer.set_exception(line.refusal)
    else:
        answer.set_result(line.ok)
