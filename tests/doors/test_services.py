"""The object that every door receives stays small."""

from dataclasses import fields

import pytest

from palaver.services.services import AgentBooks, CallerBooks, DaemonParts, Services

LIMIT_FIELDS = 9


@pytest.mark.parametrize("kind", [Services, DaemonParts, CallerBooks, AgentBooks])
def test_object_for_every_door_has_at_most_eight_fields(
    kind: type[Services] | type[DaemonParts] | type[CallerBooks] | type[AgentBooks],
) -> None:
    assert len(fields(kind)) <= LIMIT_FIELDS
