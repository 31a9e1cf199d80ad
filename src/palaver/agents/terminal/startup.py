"""Decide whether a program has started and is ready for input. Pure; time is a parameter."""

from palaver.harness.profile import Profile


class Startup:
    """The startup of one program."""

    def __init__(self, profile: Profile, started_ms: int) -> None:
        self._profile = profile
        self.started_ms = started_ms
        self.is_over = False
        """Whether it has shown that it is ready."""
        self.has_output = False
        """Whether it has written any output."""
        self._was_quiet = False
        self.composer_ms: int | None = None
        """When its composer was first seen."""

    @property
    def awaits_reader(self) -> bool:
        """Whether only a wait for input can show that the program has started."""
        return not self.is_over and not self.has_output and self._profile.read_composer is None

    def was_quiet(self, now_ms: int) -> bool:
        """Return whether it was silent for `idle_after_ms` from its start, and so counts as idle."""
        is_quiet = self.awaits_reader and now_ms - self.started_ms >= self._profile.idle_after_ms
        self._was_quiet = self._was_quiet or is_quiet
        return self._was_quiet

    def see_reader(self, now_ms: int, *, is_waiting: bool | None, is_raw: bool) -> None:
        """Record whether the program waits for input; None if the system does not tell.

        A program without output has started once it waits for input. If the system does not tell, it has
        started if it reads single keys after `start_limit_ms`.
        """
        since_ms = now_ms - self.started_ms
        if self.awaits_reader and (
            (is_waiting and since_ms >= self._profile.idle_after_ms)
            or (is_waiting is None and is_raw and since_ms >= self._profile.start_limit_ms)
        ):
            self.is_over = True

    def see(self, now_ms: int, *, has_composer: bool, is_silent: bool) -> None:
        """Record the screen: a composer proves the start, or else output that is silent or lasts long."""
        if self._profile.read_composer is not None:
            if has_composer and self.composer_ms is None:
                self.composer_ms = now_ms
            is_ready = has_composer and now_ms - (self.composer_ms or 0) >= self._profile.composer_wait_ms
        else:
            is_late = now_ms - self.started_ms >= self._profile.start_limit_ms
            is_ready = self.has_output and (is_late or is_silent)
        self.is_over = self.is_over or is_ready
