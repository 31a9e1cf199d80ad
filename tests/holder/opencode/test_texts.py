"""Texts submitted to OpenCode sessions."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.limits import LIMIT_S

from palaver.harness.base import Done, TextOutcome
from palaver.harness.opencode.integration import OpenCodeInjections, Sessions
from palaver.harness.opencode.wire import Head, Lost, NotSent, OpenCodeEvent
from palaver.protocol.events import Grade


class Server:
    """Replies with the given status or error."""

    def __init__(self, outcome: int | Exception = 204) -> None:
        self.outcome = outcome
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def ask(
        self, method: str, path: str, body: bytes | None = None, *, limit_s: float = 30.0
    ) -> tuple[Head, bytes]:
        await self.may_answer.wait()
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return Head(self.outcome), b""

    async def follow(self, path: str, *, first_s: float, silence_s: float) -> AsyncIterator[bytes]:
        yield b""


def opencode_event(kind: str, **about: object) -> OpenCodeEvent:
    return OpenCodeEvent(kind, {"sessionID": "a", **about})


TEXT = opencode_event(
    "message.part.updated", part={"type": "text", "messageID": "msg_1", "metadata": {"palaver": "key"}}
)
ANSWER = opencode_event("message.updated", info={"id": "msg_2", "role": "assistant", "parentID": "msg_1"})
WORD = opencode_event("message.part.updated", part={"type": "step-start", "messageID": "msg_2"})
FAILED = opencode_event("session.error", error={"name": "APIError", "data": {"message": "no"}})


class Stage:
    def __init__(self, outcome: int | Exception = 204, arrival_limit_s: float = LIMIT_S) -> None:
        self.sessions = Sessions(only="a")
        self.proven: list[str] = []
        self.server = Server(outcome)
        self.texts = OpenCodeInjections(
            self.server, self.sessions, self.proven.append, arrival_limit_s=arrival_limit_s
        )

    async def put(self, *heard: OpenCodeEvent) -> "asyncio.Future[Done]":
        putting = asyncio.ensure_future(self.texts.put("a", "hello", "key"))
        await asyncio.sleep(0)
        self.hear(*heard)
        return putting

    def hear(self, *heard: OpenCodeEvent) -> None:
        for one in heard:
            self.sessions.hear(one)
        self.texts.settle()


async def test_text_is_seen_once_the_model_has_begun_its_reply() -> None:
    stage = Stage()
    putting = await stage.put(TEXT, ANSWER)
    assert stage.texts.is_waiting("a")
    assert stage.texts.sessions == {"a"}

    stage.hear(WORD)

    assert not stage.texts.is_waiting("a")
    assert await putting == Done(TextOutcome.SEEN, grade=Grade.CONTEXT)
    assert stage.texts.sessions == set()


async def test_aborted_turn_leaves_the_text_unconfirmed_until_later_proof() -> None:
    stage = Stage()
    putting = await stage.put(TEXT, opencode_event("session.status", status={"type": "busy"}), FAILED)

    stage.hear(opencode_event("session.idle"))
    done = await putting

    assert done.answer is TextOutcome.UNCONFIRMED
    assert stage.proven == []

    stage.hear(ANSWER, WORD)

    assert stage.proven == ["key"]


@pytest.mark.parametrize(
    ("outcome", "answer"),
    [
        (404, TextOutcome.DEFERRED),
        (500, TextOutcome.REFUSED),
        (NotSent("nobody listens"), TextOutcome.DEFERRED),
    ],
)
async def test_text_that_was_not_accepted_is_reported_at_once(
    outcome: int | Exception, answer: TextOutcome
) -> None:
    stage = Stage(outcome)

    assert (await stage.texts.put("a", "hello", "key")).answer is answer


async def test_lost_reply_is_settled_by_the_content_of_the_session() -> None:
    taken, not_taken = Stage(Lost("cut")), Stage(Lost("cut"))
    first, second = await taken.put(TEXT), await not_taken.put()

    taken.texts.missed(taken.texts.sent)
    not_taken.texts.missed(not_taken.texts.sent)

    assert (await second).answer is TextOutcome.DEFERRED
    assert not first.done()
    taken.hear(ANSWER, WORD)
    assert (await first).answer is TextOutcome.SEEN


async def test_text_whose_request_is_in_progress_is_not_missed() -> None:
    stage = Stage()
    stage.server.may_answer.clear()
    putting = await stage.put()
    sent = stage.texts.sent

    stage.texts.missed(sent)

    assert not putting.done()
    stage.server.may_answer.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    # The messages were read before the response: they say nothing about this text.
    stage.texts.missed(sent)
    stage.hear(TEXT, ANSWER, WORD)
    assert (await putting).answer is TextOutcome.SEEN


async def test_text_that_never_shows_up_after_a_lost_reply_is_unconfirmed() -> None:
    stage = Stage(Lost("cut"), arrival_limit_s=0)

    async with asyncio.timeout(LIMIT_S):
        done = await stage.texts.put("a", "hello", "key")

    assert done == Done(TextOutcome.UNCONFIRMED, "OpenCode did not respond: cut")
    stage.hear(TEXT, ANSWER, WORD)
    assert stage.proven == ["key"]


async def test_text_in_a_deleted_session_is_unconfirmed() -> None:
    stage = Stage()
    putting = await stage.put(TEXT)

    stage.hear(opencode_event("session.deleted"))

    assert await putting == Done(TextOutcome.UNCONFIRMED, "its session was deleted")
