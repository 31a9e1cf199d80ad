"""The HTTP door with real daemons: opened by a person, protected by tokens, harmless when it cannot open."""

import asyncio
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.daemon.mcp_stage import over_http
from tests.daemon.stage import (
    Home,
    Shell,
    check_output,
    run_as_person,
    run_script_as_person,
    wait_until,
    write_settings,
)
from tests.limits import LIMIT_S

from palaver.doors.mcp.server import HALF_PAIR

both_generations = pytest.mark.parametrize("is_modern", [False, True], ids=["handshake", "envelope"])


@pytest.fixture
def open_bus(home: Home) -> Home:
    """A bus whose HTTP door is open at a free port."""
    write_settings(home, http="127.0.0.1:0")
    home.start_daemon()
    return home


@pytest.fixture
def url(open_bus: Home) -> str:
    return url_of(open_bus)


@pytest.fixture
def token(open_bus: Home) -> str:
    """A token that luna created for itself; its seat is the test process."""
    open_bus.ok("join", "--name", "luna")
    made: str = open_bus.ok("token", "create", "--json").json["token"]
    return made


@pytest.fixture
def agent_token(open_bus: Home) -> tuple[Shell, str]:
    """A token of luna, and luna's shell, which the test can end."""
    shell = open_bus.shell()
    shell.ok("join", "--name", "luna")
    return shell, str(shell.ok("token", "create", "--json").json["token"])


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def url_of(home: Home) -> str:
    found: str = home.ok("status", "--json").json["doors"]["http"]
    return found


def get(url: str, **headers: str) -> tuple[int, dict[str, Any]]:
    answer = httpx2.get(url, headers=headers, timeout=LIMIT_S)
    return answer.status_code, answer.json()


def get_nothing(url: str, **headers: str) -> tuple[int, dict[str, Any]]:
    """Request a path that does not exist: 401 without a valid token, 404 with one."""
    return get(f"{url}/nothing", **headers)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


# Opening


def test_http_door_is_closed_by_default(bus: Home) -> None:
    assert set(bus.ok("status", "--json").json["doors"]) == {"unix"}


def test_person_opens_and_closes_the_door_permanently(bus: Home) -> None:
    opened = check_output(run_as_person(bus, "up", "--http", "127.0.0.1:0"))
    first = url_of(bus)
    assert first in opened.out
    assert get_nothing(first)[0] == 401

    bus.kill()
    assert get_nothing(url_of(bus))[0] == 401

    check_output(run_as_person(bus, "up", "--no-http"))
    assert set(bus.ok("status", "--json").json["doors"]) == {"unix"}
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(first)
    changed = [event["payload"]["key"] for event in bus.events("--type", "setting.changed")]
    assert changed == ["http", "http"]


@pytest.mark.parametrize(
    "words", [("--http", "127.0.0.1:0"), ("--http", "0.0.0.0:0", "--http-remote"), ("--no-http",)]
)
def test_only_a_person_opens_or_closes_the_door(bus: Home, words: tuple[str, ...]) -> None:
    refused = bus.pal("up", *words, "--json")

    assert (refused.status, refused.error["error"]) == (1, "not_allowed")
    assert set(bus.ok("status", "--json").json["doors"]) == {"unix"}
    assert not (bus.path / "config.toml").exists()


def test_other_machines_are_allowed_only_on_request(bus: Home) -> None:
    refused = run_as_person(bus, "up", "--http", "0.0.0.0:0")
    assert refused.status == 1
    assert "--http-remote" in refused.err

    check_output(run_as_person(bus, "up", "--http", "0.0.0.0:0", "--http-remote"))
    port = url_of(bus).rpartition(":")[2]
    assert get_nothing(f"http://127.0.0.1:{port}")[0] == 401


@pytest.mark.parametrize("words", [("--http-remote",), ("--http", "x y"), ("--http", "--no-http")])
def test_invalid_options_change_nothing(bus: Home, words: tuple[str, ...]) -> None:
    refused = run_as_person(bus, "up", *words)

    assert refused.status in (1, 2)
    assert not (bus.path / "config.toml").exists()


