"""The tree of all errors.

    PalaverError
    ├── OtherError                  any other code, from a daemon of another version
    ├── RequestError                the caller must change something
    │   ├── BadRequest              bad_request
    │   ├── UsageError              usage
    │   ├── UnknownRecipient        unknown_recipient
    │   ├── AmbiguousRecipient      ambiguous_recipient
    │   ├── MessageTooLarge         message_too_large
    │   ├── BadText                 bad_text
    │   ├── BadName                 bad_name
    │   ├── NameTaken               name_taken
    │   ├── IdTaken                 id_taken
    │   ├── AlreadyJoined           already_joined
    │   ├── WhoAreYou               who_are_you
    │   ├── NotYou                  not_you
    │   ├── NotAllowed              not_allowed
    │   ├── NotPerson               not_allowed
    │   ├── ReservedType            reserved_type
    │   ├── NotFound                not_found
    │   ├── RateLimited             rate_limited
    │   ├── BadQuery                bad_query
    │   ├── RoomNotFound            room_not_found
    │   ├── RoomClosed              room_closed
    │   ├── NotAPlace               not_a_place
    │   ├── UnknownMember           unknown_member
    │   ├── UnknownTarget           unknown_target
    │   ├── CannotKickSelf          cannot_kick_self
    │   ├── TargetActive            target_active
    │   ├── TurnMismatch            turn_mismatch
    │   ├── StaleLease              stale_lease
    │   ├── NotOwner                not_owner
    │   ├── InvalidHandoff          invalid_handoff
    │   ├── TakeoverNotAvailable    takeover_not_available
    │   ├── TakeoverIneligible      takeover_ineligible
    │   ├── RecipientUnreachable    recipient_unreachable
    │   ├── ParkRequiresRelease     park_requires_release
    │   ├── ObserverCannotHoldTurn  observer_cannot_hold_turn
    │   ├── AgentIdRequired         agent_id_required
    │   ├── InvalidEventTypeFilter  invalid_event_type_filter
    │   ├── InvalidBody             invalid_body
    │   ├── BodyTooLarge            body_too_large
    │   ├── InvalidCursor           invalid_cursor
    │   └── DuplicateListener       duplicate_listener
    └── Unavailable                 try again, or fix the machine
        ├── DiskFull                disk_full
        ├── StorageFailed           storage_failed
        ├── DoorShut                door_shut
        ├── NewerSchema             newer_schema
        ├── ShuttingDown            shutting_down
        ├── TooSlow                 too_slow
        └── Disconnected            disconnected

The code is for machines and never changes; the fields are for programs; the sentence is for people. On a
wire an error is its code and details, and `error_from_wire` rebuilds the same error from them.
"""

from palaver.errors.requests import (
    AlreadyJoined,
    AmbiguousRecipient,
    BadName,
    BadQuery,
    BadRequest,
    BadText,
    IdTaken,
    MessageTooLarge,
    NameTaken,
    NotAllowed,
    NotFound,
    NotPerson,
    NotYou,
    RateLimited,
    ReservedType,
    UnknownRecipient,
    UsageError,
    WhoAreYou,
)
from palaver.errors.rooms import (
    AgentIdRequired,
    BodyTooLarge,
    CannotKickSelf,
    DuplicateListener,
    InvalidBody,
    InvalidCursor,
    InvalidEventTypeFilter,
    NotAPlace,
    RoomClosed,
    RoomNotFound,
    TargetActive,
    UnknownMember,
    UnknownTarget,
)
from palaver.errors.roots import (
    OtherError,
    PalaverError,
    RequestError,
    Unavailable,
)
from palaver.errors.stick import (
    InvalidHandoff,
    NotOwner,
    ObserverCannotHoldTurn,
    ParkRequiresRelease,
    RecipientUnreachable,
    StaleLease,
    TakeoverIneligible,
    TakeoverNotAvailable,
    TurnMismatch,
)
from palaver.errors.unavailable import (
    Disconnected,
    DiskFull,
    DoorShut,
    NewerSchema,
    ShuttingDown,
    StorageFailed,
    TooSlow,
)
from palaver.errors.wire import (
    error_codes,
    error_from_wire,
)

__all__ = [
    "AgentIdRequired",
    "AlreadyJoined",
    "AmbiguousRecipient",
    "BadName",
    "BadQuery",
    "BadRequest",
    "BadText",
    "BodyTooLarge",
    "CannotKickSelf",
    "Disconnected",
    "DiskFull",
    "DoorShut",
    "DuplicateListener",
    "IdTaken",
    "InvalidBody",
    "InvalidCursor",
    "InvalidEventTypeFilter",
    "InvalidHandoff",
    "MessageTooLarge",
    "NameTaken",
    "NewerSchema",
    "NotAPlace",
    "NotAllowed",
    "NotFound",
    "NotOwner",
    "NotPerson",
    "NotYou",
    "ObserverCannotHoldTurn",
    "OtherError",
    "PalaverError",
    "ParkRequiresRelease",
    "RateLimited",
    "RecipientUnreachable",
    "RequestError",
    "ReservedType",
    "RoomClosed",
    "RoomNotFound",
    "ShuttingDown",
    "StaleLease",
    "StorageFailed",
    "TakeoverIneligible",
    "TakeoverNotAvailable",
    "TargetActive",
    "TooSlow",
    "TurnMismatch",
    "Unavailable",
    "UnknownMember",
    "UnknownRecipient",
    "UnknownTarget",
    "UsageError",
    "WhoAreYou",
    "error_codes",
    "error_from_wire",
]
