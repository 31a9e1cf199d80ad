"""The limits are those of the vectors."""

import json
from pathlib import Path

from palaver.config import Settings
from palaver.domain.stick import Policy, change_policy, policy_from
from palaver.state.rooms import LIMIT_LIST

FILE = Path(__file__).parents[1] / "vectors" / "rooms_and_stick.json"


def test_defaults_are_those_of_the_vectors() -> None:
    known = json.loads(FILE.read_text(encoding="utf-8"))
    times, limits = known["policy_defaults"], known["limits"]
    policy = Policy()

    assert (policy.lease_ms, policy.heartbeat_ms) == (times["ownerLeaseTtlMs"], times["heartbeatIntervalMs"])
    assert (policy.claim_ms, policy.waiter_grace_ms) == (times["claimTtlMs"], times["waiterGraceMs"])
    assert (policy.presence_ms, policy.long_poll_ms) == (
        times["presenceTtlMs"],
        times["waitForTurnMaxWaitMs"],
    )
    assert (policy.gone_grace_ms, policy.cooldown_ms) == (600_000, 60_000)
    assert policy.message_bytes == limits["message_body_bytes_utf8"]
    assert policy.note_bytes == limits["note_body_bytes_utf8_after_trim"]
    assert limits["notes_max_limit"] == LIMIT_LIST


def test_cooldown_grows_with_the_grace_of_waiters() -> None:
    assert Policy(waiter_grace_ms=20_000).cooldown_ms == 120_000


def test_unchanged_settings_give_the_default_policy() -> None:
    assert policy_from(Settings()) == Policy()


def test_shared_policy_follows_changed_settings() -> None:
    policy = policy_from(Settings())

    change_policy(policy, Settings(room_lease_s=7, room_wakes="nobody"))

    assert (policy.lease_ms, policy.room_wakes) == (7_000, "nobody")
    assert policy == policy_from(Settings(room_lease_s=7, room_wakes="nobody"))