def test_port_in_use_is_reported_and_stops_nothing(home: Home, taken_port: int) -> None:
    write_settings(home, http=f"127.0.0.1:{taken_port}")
    up = home.ok("up")

    assert "the bus is up" in up.out
    assert f"the HTTP door cannot listen at 127.0.0.1:{taken_port}" in up.err
    trouble = home.ok("status", "--json").json["doors"]["http"]
    doctor = [one for one in home.pal("doctor", "--json").lines if one["kind"] == "check"]
    assert trouble == f"the HTTP door cannot listen at 127.0.0.1:{taken_port}: Address already in use"
    assert [check["check"] for check in doctor if not check["ok"]] == [trouble]
    assert trouble in (home.path / "daemon.log").read_text()
    home.ok("send", "@human", "--", "the bus runs")


def test_open_door_stays_open_when_the_next_port_is_in_use(open_bus: Home, taken_port: int) -> None:
    before = url_of(open_bus)

    settings = (open_bus.path / "config.toml").read_text()
    refused = run_as_person(open_bus, "up", "--http", f"127.0.0.1:{taken_port}", "--json")

    assert (refused.status, refused.error["error"]) == (1, "door_shut")
    assert f"it listens at {before} as before" in refused.error["message"]
    assert url_of(open_bus) == before
    assert get_nothing(before)[0] == 401
    assert (open_bus.path / "config.toml").read_text() == settings


def test_failed_change_of_the_address_is_reported_until_it_is_corrected(
    open_bus: Home, taken_port: int
) -> None:
    before = url_of(open_bus)

    run_as_person(open_bus, "up", "--http", f"127.0.0.1:{taken_port}")
    status, doors = open_bus.ok("status").out, open_bus.ok("status", "--json").json["doors"]
    checks = [one for one in open_bus.pal("doctor", "--json").lines if one["kind"] == "check"]
    setting, shown = open_bus.ok("config", "get", "http", "--json").json, open_bus.ok("config", "list").out
    check_output(run_as_person(open_bus, "up", "--http", before.removeprefix("http://")))

    sentence = doors["http_problem"]
    assert f"cannot listen at 127.0.0.1:{taken_port}: Address already in use" in sentence
    assert sentence.endswith(f"; it listens at {before} as before")
    assert doors["http"] == before
    assert f"\nproblem  {sentence}\n" in status
    assert [check["check"] for check in checks if not check["ok"]] == [sentence]
    assert f"HTTP at {before}" in [check["check"] for check in checks if check["ok"]]
    assert setting["problem"] == sentence
    assert sentence in " ".join(shown.split())
    assert set(open_bus.ok("status", "--json").json["doors"]) == {"unix", "http"}
    assert "problem" not in open_bus.ok("config", "get", "http", "--json").json


def test_open_door_stays_open_when_the_next_host_is_not_of_this_machine(open_bus: Home) -> None:
    before = url_of(open_bus)
    port = before.rpartition(":")[2]

    refused = run_as_person(open_bus, "up", "--http", f"192.0.2.1:{port}", "--http-remote")

    assert f"it listens at {before} as before" in refused.err
    assert get_nothing(before)[0] == 401


def test_door_can_be_opened_at_the_same_port_again(open_bus: Home) -> None:
    before = url_of(open_bus)

    check_output(run_as_person(open_bus, "up", "--http", before.removeprefix("http://")))

    assert url_of(open_bus) == before
    assert get_nothing(before)[0] == 401


def test_address_reachable_by_others_needs_its_setting_too(home: Home) -> None:
    write_settings(home, http="0.0.0.0:0")
    home.start_daemon()

    assert "--http-remote" in home.ok("status", "--json").json["doors"]["http"]


# Tokens


