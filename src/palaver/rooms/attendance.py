"""Facts about room members that are not in the log: presence, waits and last activity.

`Attendance` is the interface of the live source. `Facts` is a snapshot of it, so that a repeated decision has
the same result. Pure: stores nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol


class Attendance(Protocol):
    """The attendance of members. Times are Unix milliseconds, None for never."""

    @property
    def started_ms(self) -> int:
        """When the daemon started; earlier activity is not known."""
        ...

    def is_present(self, name: str) -> bool:
        """Return whether it can be reached: a live process, a link, a wait, or a recent request."""
        ...

    def is_active(self, name: str) -> bool:
        """Return whether its process is alive and its status is active; it then needs no other sign."""
        ...

    def gone_since_ms(self, name: str) -> int | None:
        """Return since when its process has certainly ended; None if it is alive or unknown."""
        ...

    def token_ms(self, name: str) -> int | None:
        """Return when it last used a token; the process of a token user is unknown."""
        ...

    def seen_ms(self, name: str) -> int | None:
        """Return its last activity: a request, or a status other than idle and exited."""
        ...

    def idle_since_ms(self, name: str) -> int | None:
        """Return since when its status is idle."""
        ...

    def beat_ms(self, room: str, name: str) -> int | None:
        """Return when it last renewed its lease with `heartbeat`."""
        ...

    def last_wait_ms(self, room: str, name: str) -> int | None:
        """Return when it last waited for its turn there, or joined."""
        ...

    def is_waiting(self, room: str, name: str) -> bool:
        """Return whether it waits for its turn there now, parked or not."""
        ...

    def is_parked(self, room: str, name: str) -> bool:
        """Return whether its last wait there was parked: it accepts only a reserved stick."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """The facts about one member at one time; the fields have the meaning of `Attendance`."""

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
    """A snapshot for one room."""

    now_ms: int
    started_ms: int = 0
    sights: Mapping[str, Sight] = field(default_factory=dict)

    def of(self, name: str) -> Sight:
        """Return the facts about a member; a name outside the snapshot is away."""
        return self.sights.get(name, _UNSEEN)


def take_facts(attendance: Attendance, now_ms: int, room: str, names: Iterable[str]) -> Facts:
    """Take a snapshot of the named members."""
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
    """Attendance without a live source: members are present or not, and no member waits."""

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
