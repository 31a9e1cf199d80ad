"""`pal events sub`, `subs` and `unsub`: command lines and their output."""

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import pytest
from tests.fakes import HUMAN, SCRIPT, nowhere
from tests.reactors.conftest import Watched

from palaver.doors.cli.call import Call
from palaver.doors.cli.run import HANDLERS, TABLE
from palaver.doors.cli.spec import parse
from palaver.doors.thin import ArgvConnection
from palaver.errors import NotFound, UsageError, WhoAreYou
from palaver.protocol.agents import Caller
from palaver.protocol.thin import ThinRequest
from palaver.services.queries import Queries
from palaver.services.services import Services


class Shell:
    """Run command lines for a caller and keep their output."""

    def __init__(self, watched: Watched, caller: Caller) -> None:
        self._bus = watched.bus
        self._caller = caller
        self._printed: list[bytes] = []

    async def write(self, data: bytes, token: bytes, *, flushed: object = None) -> None:
        self._printed.append(data)

    async def run(self, *words: str) -> str:
        parsed = parse(TABLE, ["events", *words])
        services = SimpleNamespace(
            queries=Queries(self._bus.log), broker=self._bus.broker, clock=self._bus.clock
        )
        asked = SimpleNamespace(
            key=None, stdout_is_terminal=False, environment={}, width=0, cwd="/src", resume=b""
        )
        call = Call(
            services=cast(Services, services),
            connection=cast(ArgvConnection, SimpleNamespace(output=self)),
            asked=cast(ThinRequest, asked),
            parsed=parsed,
            anchor_of=nowhere,
            caller=self._caller,
            table=TABLE,
        )
        self._printed.clear()
        status = await HANDLERS[parsed.command.path](call)
        assert status == 0
        return b"".join(self._printed).decode()

    async def json(self, *words: str) -> list[Mapping[str, object]]:
        return [json.loads(line) for line in (await self.run(*words, "--json")).splitlines()]


@pytest.fixture
async def shell(watched: Watched) -> Shell:
    await watched.bus.join("nova")
    return Shell(watched, await watched.bus.join("luna"))


async def test_new_subscription_prints_its_id_and_is_listed_as_typed(shell: Shell) -> None:
    typed = "--type message --from nova --thread 'pr 1' --once --text 'look at it'"

    (made,) = await shell.json(
        "sub", "--type", "message", "--from", "nova", "--thread", "pr 1", "--once", "--text", "look at it"
    )
    shown = await shell.run("subs")

    assert made["kind"] == "subscription"
    assert (made["owner"], made["once"], made["text"]) == ("luna", True, "look at it")
    assert made["filter"] == {"types": ["message"], "senders": ["nova"], "threads": ["pr 1"]}
    assert shown.splitlines()[0].split() == ["ID", "FOR", "AGE", "WHAT"]
    assert shown.splitlines()[1].split(maxsplit=3) == [made["id"], "luna", "0s", typed]
    assert await shell.json("subs") == [made]


async def test_value_with_a_dash_is_listed_as_it_must_be_typed(shell: Shell) -> None:
    result = await shell.run("sub", "--from", "nova", "--thread=-x", "--text=--now", "--send=- a list")

    assert result.endswith(": --from nova --thread=-x --text=--now --send '- a list'\n")


async def test_text_to_send_is_listed_and_sent_when_the_subscription_fires(
    watched: Watched, shell: Shell
) -> None:
    vega = await watched.bus.join("vega")
    result = await shell.run("sub", "--from", "vega", "--send", "@nova look at it")
    again = await shell.run("sub", "--from", "vega", "--send", "@nova look at it")
    await shell.run("sub", "--from", "vega", "--send", "look yourself")

    await watched.bus.send(vega, "done", "@luna")
    notices = await watched.texts("luna")

    assert result.endswith(": --from vega --send '@nova look at it'\n")
    assert again == f"already {result}"
    (sent,) = [event for event in await watched.events("message") if event.sender == "luna"]
    assert watched.bus.texts("nova") == ["@nova look at it"]
    assert sorted(text.partition("done")[2] for text in notices) == [
        " — look yourself",
        f"; sent #{sent.seq} to nova",
    ]


async def test_sent_texts_cause_no_other_subscription_to_match(watched: Watched, shell: Shell) -> None:
    vega = await watched.bus.join("vega")
    await watched.subscribe(vega, types=("message",), senders=("luna",), send="@luna again")
    await shell.run("sub", "--type", "message", "--from", "vega", "--send", "@vega again")

    await watched.bus.send(vega, "start", "@nova")

    assert await watched.texts("vega") == []
    assert watched.bus.texts("vega") == ["@vega again"]