def test_agent_creates_a_token_only_for_itself(open_bus: Home) -> None:
    nova, luna = open_bus.shell(), open_bus.shell()
    nova.ok("join", "--name", "nova")
    luna.ok("join", "--name", "luna")

    refused = nova.pal("token", "create", "luna", "--json")
    made = nova.ok("token", "create", "--json").json

    assert refused.error["error"] == "not_allowed"
    assert (made["name"], made["by"], made["standing"]) == ("nova", "nova", "worker")


def test_person_creates_tokens_for_agents_and_not_for_people(open_bus: Home) -> None:
    open_bus.shell().ok("join", "--name", "luna")

    made = check_output(run_as_person(open_bus, "token", "create", "luna", "--json")).json
    refused = run_as_person(open_bus, "token", "create", "human", "--json")
    unknown = run_as_person(open_bus, "token", "create", "zed", "--json")

    assert made["name"] == "luna"
    assert refused.error["error"] == "not_allowed"
    assert unknown.error["error"] == "not_found"


def test_script_cannot_have_a_token(open_bus: Home) -> None:
    assert open_bus.pal("token", "create", "--json").error["error"] == "bad_request"


def test_token_never_grants_more_than_its_creator_had(open_bus: Home) -> None:
    script = "pal join --name boss --role operator >&2; pal token create --json; {}"
    lowered = 'CLAUDECODE=1 sh -c "pal token create --json; true"'

    made = run_script_as_person(open_bus, script.format(lowered)).lines

    assert [token["standing"] for token in made] == ["operator", "worker"]


def test_tokens_are_listed_without_secrets_and_stored_as_hashes(open_bus: Home, token: str) -> None:
    listed = open_bus.ok("token", "list", "--json")

    assert listed.json.keys() == {"agent", "ts", "id", "name", "standing", "by", "created"}
    assert "luna" in open_bus.ok("token", "list").out
    path = open_bus.path / "tokens.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for file in Path(open_bus.path).iterdir():
        if file.is_file():
            assert token.encode() not in file.read_bytes()


def test_revoked_token_is_invalid_at_once(open_bus: Home, url: str, token: str) -> None:
    assert get_nothing(url, **bearer(token))[0] == 404
    nova = open_bus.shell()
    nova.ok("join", "--name", "nova")
    id = open_bus.ok("token", "list", "--json").json["id"]

    assert nova.pal("token", "revoke", id, "--json").error["error"] == "not_allowed"
    open_bus.ok("token", "revoke", id)

    assert get_nothing(url, **bearer(token))[0] == 401
    assert open_bus.pal("token", "revoke", id, "--json").error["error"] == "not_found"
    assert "no tokens" in open_bus.ok("token", "list").out


def test_expired_token_is_invalid(open_bus: Home, url: str) -> None:
    open_bus.ok("join", "--name", "luna")
    refused = open_bus.pal("token", "create", "--expires", "0", "--json")
    long = open_bus.ok("token", "create", "--expires", "30d", "--json").json
    assert "expires in 30d" in open_bus.ok("token", "list").out

    short = open_bus.ok("token", "create", "--expires", "1s", "--json").json
    wait_until(lambda: get_nothing(url, **bearer(short["token"]))[0] == 401)

    assert (refused.status, refused.error["error"]) == (2, "usage")
    assert long["expires"] - long["created"] == pytest.approx(30 * 86_400_000, abs=60_000)
    assert get_nothing(url, **bearer(long["token"]))[0] == 404
    assert "'pal" not in get_nothing(url)[1]["message"]


def test_token_ends_when_its_agent_leaves(open_bus: Home, url: str, token: str) -> None:
    assert get_nothing(url, **bearer(token))[0] == 404

    open_bus.ok("leave")
    assert get_nothing(url, **bearer(token))[0] == 401
    open_bus.kill()
    open_bus.ok("list")

    assert get_nothing(url_of(open_bus), **bearer(token))[0] == 401
    assert "no tokens" in open_bus.ok("token", "list").out


# Requests


