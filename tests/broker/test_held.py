"""The notice that a person reads about held messages."""

from tests.log.logs import draft

from palaver.broker.messages import held_text
from palaver.protocol.envelope import event_from

HELD = event_from(draft(delivered_to=["nova", "kira"], held="too fast"), 7, "BOXE")
TEXT = "#7 from luna to nova, kira is held: too fast. To deliver it, run 'pal release 7'"


def test_single_held_message_is_named_with_the_command_to_release_it() -> None:
    assert held_text(HELD, ()) == TEXT


def test_one_other_held_message_is_named() -> None:
    others = (
        "1 more message from luna was held since the last notice: #3; 'pal pending' lists the held messages"
    )
    assert held_text(HELD, (3,)) == f"{TEXT}. {others}"


def test_first_of_many_held_messages_are_named_and_the_rest_counted() -> None:
    text = held_text(HELD, range(1, 26))

    assert "25 more messages from luna were held" in text
    assert "#19, #20 and 5 more; " in text
    assert "#21" not in text
