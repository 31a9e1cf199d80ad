"""The wires between harnesses and models, as far as needed: from a reply to the messages sent. Pure.

Each returns the messages to send at once, and those that follow when the model continues. `ids` draws
numbered ids instead of random ones.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from palaver.cli.mock_model.script import Reply

Ids = Callable[[str], str]
"""Returns a new id with this prefix."""
Message = tuple[str, Mapping[str, object] | str]
"""The name of an event (may be empty) and its content."""

_TOKENS_IN: Final = 100
_TOKENS_OUT: Final = 10


@dataclass(frozen=True, slots=True)
class Stream:
    """The messages to send at once, and those that follow."""

    first: tuple[Message, ...]
    rest: tuple[Message, ...]


def anthropic(body: Mapping[str, object], reply: Reply, ids: Ids) -> Stream:
    """Anthropic Messages, as a stream of events."""
    blocks: list[dict[str, object]] = []
    if reply.text or not reply.calls:
        blocks.append({"type": "text", "text": reply.text})
    for call in reply.calls:
        blocks.append({"type": "tool_use", "id": ids("toolu_"), "name": call.tool, "input": dict(call.input)})
    message = {
        "id": ids("msg_"),
        "type": "message",
        "role": "assistant",
        "model": body.get("model", "mock"),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": _TOKENS_IN, "output_tokens": 1},
    }
    end = {"stop_reason": "tool_use" if reply.calls else "end_turn", "stop_sequence": None}
    usage = {"input_tokens": _TOKENS_IN, "output_tokens": _TOKENS_OUT}
    rest = [one for index, block in enumerate(blocks) for one in _anthropic_block(index, block)]
    rest.append({"type": "message_delta", "delta": end, "usage": usage})
    rest.append({"type": "message_stop"})
    first = {"type": "message_start", "message": message}
    return Stream((_typed(first),), tuple(map(_typed, rest)))


def _anthropic_block(index: int, block: Mapping[str, object]) -> Iterator[dict[str, object]]:
    empty, delta = {"text": ""}, {"type": "text_delta", "text": block.get("text", "")}
    if block["type"] == "tool_use":
        empty, delta = {}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        block = {**block, "input": {}}
    yield {"type": "content_block_start", "index": index, "content_block": {**block, **empty}}
    yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def responses(body: Mapping[str, object], reply: Reply, ids: Ids) -> Stream:
    """OpenAI Responses, as a stream of events."""
    items: list[dict[str, object]] = []
    if reply.text or not reply.calls:
        content = [{"type": "output_text", "text": reply.text, "annotations": []}]
        items.append(_item("message", ids("msg_"), role="assistant", content=content))
    for call in reply.calls:
        item = _item("function_call", ids("fc_"), call_id=ids("call_"), name=call.tool)
        item["arguments"] = json.dumps(dict(call.input))
        items.append({**item, "namespace": call.namespace} if call.namespace else item)
    base: dict[str, object] = {
        "id": ids("resp_"),
        "object": "response",
        "created_at": 0,
        "model": body.get("model", "mock"),
        "status": "in_progress",
        "output": [],
        "parallel_tool_calls": True,
        "tools": [],
        "usage": None,
    }
    usage = {
        "input_tokens": _TOKENS_IN,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": _TOKENS_OUT,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": _TOKENS_IN + _TOKENS_OUT,
    }
    first: list[dict[str, object]] = [{"type": "response.created", "response": base}]
    first.append({"type": "response.in_progress", "response": base})
    rest = [one for index, item in enumerate(items) for one in _responses_item(index, item)]
    whole = {**base, "status": "completed", "output": items, "usage": usage}
    rest.append({"type": "response.completed", "response": whole})
    numbered = [{**one, "sequence_number": place} for place, one in enumerate((*first, *rest))]
    return Stream(
        tuple(map(_typed, numbered[: len(first)])),
        tuple(map(_typed, numbered[len(first) :])),
    )


def _item(kind: str, id: str, **fields: object) -> dict[str, object]:
    return {"type": kind, "id": id, "status": "completed", **fields}


def _responses_item(index: int, item: Mapping[str, object]) -> Iterator[dict[str, object]]:
    where = {"item_id": item["id"], "output_index": index}
    if item["type"] == "message":
        content = item["content"]
        assert isinstance(content, list)
        part = content[0]
        yield _event("output_item.added", output_index=index, item={**item, "content": []})
        empty = {**part, "text": ""}
        yield _event("content_part.added", **where, content_index=0, part=empty)
        yield _event("output_text.delta", **where, content_index=0, delta=part["text"])
        yield _event("output_text.done", **where, content_index=0, text=part["text"])
        yield _event("content_part.done", **where, content_index=0, part=part)
    else:
        yield _event("output_item.added", output_index=index, item={**item, "arguments": ""})
        yield _event("function_call_arguments.delta", **where, delta=item["arguments"])
        yield _event("function_call_arguments.done", **where, arguments=item["arguments"])
    yield _event("output_item.done", output_index=index, item=item)


def _event(kind: str, **fields: object) -> dict[str, object]:
    return {"type": f"response.{kind}", **fields}


def chat(body: Mapping[str, object], reply: Reply, ids: Ids) -> Stream:
    """OpenAI Chat Completions, as a stream of chunks."""
    base = {
        "id": ids("chatcmpl-"),
        "object": "chat.completion.chunk",
        "created": 0,
        "model": body.get("model", "mock"),
    }
    usage = {
        "prompt_tokens": _TOKENS_IN,
        "completion_tokens": _TOKENS_OUT,
        "total_tokens": _TOKENS_IN + _TOKENS_OUT,
    }

    def chunk(delta: Mapping[str, object], finish: str | None = None) -> Message:
        return "", {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    rest = [chunk({"content": reply.text})] if reply.text or not reply.calls else []
    for index, call in enumerate(reply.calls):
        function = {"name": call.tool, "arguments": json.dumps(dict(call.input))}
        called = {"index": index, "id": ids("call_"), "type": "function", "function": function}
        rest.append(chunk({"tool_calls": [called]}))
    rest.append(chunk({}, "tool_calls" if reply.calls else "stop"))
    rest.append(("", {**base, "choices": [], "usage": usage}))
    return Stream((chunk({"role": "assistant", "content": ""}),), (*rest, ("", "[DONE]")))


def gemini(body: Mapping[str, object], reply: Reply, ids: Ids) -> Stream:
    """Gemini streamGenerateContent, as a stream of chunks."""
    usage = {
        "promptTokenCount": _TOKENS_IN,
        "candidatesTokenCount": _TOKENS_OUT,
        "totalTokenCount": _TOKENS_IN + _TOKENS_OUT,
    }

    def chunk(part: Mapping[str, object], finish: str = "") -> Message:
        candidate: dict[str, object] = {"index": 0, "content": {"role": "model", "parts": [part]}}
        if finish:
            candidate["finishReason"] = finish
        return "", {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "mock"}

    rest = [chunk({"text": reply.text})] if reply.text or not reply.calls else []
    for call in reply.calls:
        called = {"id": ids("fc_"), "name": call.tool, "args": dict(call.input)}
        rest.append(chunk({"functionCall": called, "thoughtSignature": "bW9jaw=="}))
    return Stream((), (*rest, chunk({"text": ""}, "STOP")))


def gemini_whole(stream: Stream) -> Mapping[str, object]:
    """The same as one reply of Gemini generateContent."""
    parts: list[object] = []
    whole: dict[str, object] = {}
    for _, chunk in (*stream.first, *stream.rest):
        assert isinstance(chunk, dict)  # as they are built above
        parts += chunk["candidates"][0]["content"]["parts"]
        whole = dict(chunk)
    answer = {"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
    return {**whole, "candidates": [answer]}


def _typed(event: Mapping[str, object]) -> Message:
    return str(event["type"]), event


WIRES: Final[Mapping[str, Callable[[Mapping[str, object], Reply, Ids], Stream]]] = {
    "anthropic": anthropic,
    "responses": responses,
    "chat": chat,
    "gemini": gemini,
}