def test_refusals_are_json(url: str, token: str) -> None:
    json = {"content-type": "application/json"}
    paths = ["/nothing", "/ws", "/api", "/api/nothing"]

    assert get_nothing(url) == (401, get_nothing(url)[1])
    assert get_nothing(url)[1]["error"] == "who_are_you"
    assert [get(url + path, **bearer(token))[0] for path in paths] == [404] * 4
    assert get_nothing(url, **bearer(token), host="evil.com")[0] == 421
    assert get_nothing(url, **bearer(token), origin="http://evil.com")[0] == 403
    assert get(f"{url}/mcp", **bearer(token))[0] == 405
    for headers, content, status in (({}, b"{}", 415), (json, b" " * 2_000_000, 413)):
        answer = httpx2.post(
            f"{url}/mcp", headers={**bearer(token), **headers}, content=content, timeout=LIMIT_S
        )
        assert answer.status_code == status
        assert answer.json().keys() == {"error", "message"}


def test_settings_show_the_door_as_soon_as_it_is_open(home: Home) -> None:
    home.start_daemon()
    before = home.ok("config", "get", "http", "--json").json

    check_output(run_as_person(home, "up", "--http", "127.0.0.1:0"))

    shown = home.ok("config", "get", "http", "--json").json
    assert (before["value"], before["from"]) == ("", "default")
    assert (shown["value"], shown["from"]) == ("127.0.0.1:0", "file")
    assert "next" not in shown
    assert 'http = "127.0.0.1:0" (file)' in home.ok("config", "list").out


@pytest.mark.parametrize(
    ("content", "code", "sentence"),
    [
        (b"{", -32700, "the body is not JSON: send one JSON-RPC message per body"),
        (b"{}", -32600, "the body is not a JSON-RPC 2.0 message"),
        (b'{"id":7}', -32600, "the body is not a JSON-RPC 2.0 message"),
        (rb'{"id":7,"a":"\ud800"}', -32602, HALF_PAIR),
    ],
)
def test_bad_json_rpc_is_answered_with_one_sentence(
    url: str, token: str, content: bytes, code: int, sentence: str
) -> None:
    headers = {
        **bearer(token),
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
    }

    answer = httpx2.post(f"{url}/mcp", headers=headers, content=content, timeout=LIMIT_S)

    assert (answer.status_code, answer.json()["error"]) == (400, {"code": code, "message": sentence})
    assert answer.json()["id"] == (7 if b"7" in content else None)


@both_generations
async def test_tools_are_the_same_and_use_the_identity_of_the_token(
    open_bus: Home, url: str, token: str, is_modern: bool
) -> None:
    folder = open_bus.path.parent / "work"
    folder.mkdir()
    nova = open_bus.shell()
    nova.ok("join", "--name", "nova")

    async with over_http(url, token, is_modern=is_modern) as model:
        joined = await model.ok("join_path", context_path=str(folder))
        room = joined["room_id"]
        nova.ok("room", "join", str(folder))
        turn = await model.ok("wait_for_turn", room_id=room)
        await model.ok("send_message", room_id=room, body="over HTTP", to_agent_id="nova")
        waiting = asyncio.create_task(model.ok("wait_for_events", room_id=room, event_type="message_sent"))
        nova.ok("send", f"#{room}", "--", "heard")
        heard = await waiting

    assert joined["agent_id"] == "luna"
    assert turn["status"] == "your_turn"
    assert nova.ok("recv", "--json").json["from"] == "luna"
    assert [event["from_agent_id"] for event in heard["events"]] == ["nova"]


@both_generations
async def test_relative_path_is_refused_over_http(url: str, token: str, is_modern: bool) -> None:
    async with over_http(url, token, is_modern=is_modern) as model:
        refused = await model.ask("join_path", context_path=".")

    assert refused["error"] == "bad_request"


@both_generations
async def test_restart_of_the_bus_does_not_end_a_session(
    open_bus: Home, url: str, token: str, is_modern: bool
) -> None:
    write_settings(open_bus, http=url.removeprefix("http://"))
    async with over_http(url, token, is_modern=is_modern) as model:
        before = await model.ok("list_agents")

        open_bus.kill()
        open_bus.ok("up")

        after = await model.ok("list_agents")
    assert [agent["name"] for agent in after["agents"]] == [agent["name"] for agent in before["agents"]]


