"""Numbers of real daemons: with 'pal status --stats', and over HTTP for a token."""

import httpx2
import pytest
from tests.daemon.stage import Home, JsonLine, run_as_person, write_settings
from tests.limits import LIMIT_S
from tests.services.metric_stage import parse_openmetrics

from palaver.doors.http.listening import MEDIA_TYPE


@pytest.fixture
def bus(home: Home) -> Home:
    """A bus whose numbers are served at a free port."""
    write_settings(home, http="127.0.0.1:0", metrics=1)
    home.start_daemon()
    return home


def get(home: Home, token: str = "", path: str = "/metrics") -> httpx2.Response:
    url = home.ok("status", "--json").json["doors"]["http"]
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return httpx2.get(f"{url}{path}", headers=headers, timeout=LIMIT_S)


def observer(home: Home) -> str:
    return run_as_person(home, "agent", "register", "prometheus", "--role", "observer").out.strip()


def stats(home: Home) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Return the numbers of 'pal status --stats', by family and labels."""
    families: list[JsonLine] = home.ok("status", "--stats", "--json").json["families"]
    return {
        family["metric"]: {tuple(one["labels"].items()): one["value"] for one in family["samples"]}
        for family in families
    }


def exchange(home: Home) -> None:
    """Let two agents talk, and one ask the person."""
    luna, nova = home.shell(), home.shell()
    luna.ok("join", "--name", "luna")
    nova.ok("join", "--name", "nova")
    luna.ok("send", "@nova", "--intent", "request", "--", "a secret question")
    message = nova.ok("recv", "--json").lines[0]["seq"]
    nova.ok("send", "--reply-to", str(message), "--", "a secret reply")
    luna.ok("send", "@human", "--intent", "request", "--", "a secret request")


def test_observer_reads_the_same_numbers_as_the_command_prints(bus: Home) -> None:
    token = observer(bus)
    exchange(bus)

    answer = get(bus, token)
    printed = stats(bus)

    assert (answer.status_code, answer.headers["content-type"]) == (200, MEDIA_TYPE)
    found = {family.name: family for family in parse_openmetrics(answer.text)}
    assert set(found) == set(printed)
    for name in ("palaver_messages", "palaver_deliveries", "palaver_agents", "palaver_attention"):
        samples = {tuple(one.labels.items()): one.value for one in found[name].samples}
        assert samples == printed[name], name
    assert printed["palaver_messages"] == {(("priority", "normal"),): 3}
    assert printed["palaver_attention"] == {(("kind", "request"),): 1}
    assert "secret" not in answer.text
    assert "luna" not in answer.text


def test_numbers_are_refused_without_a_token_or_while_they_are_off(bus: Home) -> None:
    token = observer(bus)
    run_as_person(bus, "config", "set", "metrics", "0")

    off, nameless, wrong = get(bus, token), get(bus), get(bus, "pal_wrong")

    assert (off.status_code, off.json()["error"]) == (404, "not_found")
    assert "pal config set metrics 1" in off.json()["message"]
    assert (nameless.status_code, wrong.status_code) == (401, 401)


def test_setting_acts_at_once(bus: Home) -> None:
    token = observer(bus)
    run_as_person(bus, "config", "set", "metrics", "0")
    run_as_person(bus, "config", "set", "metrics", "1")
    run_as_person(bus, "config", "set", "metrics_names", "1")
    bus.shell().ok("join", "--name", "luna")

    assert 'palaver_agent_state{agent="luna",state="idle"} 1' in get(bus, token).text


def test_agent_cannot_turn_the_numbers_on(home: Home) -> None:
    home.start_daemon()
    luna = home.shell()
    luna.ok("join", "--name", "luna")

    for key, value in (("metrics", "1"), ("otel_endpoint", "http://127.0.0.1:1"), ("notify_command", "sh")):
        refused = luna.pal("config", "set", key, value)
        assert refused.status == 1
        assert "requires a person" in refused.err


def test_other_methods_are_refused(bus: Home) -> None:
    token = observer(bus)
    url = bus.ok("status", "--json").json["doors"]["http"]

    answer = httpx2.post(
        f"{url}/metrics", json={}, headers={"authorization": f"Bearer {token}"}, timeout=LIMIT_S
    )

    assert answer.status_code == 405


def test_numbers_for_people_are_lines(bus: Home) -> None:
    exchange(bus)

    out = bus.ok("status", "--stats").out

    assert "Messages by priority." in out
    assert "seen, recv, normal" in out
    assert "secret" not in out
    assert "luna" not in out


def test_numbers_survive_a_restart(bus: Home) -> None:
    exchange(bus)
    before = stats(bus)
    bus.ok("down")
    bus.ok("up")

    after = stats(bus)

    for name in ("palaver_messages", "palaver_deliveries", "palaver_answered_seconds"):
        assert after[name] == before[name]


def test_numbers_of_one_agent_are_not_offered(bus: Home) -> None:
    refused = bus.pal("status", "luna", "--stats")

    assert (refused.status, "without a name" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("notify", "loud", "bell, osc9, osc777 or off"),
        ("notify_command", "'unclosed", "a command with its arguments"),
        ("otel_endpoint", "127.0.0.1:4318", "a URL such as http://127.0.0.1:4318"),
        ("metrics", "2", "0 or 1"),
    ],
)
def test_bad_value_of_a_setting_is_refused(home: Home, key: str, value: str, words: str) -> None:
    home.start_daemon()

    refused = run_as_person(home, "config", "set", key, value)

    assert (refused.status, words in refused.err) == (1, True)
