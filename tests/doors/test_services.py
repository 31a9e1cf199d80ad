"""The object that every door receives stays small."""

from dataclasses import fields, is_dataclass

import pytest

from palaver.services.services import AgentBooks, CallerBooks, DaemonParts, Services, UseCases

LIMIT_FIELDS = 8


@pytest.mark.parametrize("kind", [Services, DaemonParts, CallerBooks, AgentBooks, UseCases])
def test_object_for_every_door_has_at_most_eight_fields(kind: type[object]) -> None:
    assert is_dataclass(kind)
    assert len(fields(kind)) <= LIMIT_FIELDS