@both_generations
async def test_cancelled_call_stops_waiting(open_bus: Home, url: str, token: str, is_modern: bool) -> None:
    folder = open_bus.path.parent / "work"
    folder.mkdir()
    nova = open_bus.shell()
    nova.ok("join", "--name", "nova")
    nova.ok("room", "join", str(folder))
    nova.ok("stick", "claim", "--room", "work")

    def waits() -> bool:
        members = nova.ok("room", "state", "work", "--json").json["members"]
        return any(member["waiting"] for member in members)

    async with over_http(url, token, is_modern=is_modern) as model:
        await model.ok("join_path", context_path=str(folder))
        waiting = asyncio.create_task(model.ask("wait_for_turn", room_id="work"))
        await asyncio.to_thread(wait_until, waits)

        waiting.cancel()

        await asyncio.to_thread(wait_until, lambda: not waits())


@both_generations
async def test_waiting_call_over_http_reports_its_progress(
    open_bus: Home, url: str, token: str, is_modern: bool
) -> None:
    folder = open_bus.path.parent / "work"
    folder.mkdir()
    reports: asyncio.Queue[float] = asyncio.Queue()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reports.put_nowait(progress)

    async with over_http(url, token, is_modern=is_modern) as model:
        room = (await model.ok("join_path", context_path=str(folder)))["room_id"]
        waiting = asyncio.create_task(
            model.session.call_tool("wait_for_events", {"room_id": room}, progress_callback=on_progress)
        )
        async with asyncio.timeout(LIMIT_S):
            assert await reports.get() == 0
        await model.ok("send_message", room_id=room, body="a note to myself", to_agent_id="luna")

        assert "a note to myself" in str(await waiting)


def end_agent(home: Home, shell: Shell, name: str) -> None:
    """End the process of an agent, and wait until the bus has noticed."""
    shell.close()
    wait_until(lambda: any(event["from"] == name for event in home.events("--type", "agent.bye")))


async def test_agent_that_waits_over_http_is_present_and_can_get_the_stick(
    open_bus: Home, url: str, agent_token: tuple[Shell, str]
) -> None:
    luna, token = agent_token
    folder = open_bus.path.parent / "work"
    folder.mkdir()
    nova = open_bus.shell()
    nova.ok("join", "--name", "nova")
    nova.ok("room", "join", str(folder))
    nova.ok("stick", "claim", "--room", "work")

    def is_waiting() -> bool:
        members = nova.ok("room", "state", "--room", "work", "--json").json["members"]
        return any(one["waiting"] and one["present"] and one["agent_id"] == "luna" for one in members)

    async with over_http(url, token, is_modern=True) as model:
        await asyncio.to_thread(end_agent, open_bus, luna, "luna")
        await model.ok("join_path", context_path=str(folder))
        waiting = asyncio.create_task(model.ok("wait_for_turn", room_id="work"))
        await asyncio.to_thread(wait_until, is_waiting)

        nova.ok("stick", "pass", "luna", "--room", "work", "--status", "done", "--next", "review")
        turn = await waiting

    assert (turn["status"], turn["reason"]) == ("your_turn", "direct_pass")


async def test_token_is_valid_after_the_process_of_its_agent_has_ended(
    open_bus: Home, url: str, agent_token: tuple[Shell, str]
) -> None:
    luna, token = agent_token
    async with over_http(url, token, is_modern=True) as model:
        await asyncio.to_thread(end_agent, open_bus, luna, "luna")

        await model.ok("send", to="@human", text="still here")

    (event,) = open_bus.events("--type", "message")
    assert event["from"] == "luna"


def test_http_libraries_are_not_loaded_before_use(home: Home) -> None:
    home.ok("up")

    assert "pydantic_core" not in Path(f"/proc/{home.pid}/maps").read_text()
