"""Whether a program has started: what shows that it is ready. Pure; time is handed in."""

from palaver.harness.profile import Profile


class Startup:
    """Of one program."""

    def __init__(self, profile: Profile, started_ms: int) -> None:
        self._profile = profile
        self.started_ms = started_ms
        self.is_over = False
        """Something has shown that it is ready."""
        self.has_output = False
        """It has written something."""
        self._was_quiet = False
        self.composer_ms: int | None = None
        """When its composer was first seen."""

    @property
    def awaits_reader(self) -> bool:
        """Whether nothing but its waiting can show that the program has started."""
        return not self.is_over and not self.has_output and self._profile.read_composer is None

    def was_quiet(self, now_ms: int) -> bool:
        """Whether it wrote nothing for so long after its start that it counted as idle, ready or not."""
        is_quiet = self.awaits_reader and now_ms - self.started_ms >= self._profile.idle_after_ms
        self._was_quiet = self._was_quiet or is_quiet
        return self._was_quiet

    def see_reader(self, now_ms: int, *, is_waiting: bool | None, is_raw: bool) -> None:
        """Take in whether the program waits for what is typed; None: the system does not say.

        One that has shown nothing has started once it waits at its terminal, or, where nobody can say, once
        it has long taken keys one by one.
        """
        since_ms = now_ms - self.started_ms
        if self.awaits_reader and (
            (is_waiting and since_ms >= self._profile.idle_after_ms)
            or (is_waiting is None and is_raw and since_ms >= self._profile.start_limit_ms)
        ):
            self.is_over = True

    def see(self, now_ms: int, *, has_composer: bool, is_silent: bool) -> None:
        """Take in what it shows: a composer, or something at all and then nothing, or for long."""
        if self._profile.read_composer is not None:
            if has_composer and self.composer_ms is None:
                self.composer_ms = now_ms
            is_ready = has_composer and now_ms - (self.composer_ms or 0) >= self._profile.composer_wait_ms
        else:
            is_late = now_ms - self.started_ms >= self._profile.start_limit_ms
            is_ready = self.has_output and (is_late or is_silent)
        self.is_over = self.is_over or is_ready
