"""The IRC door's switch, names that log in, codes and verbosity, with real daemons and the real client."""

import socket
from collections.abc import Iterator

import pytest
from tests.daemon.stage import Home, Shell, check_output, run_as_person, run_script_as_person

# The switch


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def doors(home: Home) -> dict[str, str]:
    found: dict[str, str] = home.ok("status", "--json").json["doors"]
    return found


def port_of(url: str) -> int:
    assert url.startswith("irc://127.0.0.1:")
    return int(url.rpartition(":")[2])


def test_person_opens_and_closes_the_irc_door_permanently(bus: Home) -> None:
    opened = check_output(run_as_person(bus, "up", "--irc", "127.0.0.1:0"))
    first = doors(bus)["irc"]
    assert first in opened.out
    assert f"irc {first}" in bus.ok("status").out
    socket.create_connection(("127.0.0.1", port_of(first))).close()

    bus.kill()
    assert "irc" in doors(bus)

    check_output(run_as_person(bus, "up", "--no-irc"))
    assert set(doors(bus)) == {"unix"}
    changed = [event["payload"]["key"] for event in bus.events("--type", "setting.changed")]
    assert changed == ["irc", "irc"]


def test_both_doors_open_with_one_command(bus: Home) -> None:
    check_output(run_as_person(bus, "up", "--http", "127.0.0.1:0", "--irc", "127.0.0.1:0"))

    checks = [one["check"] for one in bus.pal("doctor", "--json").lines if one["kind"] == "check"]
    assert set(doors(bus)) == {"unix", "http", "irc"}
    assert f"IRC at {doors(bus)['irc']}" in checks
    assert f"HTTP at {doors(bus)['http']}" in checks


def test_port_in_use_is_reported_and_stops_nothing(home: Home, taken_port: int) -> None:
    (home.path).mkdir(mode=0o700, exist_ok=True)
    (home.path / "config.toml").write_text(f'irc = "127.0.0.1:{taken_port}"\n')

    up = home.ok("up")

    sentence = f"the IRC door cannot listen at 127.0.0.1:{taken_port}"
    assert sentence in up.err
    assert "pal up --irc HOST:PORT" in up.err
    assert sentence in doors(home)["irc"]
    failed = [one["check"] for one in home.pal("doctor", "--json").lines if not one.get("ok", True)]
    assert [one for one in failed if sentence in one]
    home.ok("send", "@human", "--", "the bus runs")


def test_open_door_stays_open_when_the_next_port_is_in_use(bus: Home, taken_port: int) -> None:
    check_output(run_as_person(bus, "up", "--irc", "127.0.0.1:0"))
    before = doors(bus)["irc"]

    refused = run_as_person(bus, "up", "--irc", f"127.0.0.1:{taken_port}", "--json")

    assert (refused.status, refused.error["error"]) == (1, "door_shut")
    assert doors(bus)["irc"] == before
    assert doors(bus)["irc_problem"] in bus.ok("status").out
    assert bus.ok("config", "get", "irc", "--json").json["problem"] == doors(bus)["irc_problem"]


def test_other_machines_need_the_option_and_a_certificate(bus: Home) -> None:
    without = run_as_person(bus, "up", "--irc", "0.0.0.0:0")
    plain = run_as_person(bus, "up", "--irc", "0.0.0.0:0", "--irc-remote")

    assert (without.status, "--irc-remote" in without.err) == (1, True)
    assert (plain.status, "irc_tls_cert" in plain.err) == (1, True)
    assert set(doors(bus)) <= {"unix", "irc"}
    assert "irc_remote" not in (
        (bus.path / "config.toml").read_text() if (bus.path / "config.toml").exists() else ""
    )


@pytest.mark.parametrize("words", [("--irc-remote",), ("--irc", "x y"), ("--irc", "--no-irc")])
def test_invalid_options_change_nothing(bus: Home, words: tuple[str, ...]) -> None:
    refused = run_as_person(bus, "up", *words)

    assert refused.status in (1, 2)
    assert not (bus.path / "config.toml").exists()


# Names that log in


@pytest.fixture
def nova(bus: Home) -> Shell:
    shell = bus.shell()
    shell.ok("join", "--name", "nova")
    return shell


def test_registered_agent_has_a_token_that_is_shown_once(bus: Home) -> None:
    made = bus.ok("agent", "register", "scout", "--json").json

    assert (made["name"], made["role"], made["standing"]) == ("scout", "worker", "worker")
    assert made["token"] not in (bus.path / "tokens.json").read_text()
    (line,) = bus.ok("agent", "list", "--json").lines
    assert line == {
        "agent": "scout",
        "name": "scout",
        "role": "worker",
        "online": False,
        "last_seen": None,
        "registered": True,
    }
    assert "never" in bus.ok("agent", "list").out
    assert bus.ok("status", "scout", "--json").json["present"] is False


def test_token_alone_is_printed_on_standard_output(bus: Home) -> None:
    made = bus.ok("agent", "register", "scout")

    assert made.out.startswith("pal_")
    assert made.out.count("\n") == 1
    assert "shown only now" in made.err
    assert "pal up --irc" in made.err


