"""The common part of every request on a line of JSON. Pure."""

import msgspec


class WireOp(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="op", forbid_unknown_fields=True
):
    """Base of every request: `req` is returned with the response. Its name on the wire is its tag.

    Each also has a `name`, which chooses one of the names opened on the link. It follows the required fields.
    Defaults are omitted when a request is encoded; values are validated when it is decoded.
    """

    req: int = 0
