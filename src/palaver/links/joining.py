"""Choose the seat of a new agent. Pure: selects the anchor process, and stores nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from palaver.errors import AlreadyJoined, BadRequest
from palaver.harness.marks import SESSION_MARKS, SHARED_HARNESSES, harness_of
from palaver.links.environment import Surroundings
from palaver.links.identity import Claim, is_adopter
from palaver.links.process import Process
from palaver.links.seats import SeatIndex
from palaver.model.agent import Seat


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A seat, and the harness there, if known."""

    seat: Seat
    harness: str = ""
    session: str = ""


def anchor_for_join(
    chain: Sequence[Process],
    claim: Claim,
    pid: int | None,
    seats: SeatIndex,
    surroundings: Sequence[Surroundings],
) -> Anchor:
    """Choose the anchor of a caller that joins: its harness, else its parent, or the given `pid`.

    `surroundings` has one entry per process of the chain. Refuses a process that already has an agent, one
    that is not between the caller and its own seat, and processes that adopt orphans: their children are
    unrelated.
    """
    if not chain:
        raise BadRequest("the calling process is not visible to the daemon, so it cannot join")
    below = [dict(found.marks) for found in surroundings]
    below[0] |= {name: value for name, value in claim.marks.items() if value}
    harness_index = _nearest_harness(chain, surroundings, below)
    index = _asked_index(chain, pid) if pid is not None else harness_index or 1
    own = seats.nearest(chain)
    if own is not None and index > own.index:
        raise AlreadyJoined(own.agents[0].name)  # the caller already has an agent, whatever is above it
    if index >= len(chain) or (is_adopter(chain[index]) and index != harness_index):
        raise BadRequest(
            "the process that started this one has exited, so there is no process to join for: "
            "join from a shell that stays, or choose a process with --pid"
        )
    harness, session = "", claim.key
    if harness_index is not None:
        harness, session = _harness_at(harness_index, surroundings, below, claim)
    if harness_index is not None and index != harness_index:
        session = ""  # a process next to the session, not the session itself
    key = session if harness in SHARED_HARNESSES or not harness else ""
    _check_free(chain, index, key, seats)
    process = chain[index]
    seat = Seat(pid=process.pid, start=process.start, boot=seats.boot, key=key)
    return Anchor(seat=seat, harness=harness, session=session)


def anchor_for_child(
    caller: Process, child: Sequence[Process], seats: SeatIndex, key: str = "", own: str = ""
) -> Seat:
    """Return the seat of a process that the caller itself started, as a holder does for its agent.

    `child` is the chain of that process. Refuses a process that is not below the caller, and one that already
    has an agent, unless its name is `own`.
    """
    started = [(process.pid, process.start) for process in child[1:]]
    if (caller.pid, caller.start) not in started:
        raise BadRequest("you can join only for a process that you started")
    if [agent.name for agent in seats.at(child[0])] != [own]:
        _check_free(child, 0, key, seats)
    return Seat(pid=child[0].pid, start=child[0].start, boot=seats.boot, key=key)


def _asked_index(chain: Sequence[Process], pid: int) -> int:
    for index, process in enumerate(chain):
        if process.pid == pid:
            return index
    raise BadRequest(f"process {pid} is not a parent of this process; choose a parent with --pid")


def _nearest_harness(
    chain: Sequence[Process], surroundings: Sequence[Surroundings], below: Sequence[Mapping[str, str]]
) -> int | None:
    """Find the innermost harness: by its name, or by a mark that only its child has."""
    for index in range(1, len(chain)):
        if surroundings[index].harness:
            return index
        # An orphan inherited its marks from a parent that has exited, not from its adopter.
        if harness_of(_introduced(index, surroundings, below)) and not is_adopter(chain[index]):
            return index
    return None


def _introduced(
    index: int, surroundings: Sequence[Surroundings], below: Sequence[Mapping[str, str]]
) -> dict[str, str]:
    own = surroundings[index].marks
    return {name: value for name, value in below[index - 1].items() if own.get(name) != value}


def _harness_at(
    index: int, surroundings: Sequence[Surroundings], below: Sequence[Mapping[str, str]], claim: Claim
) -> tuple[str, str]:
    harness = surroundings[index].harness or harness_of(_introduced(index, surroundings, below)) or ""
    marks = below[index - 1]
    session = claim.key or next(filter(None, map(marks.get, SESSION_MARKS.get(harness, ()))), "")
    return harness, session


def _check_free(chain: Sequence[Process], index: int, key: str, seats: SeatIndex) -> None:
    own = seats.nearest(chain)
    if own is None or index != own.index:
        return
    for agent in own.agents:
        if not key or agent.seat is None or agent.seat.key in ("", key):
            raise AlreadyJoined(agent.name)
