"""What is known of those in a room and is not in the log: who is there, who waits, who was heard of when.

`Attendance` is what whoever keeps it answers; `Facts` is one moment of it, so that a decision can be made
again and comes out the same. Pure: keeps nothing by itself.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol


class Attendance(Protocol):
    """Who is there. Moments are Unix milliseconds, None for never."""

    @property
    def started_ms(self) -> int:
        """When the daemon started: what was before it is not remembered."""
        ...

    def is_present(self, name: str) -> bool:
        """It can be reached: its process is alive, it has a link, or it waits or asked a moment ago."""
        ...

    def is_active(self, name: str) -> bool:
        """Its process is alive, and it says that it works: as long as that holds it need say nothing more."""
        ...

    def gone_since_ms(self, name: str) -> int | None:
        """Since when its process is surely gone; None while it is not, or while nobody knows."""
        ...

    def token_ms(self, name: str) -> int | None:
        """When it last spoke by a token, behind which no process can be seen."""
        ...

    def seen_ms(self, name: str) -> int | None:
        """When it last did something: a request, or a status other than idle and exited."""
        ...

    def idle_since_ms(self, name: str) -> int | None:
        """Since when it says that it is idle."""
        ...

    def beat_ms(self, room: str, name: str) -> int | None:
        """When it last said, with its lease, that it still works (`heartbeat`)."""
        ...

    def last_wait_ms(self, room: str, name: str) -> int | None:
        """When it last waited for its turn there, or joined."""
        ...

    def is_waiting(self, room: str, name: str) -> bool:
        """It waits for its turn there now, parked or not."""
        ...

    def is_parked(self, room: str, name: str) -> bool:
        """The last time it waited there it took only what is reserved for it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What is known of one member at one moment; the fields mean what `Attendance` says."""

    is_present: bool = False
    is_active: bool = False
    gone_since_ms: int | None = None
    token_ms: int | None = None
    seen_ms: int | None = None
    idle_since_ms: int | None = None
    beat_ms: int | None = None
    last_wait_ms: int | None = None
    is_waiting: bool = False
    is_parked: bool = False


_UNSEEN: Final = Sight()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One moment, for one room."""

    now_ms: int
    started_ms: int = 0
    sights: Mapping[str, Sight] = field(default_factory=dict)

    def of(self, name: str) -> Sight:
        """What is known of a member; who was not looked at is away."""
        return self.sights.get(name, _UNSEEN)


def take_facts(attendance: Attendance, now_ms: int, room: str, names: Iterable[str]) -> Facts:
    """Look at everybody once."""
    return Facts(
        now_ms=now_ms,
        started_ms=attendance.started_ms,
        sights={
            name: Sight(
                is_present=attendance.is_present(name),
                is_active=attendance.is_active(name),
                gone_since_ms=attendance.gone_since_ms(name),
                token_ms=attendance.token_ms(name),
                seen_ms=attendance.seen_ms(name),
                idle_since_ms=attendance.idle_since_ms(name),
                beat_ms=attendance.beat_ms(room, name),
                last_wait_ms=attendance.last_wait_ms(room, name),
                is_waiting=attendance.is_waiting(room, name),
                is_parked=attendance.is_parked(room, name),
            )
            for name in names
        },
    )


@dataclass(frozen=True, slots=True)
class Unattended:
    """Attendance where nobody keeps any: members are there or not, and nobody waits."""

    presence: Callable[[str], bool]
    started_ms: int = 0

    def is_present(self, name: str) -> bool:
        return self.presence(name)

    def is_active(self, name: str) -> bool:
        return False

    def gone_since_ms(self, name: str) -> int | None:
        return None

    def token_ms(self, name: str) -> int | None:
        return None

    def seen_ms(self, name: str) -> int | None:
        return None

    def idle_since_ms(self, name: str) -> int | None:
        return None

    def beat_ms(self, room: str, name: str) -> int | None:
        return None

    def last_wait_ms(self, room: str, name: str) -> int | None:
        return None

    def is_waiting(self, room: str, name: str) -> bool:
        return False

    def is_parked(self, room: str, name: str) -> bool:
        return False
