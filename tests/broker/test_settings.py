"""Changes of settings, on both engines."""

import pytest
from tests.fakes import HUMAN, SCRIPT, Bus

from palaver.errors import BadRequest, NotAllowed
from palaver.protocol.requests import ChangeSetting


async def test_change_is_stored_with_the_previous_value(bus: Bus) -> None:
    event = await bus.submit(HUMAN, ChangeSetting(key="brake_hops", value="10", old=40))

    assert event is not None
    assert (event.type, event.sender) == ("setting.changed", "human")
    assert event.payload == {"key": "brake_hops", "value": 10, "old": 40}


async def test_only_the_human_changes_a_setting(bus: Bus) -> None:
    operator = await bus.join("boss", role="operator")

    for asking in (operator, SCRIPT):
        with pytest.raises(NotAllowed, match="config set"):
            await bus.submit(asking, ChangeSetting(key="brake_hops", value=0, old=40))


@pytest.mark.parametrize(("key", "value"), [("colour", "red"), ("brake_hops", "many"), ("log_level", "loud")])
async def test_unknown_or_invalid_setting_is_refused(bus: Bus, key: str, value: str) -> None:
    with pytest.raises(BadRequest, match=key):
        await bus.submit(HUMAN, ChangeSetting(key=key, value=value, old=""))
