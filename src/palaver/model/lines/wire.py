"""Every request that can be sent as a line, and its encoding. Pure.

{"req": 7, "op": "send", "to": ["@nova"], "text": "hello"}        a request, tagged by its sender

Only the door decodes requests (`doors/lines_wire.py`): clients need no decoder.
"""

from typing import Final

import msgspec

from palaver.errors import BadText, MessageTooLarge
from palaver.model.lines.holder_ops import (
    AccompanyOp,
    AnswerOp,
    GateOp,
    HoldOp,
    LaneOp,
    PermissionOp,
    SubBeginOp,
    SubEndOp,
    TellOp,
    TypedOp,
)
from palaver.model.lines.program_ops import (
    AckOp,
    EventsOp,
    JoinOp,
    LeaveOp,
    ListenOp,
    ListOp,
    PutOp,
    ReceiptsOp,
    SendOp,
    StatusOp,
    ToolOp,
    UnlistenOp,
    WhoamiOp,
)
from palaver.model.text import LIMIT_FRAME_BYTES

Op = (
    WhoamiOp
    | JoinOp
    | LeaveOp
    | SendOp
    | PutOp
    | ListenOp
    | UnlistenOp
    | AckOp
    | StatusOp
    | EventsOp
    | ToolOp
    | ListOp
    | ReceiptsOp
    | LaneOp
    | AnswerOp
    | HoldOp
    | GateOp
    | TypedOp
    | TellOp
    | SubBeginOp
    | SubEndOp
    | AccompanyOp
    | PermissionOp
)

_encode: Final = msgspec.json.Encoder().encode


def op_to_json(number: int, op: Op) -> bytes:
    """Encode a request on one line, without its end. Its response carries the same number.

    The number comes first, as `req`: the request itself has no number yet. Raises BadText for a lone
    surrogate and MessageTooLarge for a line that the daemon would not read.
    """
    try:
        line = b'{"req":%d,%b' % (number, _encode(op)[1:])
    except UnicodeEncodeError as error:
        raise BadText("the request", ord(error.object[error.start]), error.start) from error
    if len(line) > LIMIT_FRAME_BYTES:
        raise MessageTooLarge("the request", len(line), LIMIT_FRAME_BYTES)
    return line
