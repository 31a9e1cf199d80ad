"""Long content: whole and equal at both ends with `draft/multiline`, and always valid without it."""

import asyncio
import json

from irctokens.line import Line
from tests.daemon.stage import Home
from tests.irc.stage import Client, Fields, register

import palaver

MULTILINE = ("batch", "message-tags", "draft/multiline")
LONG = "€漢ก" * 10_000
"""90,000 bytes, in characters of three bytes."""
PIECE_BYTES = 300


def batch_lines(target: str, text: str) -> list[bytes]:
    """Return the lines of a multiline message, cut between characters."""
    lines = [f"BATCH +long draft/multiline {target}".encode()]
    pieces = [text[at : at + PIECE_BYTES // 4] for at in range(0, len(text), PIECE_BYTES // 4)]
    for number, piece in enumerate(pieces):
        concat = ";draft/multiline-concat" if number else ""
        lines.append(f"@batch=long{concat} PRIVMSG {target} :{piece}".encode())
    return [*lines, b"BATCH -long"]


def read_batch(client: Client) -> str:
    """Return the content of the next multiline batch, joined by the rules of the specification."""
    begin = client.until(
        lambda line: line.command == "BATCH" and line.params[0][0] == "+" and "draft/multiline" in line.params
    )
    name = begin.params[0][1:]
    content: list[str] = []
    while (line := client.next_line()).command != "BATCH" or line.params[0] != f"-{name}":
        assert (line.tags or {}).get("batch") == name, line
        joint = "" if not content or "draft/multiline-concat" in (line.tags or {}) else "\n"
        content += [joint, line.params[-1]]
    return "".join(content)


async def test_long_characters_come_back_equal_through_a_program(bus: Home) -> None:
    token = register(bus, "nova")
    client = Client(bus).register("nova", password=token, capabilities=MULTILINE)
    back: asyncio.Future[Fields] = asyncio.get_running_loop().create_future()

    def echo() -> None:
        """Read the envelope as the program, and send its payload back."""
        received: Fields = json.loads(read_batch(client))
        assert received["payload"] == {"text": LONG}
        envelope = {"v": 1, "type": "test.back", "id": "01HX9Z00000000000000000002", "from": "nova"}
        envelope |= {"to": [received["from"]], "payload": received["payload"]}
        client.send(*batch_lines("luna", json.dumps(envelope, ensure_ascii=False)))

    async with palaver.connect(name="luna", home=bus.path) as luna:

        @luna.on("test.back")
        async def hear(envelope: palaver.Envelope) -> None:
            back.set_result({"payload": envelope.payload, "from": envelope.sender})

        handling = asyncio.create_task(luna.handle())
        await luna.emit("test.there", {"text": LONG}, to=["nova"])
        await asyncio.to_thread(echo)
        value = await asyncio.wait_for(back, 60)
        handling.cancel()

    assert value == {"payload": {"text": LONG}, "from": "nova"}
    client.close()


def test_long_text_is_equal_for_a_person_with_multiline(bus: Home) -> None:
    bus.ok("join", "--name", "luna")
    with Client(bus).register("bob", capabilities=MULTILINE).join("#general") as client:
        text = f"  two spaces\n\n{LONG}\nthe last line "
        bus.ok("send", "@all", "--yes", "--stdin", content=text.encode())

        assert read_batch(client) == text


def test_long_text_is_cut_for_a_person_without_multiline(bus: Home) -> None:
    shell = bus.shell()
    shell.ok("join", "--name", "luna")
    with Client(bus).register("bob").join("#general") as client:
        bus.ok("send", "@all", "--yes", "--stdin", content=("word " * 18_000).encode())

        last = client.until_text("pal show")

    lines = [line for line in client.lines if line.command == "PRIVMSG"]
    assert last.params[-1].startswith("… pal show ")
    assert len(lines) == 21
    assert all(len(line.params[-1].encode()) <= 400 for line in lines)
    assert set(" ".join(line.params[-1] for line in lines[:-1]).split()) == {"word"}


def test_envelope_of_any_size_is_valid_json_without_multiline(bus: Home) -> None:
    """The sizes are around the limit of a line, with characters of one and of three bytes."""
    token = register(bus, "nova")
    with Client(bus).register("nova", password=token) as client:
        sizes = [*range(150, 480, 11), 5_000]
        for size in sizes:
            filler = "€" * (size // 3) if size % 2 else "x" * size
            bus.ok("put", "test.size", "--to", "nova", "--payload", json.dumps({"n": size, "x": filler}))
        bus.ok("put", "test.last", "--to", "nova")

        client.until_envelope(type="test.last")

    received = [json.loads(text) for text in _texts(client.lines)]
    payloads = [one["payload"] for one in received if one["type"] == "test.size"]
    assert len(payloads) == len(sizes)
    for size, payload in zip(sizes, payloads, strict=True):
        assert payload.get("n") == size or set(payload) == {"palaver.too_long"}
    assert payloads[0]["n"] == 150
    assert set(payloads[-1]) == {"palaver.too_long"}
    assert all(len(line) <= 510 for line in client.raw.split(b"\r\n"))


def _texts(lines: list[Line]) -> list[str]:
    return [line.params[-1] for line in lines if line.command == "PRIVMSG"]
