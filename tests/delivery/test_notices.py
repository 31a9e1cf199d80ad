"""The texts of notices to a sender."""

import pytest
from msgspec.structs import replace

from palaver.delivery.ledger import held_notices, notice
from palaver.protocol.envelope import Event


def message(**payload: object) -> Event:
    type_ = str(payload.pop("type", "message"))
    sender = str(payload.pop("sender", "luna"))
    return Event(
        seq=42, id="ID", type=type_, sender=sender, to=(), ts=1, device="TEST", payload=dict(payload)
    )


@pytest.mark.parametrize("state", ["held", "refused", "expired", "dead", "unconfirmed"])
def test_notice_of_every_final_state_names_the_message_and_recipient(state: str) -> None:
    notification = notice(message(sender_kind="instance"), state, ["nova"])

    assert notification is not None
    assert notification.to == "luna"
    assert "#42" in notification.text
    assert "nova" in notification.text


def test_notice_contains_the_reason_if_there_is_one() -> None:
    notification = notice(message(sender_kind="human"), "held", ["nova"], reason="dialog")

    assert notification is not None
    assert notification.text == "#42 is held for nova: dialog"


@pytest.mark.parametrize(
    "event",
    [
        message(sender_kind="system"),
        message(sender_kind="external"),
        message(),
        message(type="x", sender="script"),
    ],
)
def test_scripts_and_the_bus_get_no_notices(event: Event) -> None:
    assert notice(event, "expired", ["nova"]) is None


def test_sender_of_a_foreign_envelope_gets_a_notice_whatever_its_payload() -> None:
    assert notice(message(type="x", sender_kind="system"), "expired", ["nova"]) is not None


def test_broadcast_gets_one_summary_per_kind_of_state() -> None:
    event = message(sender_kind="instance", scope="broadcast")

    first = notice(event, "unconfirmed", ["nova"], attempt=1)
    second = notice(event, "unconfirmed", ["kira", "mila"], attempt=2)
    expired = notice(event, "expired", ["nova"])

    assert first is not None
    assert second is not None
    assert expired is not None
    assert first.kind == second.kind != expired.kind
    assert "kira (+1)" in second.text
    assert "pal receipts 42" in second.text


def test_two_deliveries_of_one_message_have_different_notices() -> None:
    event = message(sender_kind="instance", scope="mentions")

    kinds = {
        notification.kind
        for names, attempt in ((["nova"], 1), (["nova"], 2), (["kira"], 1), (["nova"], 1))
        if (notification := notice(event, "unconfirmed", names, attempt=attempt)) is not None
    }

    assert len(kinds) == 3


def test_held_messages_share_one_notice_per_sender_except_broadcasts() -> None:
    mine = [replace(message(sender_kind="instance"), seq=seq, id=str(seq)) for seq in (3, 4, 5)]
    all_ = replace(message(sender_kind="instance", scope="broadcast"), seq=6, id="6")
    nobodys = message(sender_kind="external", sender="script")

    notices = list(held_notices("nova", [*mine, all_, nobodys], reason="draft"))

    assert [one.text for one in notices] == [
        "#3 and 2 more are held for nova: draft",
        "#6 is held for nova: draft ('pal receipts 6' shows all recipients)",
    ]
    assert [one.to for one in notices] == ["luna", "luna"]


def test_notice_names_the_session_of_a_recipient_and_keeps_a_path() -> None:
    event = message(sender_kind="instance")

    session, path = notice(event, "expired", ["nova+mon"]), notice(event, "dead", ["c++"])
    (held,) = held_notices("nova+mon", [event, event], reason="dialog")

    assert session is not None
    assert path is not None
    assert session.text == f"#{event.seq} expired before nova (session mon) saw it"
    assert path.text == f"#{event.seq} reached no agent: none is subscribed to c++"
    assert held.text == f"#{event.seq} and 1 more are held for nova (session mon): dialog"
