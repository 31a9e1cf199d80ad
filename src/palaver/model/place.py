"""A place in the log, as outsiders may name it. Pure."""

from typing import Annotated

import msgspec

Place = Annotated[int, msgspec.Meta(ge=0, le=10**15 - 1)]
"""A place in the log, or a number of things: never negative, and never more than a log can hold."""
