"""The tree of errors: each error survives the wire as its own class."""

import pytest

from palaver import errors
from palaver.errors import OtherError, PalaverError, error_codes, error_from_wire, nearest

EXAMPLES: list[PalaverError] = [
    errors.BadRequest("a sentence"),
    errors.UsageError("a sentence"),
    errors.UnknownRecipient({"@nov": ["nova"], "@x": []}),
    errors.AmbiguousRecipient("@lu", ["luna", "luka"]),
    errors.MessageTooLarge("the message", 100_001, 100_000),
    errors.MessageTooLarge("standard input", None, 100_000),
    errors.BadText("the message", 0x1B, 7),
    errors.BadName("human", "it is reserved"),
    errors.NameTaken("luna", "it is in use now"),
    errors.IdTaken("01J", 7),
    errors.AlreadyJoined("luna"),
    errors.AlreadyRunning(4242),
    errors.WhoAreYou("a sentence"),
    errors.NotYou("luna", "nova"),
    errors.NotAllowed("kill", "worker", "operator"),
    errors.NotPerson("a sentence"),
    errors.ReservedType("delivery"),
    errors.NotFound("event 42"),
    errors.NotFound("event 42", "it is archived"),
    errors.RateLimited(42, "40 hops"),
    errors.BadQuery("a sentence"),
    errors.RoomNotFound("repo"),
    errors.RoomClosed("repo-abcd"),
    errors.NotAPlace("/", "it is everything"),
    errors.UnknownMember("luna", "repo-abcd"),
    errors.UnknownTarget("luna", "repo-abcd"),
    errors.CannotKickSelf("repo-abcd"),
    errors.TargetActive("luna"),
    errors.TurnMismatch(1, 2),
    errors.StaleLease(2),
    errors.NotOwner("luna"),
    errors.InvalidHandoff("status", "is missing"),
    errors.TakeoverNotAvailable("luna still has time"),
    errors.TakeoverIneligible("you owned it last"),
    errors.RecipientUnreachable("luna"),
    errors.ParkRequiresRelease("repo-abcd"),
    errors.ObserverCannotHoldTurn("luna"),
    errors.AgentIdRequired(),
    errors.InvalidEventTypeFilter(),
    errors.InvalidBody("a sentence"),
    errors.BodyTooLarge(16_385, 16_384),
    errors.InvalidCursor("01J"),
    errors.DuplicateListener("watch"),
    errors.DuplicateWait("luna", "repo-abcd"),
    errors.Unavailable("a sentence"),
    errors.DiskFull("a sentence"),
    errors.DoorShut("a sentence"),
    errors.StorageFailed("a sentence"),
    errors.NewerSchema(9, 1),
    errors.ShuttingDown("a sentence"),
    errors.TooSlow("a sentence"),
    errors.Disconnected("a sentence"),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_error_round_trips_over_the_wire(error: PalaverError) -> None:
    back = error_from_wire(error.code, str(error), dict(error.details))

    assert type(back) is type(error)
    assert (str(back), back.details, back.code) == (str(error), error.details, error.code)


def test_every_code_has_an_example() -> None:
    assert {error.code for error in EXAMPLES} == error_codes() - {PalaverError.code}


def test_unknown_code_keeps_its_message_and_details() -> None:
    error = error_from_wire("too_early", "the time has not come", {"until": "x"})

    assert isinstance(error, OtherError)
    assert (error.code, str(error), error.details) == ("too_early", "the time has not come", {"until": "x"})


@pytest.mark.parametrize(
    ("code", "details"),
    [
        ("name_taken", {"name": "luna"}),
        ("name_taken", {"name": "luna", "reason": "x", "since": 1}),
        ("bad_text", {"what": "the message", "codepoint": "x", "position": 1}),
        ("unknown_recipient", {"unmatched": 7}),
        ("not_found", {"where": "here"}),
    ],
)
def test_unexpected_details_are_kept_unchanged(code: str, details: dict[str, object]) -> None:
    error = error_from_wire(code, "a sentence", details)

    assert isinstance(error, OtherError)
    assert (error.code, str(error), error.details) == (code, "a sentence", details)


@pytest.mark.parametrize(
    "error",
    [
        errors.UnknownRecipient({"@" + "x" * 500: []}),
        errors.AmbiguousRecipient("x" * 500, ["luna", "lupo"]),
        errors.BadName("x" * 500, "it is too long"),
        errors.NameTaken("x" * 500, "it is in use"),
        errors.NotYou("x" * 500, "luna"),
        errors.RoomNotFound("x" * 500),
        errors.UnknownMember("x" * 500, "y" * 500),
        errors.UnknownTarget("x" * 500, "repo-abcd"),
        errors.InvalidCursor("x" * 500),
    ],
    ids=lambda error: type(error).__name__,
)
def test_long_name_in_an_error_is_cut(error: errors.PalaverError) -> None:
    cut = f"{'x' * 78}…"

    assert cut in str(error)
    assert "x" * 80 not in f"{error}{error.details}"
    again = errors.error_from_wire(error.code, str(error), error.details)
    assert (type(again), again.details) == (type(error), error.details)


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("luna", ["luna", "lunas"]),
        ("lnua", ["luna"]),
        ("lunnas", ["lunas", "luna"]),
        ("LUNA", ["luna", "lunas"]),
        ("lunatic", []),
        ("kir", ["kira"]),
        ("ki", []),
        ("", []),
        ("x" * 100_000, []),
    ],
)
def test_nearest_names_are_within_two_edits(word: str, near: list[str]) -> None:
    assert nearest(word, ["nova", "lunas", "luna", "kira", "luna"], 2) == near


def test_number_of_unchecked_recipients_is_sent_only_if_there_are_any() -> None:
    unmatched = {"@lunna": ["luna"]}
    plain, cut = errors.UnknownRecipient(unmatched), errors.UnknownRecipient(unmatched, 7)

    assert plain.details == {"unmatched": unmatched}
    assert cut.details == {"unmatched": unmatched, "unchecked": 7}
    assert str(error_from_wire(cut.code, str(cut), cut.details)) == str(cut)
