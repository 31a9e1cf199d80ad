"""One HTTP request and its response, encoded and decoded by the library `h11`. Does no input or output.

A separate module because the library takes several milliseconds to load: not at the start of a harness, which
the user waits for. Redirects and compression are not supported and not requested.
"""

from collections.abc import Mapping
from typing import Final

import h11

from palaver.harness.opencode.wire import Head, Lost

LIMIT_HEAD_BYTES: Final = 64 * 1024


class HttpExchange:
    """A request and the response to it. The connection is for this exchange only."""

    def __init__(
        self, method: str, path: str, host: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> None:
        self._connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=LIMIT_HEAD_BYTES)
        fields = {"Host": host, "Connection": "close", **headers}
        if body is not None:
            fields |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
        events = [
            h11.Request(method=method, target=path, headers=list(fields.items())),
            h11.Data(data=body or b""),
            h11.EndOfMessage(),
        ]
        self.request = b"".join(self._connection.send(event) or b"" for event in events)
        self.head: Head | None = None
        self.is_done = False

    def feed(self, data: bytes) -> bytes:
        """Add bytes and return the part of the body in them; no bytes mean the end of the connection.

        Raises Lost if they are not a response, or if it ends too early.
        """
        found = bytearray()
        try:
            self._connection.receive_data(data)
            while not self.is_done:
                match self._connection.next_event():
                    case h11.Response(status_code=status):
                        self.head = Head(status)
                    case h11.Data(data=piece):
                        found += piece
                    case h11.EndOfMessage():
                        self.is_done = True
                    case h11.InformationalResponse():
                        continue
                    case h11.NEED_DATA:
                        break
                    case _:
                        raise Lost("the response is incomplete")
        except h11.RemoteProtocolError as error:
            raise Lost(str(error)) from error
        return bytes(found)
