"""The controller with which irctest (github.com/progval/irctest) tests the IRC door of a real daemon.

Each test of irctest gets its own home and its own daemon, at a free port. Guests may talk. An account of a
test is a registered person. irctest chooses the passwords and we choose the tokens, so the controller writes
the hash of the password into the stored token while no daemon runs. Everything else is as in the home of a
user.
"""

import hashlib
import json
import signal
import socket
from contextlib import ExitStack
from typing import ClassVar

from irctest.basecontrollers import BaseServerController  # type: ignore[import-not-found]
from irctest.runner import NotImplementedByController  # type: ignore[import-not-found]
from irctest.specifications import (  # type: ignore[import-not-found]
    Capabilities,
    OptionalBehaviors,
)
from tests.daemon.stage import Home, new_home, write_settings
from tests.irc.stage import register

_OURS = (
    "account-notify account-tag away-notify batch echo-message extended-join labeled-response message-tags "
    "draft/multiline multi-prefix server-time setname"
)

_TOKENS = (
    "CASEMAPPING=ascii CHANTYPES=# NICKLEN=70 CHANNELLEN=100 TOPICLEN=390 MAXTARGETS=4 PREFIX=(ov)@+ "
    "MONITOR=100 CHATHISTORY=500 MSGREFTYPES=msgid,timestamp UTF8ONLY WHOX"
)

_EARLY = ("jilles", "sesame")
"""An account that tests register while clients are connected, and that must therefore exist before."""


class PalaverController(BaseServerController):  # type: ignore[misc]  # irctest has no types here
    """A daemon in a home that is removed after the test."""

    software_name = "Palaver"
    supported_sasl_mechanisms = frozenset({"PLAIN"})
    supports_sts = False
    port_open = False
    capabilities = frozenset(Capabilities(name) for name in _OURS.split())
    isupport: ClassVar[dict[str, str | None]] = {
        token.partition("=")[0]: token.partition("=")[2] or None for token in _TOKENS.split()
    }
    optional_behaviors = frozenset(
        {
            OptionalBehaviors.CAP_REQ_MINUS,
            OptionalBehaviors.MULTI_JOIN,
        }
    )

    def __init__(self, test_config: object) -> None:
        super().__init__(test_config)
        self._ends = ExitStack()
        self._home: Home | None = None
        self._guests = "talk"

    def get_hostname_and_port(self) -> tuple[str, int]:
        """Reserve a port until the end of the test: no other process gets it while the daemon restarts.

        A socket that does not listen does not block one that listens.
        """
        held = self._ends.enter_context(socket.socket())
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        self.hostname, self.port = held.getsockname()
        return self.hostname, self.port

    def run(
        self,
        hostname: str,
        port: int,
        *,
        password: str | None,
        ssl: bool,
        run_services: bool,
        faketime: str | None,
        websocket_hostname: str | None,
        websocket_port: int | None,
    ) -> None:
        """Start a daemon.

        With us, a password belongs to a name, and every test with a password uses the nick `foo`.
        """
        with ExitStack() as starting:
            starting.push(self._ends.pop_all())
            if websocket_hostname is not None or ssl:
                raise NotImplementedByController("IRC over WebSocket, and TLS, which our own tests cover")
            self._home = starting.enter_context(new_home())
            self._guests = "talk" if password is None else "off"
            self._start()
            if password is not None:
                self._register("foo", password)
            if run_services:
                self._register(*_EARLY)
            self._ends = starting.pop_all()

    def registerUser(self, case: object, username: str, password: str | None = None) -> None:  # noqa: N802  # name of irctest
        """Register a person, and let the password of the test be its token."""
        assert password is not None
        if (username, password) != _EARLY:
            self._register(username, password)

    def _register(self, name: str, password: str) -> None:
        """Register a person, and restart the daemon with the password as the token.

        A token belongs to one person, so the second one with the same password keeps its own token.
        """
        assert self._home is not None
        register(self._home, name, "--person")
        self._home.kill(signal.SIGTERM)
        file = self._home.path / "tokens.json"
        tokens = json.loads(file.read_text())
        hashed = hashlib.sha256(password.encode()).hexdigest()
        if hashed not in [token["hash"] for token in tokens]:
            tokens[-1]["hash"] = hashed
        file.write_text(json.dumps(tokens))
        self._start()

    def check_is_alive(self) -> None:
        """A daemon that has ended refuses connections, which fails the test anyway."""

    def wait_for_port(self) -> None:
        """Require that the door accepts connections."""
        if not self.port_open:
            socket.create_connection((self.hostname, self.port)).close()
            self.port_open = True

    def wait_for_services(self) -> None:
        """The daemon itself has the accounts."""

    def kill(self) -> None:
        """End the daemon. A traceback in its log fails the test."""
        self._ends.close()

    def _start(self) -> None:
        assert self._home is not None
        write_settings(self._home, irc=f"127.0.0.1:{self.port}", irc_guests=self._guests)
        self._home.start_daemon()


def get_irctest_controller_class() -> type[PalaverController]:
    """Return the controller. irctest calls this."""
    return PalaverController
