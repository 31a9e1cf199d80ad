"""A seq in the log, as external callers may give it. Pure."""

from typing import Annotated

import msgspec

Place = Annotated[int, msgspec.Meta(ge=0, le=10**15 - 1)]
"""A seq in the log, or a count: never negative, and never more than a log can contain."""
