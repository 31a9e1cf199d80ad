"""The companion process of each session: at most one live process per session. In memory only."""

from palaver.errors import BadRequest
from palaver.links.process import Process, boot_id, is_alive
from palaver.model.agent import Seat


class CompanionBook:
    """The companions that this daemon knows. Use it only on the event loop's thread."""

    def __init__(self) -> None:
        self._beside: dict[tuple[str, str], Seat] = {}

    def take(self, harness: str, session: str, process: Process) -> None:
        """Register the companion of a session. Refuse it while another lives; repeats have no effect."""
        seat = Seat(pid=process.pid, start=process.start, boot=boot_id())
        known = self._beside.get((harness, session))
        if known not in (None, seat) and is_alive(known):
            raise BadRequest(f"the session {session} already has a companion: process {known.pid}")
        self._beside = {key: one for key, one in self._beside.items() if is_alive(one)}
        self._beside[harness, session] = seat
