"""Send options in addition to the text: raw keys, no header, a reply. Checks sender and recipient.

Only the human in person may send raw keys, to one agent that a holder runs in a terminal.
"""

from collections.abc import Sequence

from palaver.broker.context import Context
from palaver.errors import BadRequest, NotAllowed, NotPerson, WhoAreYou
from palaver.model.agent import Caller
from palaver.model.message import EXTERNAL, HUMAN
from palaver.model.priority import Priority, format_priority
from palaver.model.request import Send
from palaver.model.terminal import RAW_EXPIRES_MS, raw_to_text, secret_text, shown

_INTERRUPT = format_priority(Priority.INTERRUPT)


def check_sender(caller: Caller, request: Send) -> None:
    """Refuse raw keys and headerless text from other callers than the human, and replies to a script."""
    if request.expects_reply and caller.kind == EXTERNAL:
        raise WhoAreYou("a script has no mailbox for the reply; join first with 'pal join'")
    if not request.raw and not request.is_bare:
        return
    what = "typing raw keys" if request.raw else "typing without a header"
    if caller.kind != HUMAN:
        raise NotAllowed(what, caller.standing.word, "a person")
    if caller.by is not None:
        raise NotPerson(f"{what} requires a person, and is not possible with --as")


def as_keys(request: Send) -> dict[str, object]:
    """Return the fields of a raw-keys message: a text that shows the keys, and its delivery rules."""
    if request.text:
        raise BadRequest("raw keys cannot be sent together with a text")
    if request.priority not in ("", _INTERRUPT):
        raise BadRequest("raw keys are typed immediately; leave out --priority")
    raw_to_text(request.raw)  # Refuses empty or too large input.
    return {
        "text": secret_text(_characters(request.raw)) if request.raw_hash else shown(request.raw),
        "priority": _INTERRUPT,
        "expires_in_ms": request.expires_in_ms or RAW_EXPIRES_MS,
        "has_mentions": False,
    }


def check_terminals(context: Context, request: Send, names: Sequence[str]) -> None:
    """Refuse keys unless they go to one agent that a holder runs in a terminal now."""
    if not request.raw and not request.is_bare:
        return
    if len(names) != 1:
        raise BadRequest(
            f"keys can go to one terminal only; this selects {', '.join(names) or 'none'}. Nothing was sent"
        )
    agent = context.directory.get(names[0])
    if agent is None or not agent.holder or agent.left or not context.is_present(agent.name):
        raise BadRequest(
            f"{names[0]} does not run in a terminal of Palaver; start it with 'pal run'. Nothing was sent"
        )


def keys_payload(request: Send) -> dict[str, object]:
    """Return the payload fields that the terminal's holder needs in addition to the text."""
    payload: dict[str, object] = {}
    if request.raw:
        payload["raw"] = "" if request.raw_hash else raw_to_text(request.raw)
    if request.raw_hash:
        payload |= {"secret": _characters(request.raw), "hash": request.raw_hash}
    if request.is_bare:
        payload["bare"] = True
    if request.expects_reply:
        payload["expects_reply"] = True
    return payload


def _characters(keys: bytes) -> int:
    """Count the characters of a secret without the Enter that ends it."""
    return len(keys.decode("utf-8", "surrogateescape").rstrip("\r\n"))