async def test_blank_text_to_send_is_refused(shell: Shell) -> None:
    with pytest.raises(UsageError, match="not blank"):
        await shell.run("sub", "--from", "nova", "--send", " ")


@pytest.mark.parametrize(
    ("words", "filters"),
    [
        (("--type", "message,status", "--type", "life"), {"types": ["message", "status", "life"]}),
        (("--tool", "Bash", "--participant", "nova"), {"tools": ["Bash"], "participants": ["nova"]}),
        (("--file", "*.py"), {"files": ["*.py", "/src/*.py"]}),
        (("--target", "self", "--target", "@Nova"), {"targets": ["luna", "nova"]}),
        (("--type", "message", "--target", "any"), {"types": ["message"]}),
    ],
)
async def test_filters_of_events_are_filters_of_subscriptions(
    shell: Shell, words: tuple[str, ...], filters: dict[str, list[str]]
) -> None:
    (made,) = await shell.json("sub", *words)

    assert made["filter"] == filters


@pytest.mark.parametrize(
    ("words", "filters"),
    [
        (("--idle", "nova"), {"types": ["status"], "agents": ["nova"], "statuses": ["idle"]}),
        (("--blocked", "@Nova"), {"types": ["status"], "agents": ["nova"], "statuses": ["blocked"]}),
        (("--stopped", "nova"), {"types": ["agent.bye"], "agents": ["nova"]}),
        (("--collision",), {"types": ["status"]}),
        (
            ("--collision", "--agent", "nova", "--file", "/x"),
            {"types": ["status"], "agents": ["nova"], "files": ["/x"]},
        ),
    ],
)
async def test_preset_is_a_filter_and_is_listed_as_typed(
    shell: Shell, words: tuple[str, ...], filters: dict[str, list[str]]
) -> None:
    (made,) = await shell.json("sub", *words)
    shown = await shell.run("subs")

    assert made["filter"] == filters
    assert shown.rstrip().endswith(" ".join(words).replace("@Nova", "nova"))


async def test_subscription_for_another_agent_names_it(watched: Watched, shell: Shell) -> None:
    person = Shell(watched, HUMAN)

    result = await person.run("sub", "--idle", "nova", "--for", "luna")

    assert result.startswith("subscribed for luna as ")
    assert result.endswith(": --idle nova\n")
    assert (await shell.run("sub", "--idle", "nova", "--once")).startswith("subscribed as ")


async def test_unanswered_requests_are_listed_and_can_be_ended(watched: Watched, shell: Shell) -> None:
    request = await watched.bus.send(HUMAN, "?", "@nova", "@luna", intent="request")
    person = Shell(watched, HUMAN)

    watches = await person.json("subs")
    shown = await person.run("subs")
    ended = await person.run("unsub", f"w{request.seq}-nova")

    assert watches == [
        {
            "kind": "watch",
            "id": f"w{request.seq}-{name}",
            "owner": "human",
            "agent": name,
            "request": request.seq,
            "ts": request.ts,
        }
        for name in ("luna", "nova")
    ]
    assert f"w{request.seq}-nova  human   0s  request #{request.seq} to nova" in shown
    assert ended == f"ended w{request.seq}-nova\n"
    assert [one["agent"] for one in await person.json("subs")] == ["luna"]


async def test_list_shows_own_subscriptions_and_with_all_those_of_everyone(
    watched: Watched, shell: Shell
) -> None:
    await shell.run("sub", "--idle", "nova")
    person, script = Shell(watched, HUMAN), Shell(watched, SCRIPT)

    assert await person.run("subs") == "no subscriptions, and no requests that wait for an answer\n"
    assert [one["owner"] for one in await person.json("subs", "--all")] == ["luna"]
    assert len(await script.json("subs", "--all")) == 1
    with pytest.raises(WhoAreYou):
        await script.run("subs")


async def test_subscription_is_ended_by_its_id(shell: Shell) -> None:
    (made,) = await shell.json("sub", "--idle", "nova")

    (ended,) = await shell.json("unsub", str(made["id"]))

    assert ended == {"id": made["id"], "removed": True}
    assert await shell.json("subs") == []


async def test_preset_needs_a_known_agent(shell: Shell) -> None:
    with pytest.raises(NotFound, match=r"did you mean nova\?"):
        await shell.run("sub", "--idle", "nov")


@pytest.mark.parametrize(
    "words",
    [
        ("--idle", "nova", "--blocked", "nova"),
        ("--idle", "nova", "--type", "message"),
        ("--collision", "--status", "idle"),
        ("--stopped", "nova", "--agent", "luna"),
    ],
)
def test_presets_cannot_be_combined(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="cannot be used together"):
        parse(TABLE, ["events", "sub", *words])
