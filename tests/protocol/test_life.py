"""Life events of agents."""

import pytest

from palaver.protocol.envelope import Event
from palaver.protocol.events import LifeChanged


@pytest.mark.parametrize(
    ("action", "echo", "back"),
    [
        ("started", True, False),
        ("stopped", True, False),
        ("ready", False, False),
        ("resumed", False, True),
        ("session", False, False),
        ("daemon_started", False, False),
        (None, False, False),
    ],
)
def test_kind_of_a_life_event_follows_from_its_action(action: object, echo: bool, back: bool) -> None:
    event = Event(
        seq=1, id="i", type="life", sender="luna", to=(), ts=0, device="D", payload={"action": action}
    )

    life = event.body
    assert isinstance(life, LifeChanged)
    assert (life.is_echo, life.is_return) == (echo, back)
    assert life.is_ready == (action == "ready")
    assert life.has_agent == (action in ("resumed", "session"))