@pytest.mark.parametrize("words", [("--role", "operator"), ("--role", "orchestrator"), ("--person",)])
def test_role_above_worker_and_persons_need_a_person(bus: Home, nova: Shell, words: tuple[str, ...]) -> None:
    for refused in (
        bus.pal("agent", "register", "scout", *words, "--json"),
        nova.pal("agent", "register", "scout", *words, "--json"),
    ):
        assert (refused.status, refused.error["error"]) in [(1, "not_person"), (1, "not_allowed")]

    made = check_output(run_as_person(bus, "agent", "register", "scout", *words, "--json")).json
    assert made["role"] == (words[1] if len(words) == 2 else "guest")


def test_name_in_use_cannot_be_registered(bus: Home, nova: Shell) -> None:
    refused = run_as_person(bus, "agent", "register", "nova", "--json")

    assert refused.error["error"] == "name_taken"
    assert "pal token create nova" in refused.error["message"]


@pytest.mark.parametrize("name", ["human", "all", "worker", "claude", "pal", "x y", "Übung", "luna:BOXE"])
def test_reserved_and_invalid_names_cannot_be_registered(bus: Home, name: str) -> None:
    refused = run_as_person(bus, "agent", "register", name, "--json")

    assert (refused.status, refused.error["error"]) == (1, "bad_name")


def test_only_the_registrar_the_agent_and_a_person_rotate_and_revoke(bus: Home, nova: Shell) -> None:
    first = nova.ok("agent", "register", "scout", "--json").json["token"]
    luna = bus.shell()
    luna.ok("join", "--name", "luna")

    for verb in ("rotate", "revoke"):
        for refused in (
            luna.pal("agent", verb, "scout", "--json"),
            bus.pal("agent", verb, "scout", "--json"),
        ):
            assert (refused.status, refused.error["error"]) == (1, "not_allowed")
    second = nova.ok("agent", "rotate", "scout", "--json").json["token"]
    third = check_output(run_as_person(bus, "agent", "rotate", "scout", "--json")).json["token"]

    assert len({first, second, third}) == 3
    assert bus.ok("token", "list").out.count("scout") == 1
    assert nova.ok("agent", "revoke", "scout", "--json").json["revoked"] == 1
    assert "no name can log in" in bus.ok("agent", "list").out
    assert run_as_person(bus, "agent", "rotate", "scout", "--json").error["error"] == "not_found"


def test_revoked_name_can_be_registered_again_by_a_person(bus: Home) -> None:
    check_output(run_as_person(bus, "agent", "register", "ann", "--person"))
    again = run_as_person(bus, "agent", "register", "ann", "--person", "--json")
    assert "pal agent rotate ann" in again.error["message"]

    check_output(run_as_person(bus, "agent", "revoke", "ann"))

    assert check_output(run_as_person(bus, "agent", "register", "ann", "--person", "--json")).json["token"]


def test_registered_person_has_no_other_token(bus: Home) -> None:
    check_output(run_as_person(bus, "agent", "register", "ann", "--person"))

    refused = run_as_person(bus, "token", "create", "ann", "--json")

    assert "pal agent rotate ann" in refused.error["message"]


def test_registered_name_is_completed(bus: Home) -> None:
    bus.ok("agent", "register", "scout")

    assert "scout" in bus.ok("__complete", "--", "agent", "rotate", "").out


def test_script_cannot_act_as_a_registered_person(bus: Home) -> None:
    check_output(run_as_person(bus, "agent", "register", "ann", "--person"))

    for words in (("send", "--as", "ann", "@human", "--", "hi"), ("join", "--as", "ann")):
        refused = bus.pal(*words, "--json")
        assert refused.status == 1, words


# Codes


def test_person_gets_a_new_code_each_time(bus: Home) -> None:
    first, second = (check_output(run_as_person(bus, "irc", "code", "--json")).json for _ in range(2))

    assert first["name"] == "human"
    assert first["code"] != second["code"]
    files = [path for path in bus.path.rglob("*") if path.is_file()]
    assert not [path for path in files if first["code"].encode() in path.read_bytes()]


def test_only_a_person_gets_a_code(bus: Home, nova: Shell) -> None:
    refused = [
        bus.pal("irc", "code", "--json"),
        nova.pal("irc", "code", "--json"),
        run_as_person(bus, "irc", "code", "--as", "nova", "--json"),
        run_script_as_person(bus, "pal irc code --json", env={"CLAUDECODE": "1"}),
    ]

    assert [one.error["error"] in ("not_allowed", "not_person") for one in refused] == [True] * 4


# Verbosity


def test_verbosity_is_set_by_a_person_and_shown_to_all(bus: Home, nova: Shell) -> None:
    assert nova.pal("irc", "verbosity", "#general", "full", "--json").error["error"] == "not_allowed"
    assert bus.ok("irc", "verbosity", "#general").out == "#general minimal\n"

    check_output(run_as_person(bus, "irc", "verbosity", "#General", "debug"))
    bus.kill()

    assert bus.ok("irc", "verbosity", "#GENERAL").out == "#general debug\n"
    assert bus.ok("irc", "verbosity").out == "#general debug\n#agent-* full\n#* actions\n"
    assert bus.pal("irc", "verbosity", "general").status == 2
