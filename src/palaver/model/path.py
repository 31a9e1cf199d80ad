"""The form of a delivery path: its segments, canonical spelling and limits. `routing` matches paths."""

from typing import Final

from palaver.errors import BadRequest
from palaver.model.text import LIMIT_PATH_BYTES, LIMIT_PATH_MANY, LIMIT_PATH_SEGMENTS, check_text

AGENT: Final = "agent"
"""The first segment of every agent's own path."""

ONE: Final = "*"
MANY: Final = "**"


def split_path(path: str) -> tuple[str, ...]:
    """Return the segments; leading, trailing and doubled slashes are ignored.

    The empty path is one empty segment, so that `*` and `**` match it.
    """
    if "//" in path or path[:1] == "/" or path[-1:] == "/":
        return tuple(segment for segment in path.split("/") if segment) or ("",)
    return tuple(path.split("/"))


def check_path(path: str) -> str:
    """Return the canonical spelling of a path or pattern, or refuse it.

    Slashes at the ends and doubled slashes are dropped, and a run of `**` becomes one. Case is kept, except
    for the name in `agent/<name>`, which is folded.
    """
    check_text(path, "the path", LIMIT_PATH_BYTES)
    split = split_path(path)
    segments = [name for at, name in enumerate(split) if name != MANY or at == 0 or split[at - 1] != MANY]
    if segments == [""]:
        raise BadRequest("a path needs at least one character that is not a slash")
    if len(segments) > LIMIT_PATH_SEGMENTS:
        raise BadRequest(f"a path has at most {LIMIT_PATH_SEGMENTS} segments; this one has {len(segments)}")
    if segments.count(MANY) > LIMIT_PATH_MANY:
        raise BadRequest(f"a path has at most {LIMIT_PATH_MANY} '**'; this one has {segments.count(MANY)}")
    if len(segments) > 1 and segments[0] == AGENT and segments[1].isascii():
        name, colon, device = segments[1].partition(":")
        segments[1] = name.lower() + colon + device.upper()
    return "/".join(segments)
