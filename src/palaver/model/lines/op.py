"""What every request on a line of JSON has. Pure."""

import msgspec


class WireOp(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="op", forbid_unknown_fields=True
):
    """Every request: `req` comes back with the answer. Its name on the wire is its tag.

    Each also has a `name`, which chooses one of the names opened on the link. It stands behind what must be
    there. What has its default is left out when it is written; what is wrong with a value is said when it is
    read.
    """

    req: int = 0
