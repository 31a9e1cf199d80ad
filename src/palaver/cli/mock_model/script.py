"""The replies of the scripted model, and their order. Knows no wire.

A script is a list of replies, one per main request: a request that offers tools. Side requests, such as for
titles, are answered separately. Rules are tried first.
"""

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

HOLD_LIMIT_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call of a tool. `namespace` is for wires that have one."""

    tool: str
    input: Mapping[str, object] = field(default_factory=dict)
    namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One reply of the model: a text, then tools to call."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    gate: str = ""
    """Only the beginning is sent until this gate is opened: until then the model is busy."""
    awaits: str = ""
    """Held back until a request contains this text. Until then `pastime` replies."""
    status: int = 0
    """Reply with an HTTP error instead, and `body`."""
    body: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """The headers of an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A reply for requests that match a pattern, up to `times` times."""

    pattern: str
    reply: Reply
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as it came in."""

    wire: str
    is_main: bool
    body: Mapping[str, object]
    text: str
    """The whole body as on the wire."""

    @property
    def conversation(self) -> str:
        """The input of the model, as JSON without escapes."""
        for name in ("messages", "input", "contents"):
            if name in self.body:
                return json.dumps(self.body[name], ensure_ascii=False)
        return ""


class Script:
    """The remaining replies, and every request so far. Thread-safe."""

    def __init__(self, replies: Sequence[Reply] = (), rules: Sequence[Rule] = ()) -> None:
        self._changed = threading.Condition()
        self._replies = list(replies)
        self._rules = [[rule, rule.times] for rule in rules]
        self._opened: set[str] = set()
        self._requests: list[Request] = []
        self._pastimes = 0
        self.default = Reply(text="done")
        self.pastime: Callable[[int], Reply] = lambda number: self.default
        """Replies while a reply awaits its text: a tool call, or the end of the turn."""
        self.aside = Reply(text="mock")

    def take(self, request: Request) -> Reply:
        """Choose the reply to a request."""
        with self._changed:
            self._requests.append(request)
            self._changed.notify_all()
            for entry in self._rules:
                rule, left = entry
                assert isinstance(rule, Rule)
                assert isinstance(left, int)
                if left and re.search(rule.pattern, request.text):
                    entry[1] = left - 1
                    return rule.reply
            if not request.is_main:
                return self.aside
            if not self._replies:
                return self.default
            if self._replies[0].awaits not in request.text:
                self._pastimes += 1
                return self.pastime(self._pastimes)
            return self._replies.pop(0)

    def add(self, *replies: Reply) -> None:
        """Add replies after the remaining ones."""
        with self._changed:
            self._replies.extend(replies)

    def add_rules(self, *rules: Rule) -> None:
        """Add rules after the existing ones."""
        with self._changed:
            self._rules.extend([rule, rule.times] for rule in rules)

    def open(self, gate: str) -> None:
        """Release a reply that waits at a gate, now or later."""
        with self._changed:
            self._opened.add(gate)
            self._changed.notify_all()

    def wait_at(self, gate: str, limit_s: float) -> bool:
        """Wait until a gate is opened; False after a timeout. Passing an open gate closes it."""
        with self._changed:
            is_open = self._changed.wait_for(lambda: gate in self._opened, limit_s)
            self._opened.discard(gate)
            return is_open

    @property
    def main(self) -> list[Request]:
        """The main requests so far."""
        with self._changed:
            return [request for request in self._requests if request.is_main]

    def wait_for_main(self, count: int, limit_s: float) -> list[Request]:
        """Wait for this number of main requests; return the requests so far after a timeout."""
        with self._changed:
            self._changed.wait_for(lambda: sum(one.is_main for one in self._requests) >= count, limit_s)
        return self.main
