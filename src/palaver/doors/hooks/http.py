"""Hooks over HTTP, at `/hook/<harness>`, for harnesses that post the input. The token names the agent."""

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from palaver.doors.http.app import TOKEN, caller_of
from palaver.errors import PalaverError
from palaver.harness.hooks import text_in
from palaver.services.services import Services

_decode: Final = msgspec.json.Decoder(dict[str, object]).decode
_encode: Final = msgspec.json.Encoder().encode


class HttpHooks:
    """The handler of one path. Without a reply, and after any error, it returns an empty object.

    Like the hooks of processes, it never fails for the harness.
    """

    def __init__(self, services: Services) -> None:
        self._services = services

    async def answer(self, request: Request) -> Response:
        """Serve one hook. Its messages count as passed to the harness once the response is made."""
        try:
            data = _decode(await request.body())
            caller = caller_of(self._services, request.scope[TOKEN])
            harness, event = request.path_params["harness"], text_in(data, "hook_event_name")
            reply = await self._services.daemon.run_hook(caller, harness, event, data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, PalaverError):
            reply = {}
        return Response(_encode(reply), media_type="application/json")
