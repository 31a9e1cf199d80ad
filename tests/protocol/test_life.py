"""Life events of agents."""

import pytest

from palaver.protocol.envelope import Event
from palaver.protocol.events import has_agent, is_echo, is_ready, is_return


@pytest.mark.parametrize(
    ("type_", "action", "echo", "back"),
    [
        ("life", "started", True, False),
        ("life", "stopped", True, False),
        ("life", "ready", False, False),
        ("life", "resumed", False, True),
        ("life", "session", False, False),
        ("life", "daemon_started", False, False),
        ("life", None, False, False),
        ("message", "started", False, False),
        ("message", "resumed", False, False),
    ],
)
def test_kind_of_a_life_event_follows_from_its_action(
    type_: str, action: object, echo: bool, back: bool
) -> None:
    event = Event(
        seq=1, id="i", type=type_, sender="luna", to=(), ts=0, device="D", payload={"action": action}
    )

    assert (is_echo(event), is_return(event)) == (echo, back)
    assert is_ready(event) == (type_ == "life" and action == "ready")
    assert has_agent(event) == (type_ == "life" and action in ("resumed", "session"))
