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
from collections.abc import Mapping
from contextlib import ExitStack

from irctest.basecontrollers import BaseServerController  # type: ignore[import-not-found]
from irctest.runner import NotImplementedByController  # type: ignore[import-not-found]
from irctest.specifications import (  # type: ignore[import-not-found]
    Capabilities,
    OptionalBehaviors,
)
from tests.daemon.stage import Home, new_home, write_settings
from tests.irc.stage import port_of, register

_OURS = (
    "account-notify account-tag away-notify batch echo-message extended-join labeled-response message-tags "
    "draft/multiline multi-prefix server-time setname"
)

_EARLY = {"jilles": "sesame"}
"""An account that tests register while clients are connected, and that must therefore exist before."""


class PalaverController(BaseServerController):  # type: ignore[misc]  # irctest has no types here
    """A daemon in a home that is removed after the test."""

    software_name = "Palaver"
    supported_sasl_mechanisms = frozenset({"PLAIN"})
    supports_sts = False
    port_open = False
    capabilities = frozenset(Capabilities(name) for name in _OURS.split())
    optional_behaviors = frozenset(
        {
            OptionalBehaviors.CAP_REQ_MINUS,
            OptionalBehaviors.MULTI_JOIN,
            OptionalBehaviors.MULTI_PRIVMSG,
        }
    )

    def __init__(self, test_config: object) -> None:
        super().__init__(test_config)
        self._ends = ExitStack()
        self._home: Home | None = None
        self._guests = "talk"
        self._has_early = False

    def get_hostname_and_port(self) -> tuple[str, int]:
        """Start the daemon: only it can choose a port that no other process takes."""
        with ExitStack() as starting:
            self._home = starting.enter_context(new_home())
            self._start(0)
            self.hostname, self.port = "127.0.0.1", port_of(self._home)
            self._ends = starting.pop_all()
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
        """Prepare the requested kind of server. The daemon runs already.

        With us, a password belongs to a name, and every test with a password uses the nick `foo`.
        """
        if websocket_hostname is not None or ssl:
            self.kill()
            raise NotImplementedByController("IRC over WebSocket, and TLS, which our own tests cover")
        if password is not None:
            self._guests = "off"
            self._register({"foo": password})
        if run_services:
            self._register(_EARLY)
            self._has_early = True

    def registerUser(self, case: object, username: str, password: str | None = None) -> None:  # noqa: N802  # name of irctest
        """Register a person, and let the password of the test be its token."""
        assert password is not None
        if _EARLY.get(username) != password or not self._has_early:
            self._register({username: password})

    def _register(self, accounts: Mapping[str, str]) -> None:
        """Register persons, and restart the daemon with the passwords of the test as their tokens.

        A token belongs to one person, so the second one with the same password keeps its own token.
        """
        assert self._home is not None
        for name in accounts:
            register(self._home, name, "--person")
        self._home.kill(signal.SIGTERM)
        file = self._home.path / "tokens.json"
        tokens = json.loads(file.read_text())
        for token, password in zip(tokens[-len(accounts) :], accounts.values(), strict=True):
            hashed = hashlib.sha256(password.encode()).hexdigest()
            if hashed not in [one["hash"] for one in tokens]:
                token["hash"] = hashed
        file.write_text(json.dumps(tokens))
        self._start(self.port)

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

    def _start(self, port: int) -> None:
        assert self._home is not None
        write_settings(self._home, irc=f"127.0.0.1:{port}", irc_guests=self._guests)
        self._home.start_daemon()


def get_irctest_controller_class() -> type[PalaverController]:
    """Return the controller. irctest calls this."""
    return PalaverController
