"""Settings on the command line: shown to all callers, changed by a person, in effect at once or said so."""

import tomllib
from pathlib import Path

import pytest
from tests.daemon.stage import Home, check_output, run_as_person, run_script_as_person

from palaver.config import DEFAULTS, KEYS, NEXT_START


def of_file(home: Home) -> dict[str, object]:
    return tomllib.loads((home.path / "config.toml").read_text())


def test_list_shows_every_setting_with_value_origin_and_meaning(home: Home) -> None:
    home.path.mkdir(mode=0o700)
    (home.path / "config.toml").write_text("brake_hops = 7\n")
    home.ok("up", env={"PALAVER_LOG_LEVEL": "debug"})

    shown = {line["key"]: line for line in home.ok("config", "list", "--json").lines}
    text = home.ok("config", "list").out

    assert list(shown) == list(KEYS)
    assert (shown["brake_hops"]["value"], shown["brake_hops"]["from"]) == (7, "file")
    assert (shown["log_level"]["value"], shown["log_level"]["from"]) == ("debug", "environment")
    assert (shown["hints"]["value"], shown["hints"]["from"]) == ("", "default")
    assert 'log_level = "debug" (environment)' in text
    assert all(line["meaning"] in text.replace("\n    ", " ") for line in shown.values())


def test_set_changes_one_setting_and_keeps_the_rest_of_the_file(bus: Home) -> None:
    (bus.path / "config.toml").write_text('# mine\nlog_level = "info"  # quiet\nbrake_hops = 9 # few\n')

    result = check_output(run_as_person(bus, "config", "set", "log_level", "debug"))

    assert result.out == 'log_level = "debug"\ntakes effect now\n'
    assert (bus.path / "config.toml").read_text() == (
        '# mine\nlog_level = "debug"  # quiet\nbrake_hops = 9 # few\n'
    )


def test_change_is_logged_and_takes_effect_at_once(bus: Home) -> None:
    changed = check_output(run_as_person(bus, "config", "set", "brake_hops", "9", "--json")).json

    (event,) = bus.events("--type", "setting.changed")
    shown = bus.ok("config", "get", "brake_hops", "--json").json
    assert changed == {"key": "brake_hops", "value": 9, "old": 40, "takes_effect": "now"}
    assert (event["from"], event["payload"]) == ("human", {"key": "brake_hops", "value": 9, "old": 40})
    assert (shown["value"], shown["from"]) == (9, "file")
    assert "next" not in shown
    bus.ok("down")
    bus.ok("up")
    assert bus.ok("config", "get", "brake_hops").out == "9\n"


@pytest.mark.parametrize("key", sorted(key for key in NEXT_START if isinstance(DEFAULTS[key], int)))
def test_setting_for_the_next_start_says_so(bus: Home, key: str) -> None:
    before, value = bus.ok("config", "get", key).out, 1 if key.endswith("_remote") else 3000

    result = check_output(run_as_person(bus, "config", "set", key, str(value)))
    noted = bus.ok("config", "list", "--json").lines
    after = bus.ok("config", "get", key)

    assert result.out == f"{key} = {value}\ntakes effect when the bus starts again: pal down, pal up\n"
    assert after.out == before
    assert f"it will be {value}" in after.err
    assert [line["next"] for line in noted if "next" in line] == [value]
    bus.ok("down")
    bus.ok("up")
    shown = bus.ok("config", "get", key)
    assert (shown.out, shown.err) == (f"{value}\n", "")


def test_running_bus_follows_changed_settings(bus: Home) -> None:
    nova = bus.shell({"CLAUDECODE": "1"})
    nova.ok("join", "--name", "nova", "--harness", "claude")
    luna = bus.shell()
    luna.ok("join", "--name", "luna")
    nova.ok("status", "set", "active")
    bus.ok("send", "@luna", "--", "hello")

    check_output(run_as_person(bus, "config", "set", "hints", "answer in English"))
    check_output(run_as_person(bus, "config", "set", "brake_per_minute", "1"))
    check_output(run_as_person(bus, "config", "set", "room_message_bytes", "5"))
    check_output(run_as_person(bus, "config", "set", "log_level", "debug"))

    assert "(pal: answer in English)" in luna.pal("recv", env={"CLAUDECODE": "1"}).out
    nova.ok("send", "@luna", "--", "one")
    assert "more than 1 message a minute" in nova.pal("send", "@luna", "--", "two").err
    folder = bus.path.parent / "shop"
    (folder / ".git").mkdir(parents=True)
    refused = luna.begin_script(f"cd {folder} && pal room join && pal send room -- too long").end()
    assert "5" in refused.err
    assert refused.status == 1


def test_unset_and_default_return_to_the_default(bus: Home) -> None:
    (bus.path / "config.toml").write_text("# mine\nbrake_hops = 9 # few\nstale_after_s = 7\n")
    bus.ok("down")
    bus.ok("up")

    unset = check_output(run_as_person(bus, "config", "unset", "brake_hops"))
    default = check_output(run_as_person(bus, "config", "set", "stale_after_s", "--default", "--json")).json
    again = check_output(run_as_person(bus, "config", "unset", "brake_hops"))

    assert unset.out == again.out == "brake_hops = 40\ntakes effect now\n"
    assert default == {"key": "stale_after_s", "value": 1800, "old": 7, "takes_effect": "now"}
    assert (bus.path / "config.toml").read_text() == "# mine\n"
    shown = {line["key"]: line for line in bus.ok("config", "list", "--json").lines}
    assert (shown["brake_hops"]["value"], shown["brake_hops"]["from"]) == (40, "default")
    assert (shown["stale_after_s"]["value"], shown["stale_after_s"]["from"]) == (1800, "default")


def test_default_of_a_setting_is_shown(bus: Home) -> None:
    check_output(run_as_person(bus, "config", "set", "brake_hops", "9"))

    assert bus.ok("config", "get", "brake_hops", "--default").out == "40\n"
    assert bus.ok("config", "get", "brake_hops", "--default", "--json").json["from"] == "default"


@pytest.mark.parametrize("words", [("set", "brake_hops"), ("set", "brake_hops", "1", "--default")])
def test_value_or_default_is_given(bus: Home, words: tuple[str, ...]) -> None:
    assert run_as_person(bus, "config", *words).status == 2


# Settings of one agent


def test_hints_of_one_agent_replace_those_of_the_bus(bus: Home) -> None:
    luna, nova = bus.shell(), bus.shell()
    luna.ok("join", "--name", "luna")
    nova.ok("join", "--name", "nova")
    check_output(run_as_person(bus, "config", "set", "hints", "answer in English"))

    result = check_output(run_as_person(bus, "config", "set", "hints", "answer in German", "--agent", "luna"))
    bus.ok("send", "@luna", "@nova", "--", "hello")
    read = [shell.pal("recv", env={"CLAUDECODE": "1"}).out for shell in (luna, nova)]

    assert result.out == 'luna: hints = "answer in German"\ntakes effect now\n'
    assert "(pal: answer in German)" in read[0]
    assert "English" not in read[0]
    assert "(pal: answer in English)" in read[1]
    check_output(run_as_person(bus, "config", "unset", "hints", "--agent", "luna"))
    bus.ok("send", "@luna", "--", "hello")
    assert "(pal: answer in English)" in luna.pal("recv", env={"CLAUDECODE": "1"}).out


def test_tag_and_delivery_of_one_agent(bus: Home) -> None:
    luna = bus.shell()
    luna.ok("join", "--name", "luna")

    tagged = check_output(run_as_person(bus, "config", "set", "tag", "api", "--agent", "luna", "--json")).json
    check_output(run_as_person(bus, "config", "set", "delivery", "interrupts", "--agent", "luna"))

    (agent,) = bus.ok("list", "--json").lines
    shown = {line["key"]: line for line in bus.ok("config", "list", "--agent", "luna", "--json").lines}
    text = bus.ok("config", "list", "--agent", "luna").out
    assert tagged == {"agent": "luna", "key": "tag", "value": "api", "old": "", "takes_effect": "now"}
    assert (agent["tag"], agent["paused"]) == ("api", True)
    assert [(key, line["value"], line["from"]) for key, line in shown.items()] == [
        ("hints", "", "default"),
        ("tag", "api", "agent"),
        ("delivery", "interrupts", "agent"),
    ]
    assert 'delivery = "interrupts" (agent)' in text
    check_output(run_as_person(bus, "config", "unset", "delivery", "--agent", "luna"))
    assert bus.ok("config", "get", "delivery", "--agent", "luna").out == "all\n"
    assert [event["type"] for event in bus.events("--type", "agent.paused", "--type", "agent.unpaused")] == [
        "agent.paused",
        "agent.unpaused",
    ]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("set", "brake_hops", "1", "--agent", "luna"), "belongs to the bus: leave out --agent"),
        (("set", "tag", "api"), "belongs to one agent: add --agent NAME"),
        (("get", "delivery"), "belongs to one agent: add --agent NAME"),
        (("set", "delivery", "some", "--agent", "luna"), "must be all or interrupts"),
        (("set", "colour", "red", "--agent", "luna"), "there is no setting 'colour'"),
        (("unset", "colour"), "there is no setting 'colour'"),
        (("get", "hints", "--agent", "nobody"), "agent nobody"),
    ],
)
def test_setting_of_the_wrong_owner_is_refused(bus: Home, words: tuple[str, ...], sentence: str) -> None:
    luna = bus.shell()
    luna.ok("join", "--name", "luna")

    refused = run_as_person(bus, "config", *words)

    assert refused.status == 1
    assert sentence in refused.err


def test_environment_overrides_a_setting_and_set_reports_it(home: Home) -> None:
    home.ok("up", env={"PALAVER_STALE_AFTER_S": "5"})

    result = check_output(run_as_person(home, "config", "set", "stale_after_s", "9"))
    shown = home.ok("config", "get", "stale_after_s", "--json").json

    assert "PALAVER_STALE_AFTER_S" in result.err
    assert (shown["value"], shown["from"]) == (5, "environment")
    assert "next" not in shown


def test_only_a_person_changes_settings(bus: Home) -> None:
    nova = bus.shell()
    nova.ok("join", "--name", "nova")

    refused = [
        asking.pal("config", *words, "--json")
        for asking in (bus, nova)
        for words in (("set", "brake_hops", "0"), ("unset", "brake_hops"), ("edit",), ("reload",))
    ]

    assert {one.error["error"] for one in refused} == {"not_allowed"}
    assert not (bus.path / "config.toml").exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("colour", "red"),
        ("brake_hops", "many"),
        ("hints", "\x1b[2J"),
        ("hints", "x" * 1001),
        ("log_level", "x"),
    ],
)
def test_invalid_value_is_refused_and_nothing_is_written(bus: Home, key: str, value: str) -> None:
    refused = run_as_person(bus, "config", "set", key, value, "--json")

    assert refused.status == 1
    assert key in refused.error["message"]
    assert not (bus.path / "config.toml").exists()
    assert bus.events("--type", "setting.changed") == []


def test_unusable_file_is_not_changed_and_list_reports_it(bus: Home) -> None:
    (bus.path / "config.toml").write_text("colour = [")

    refused = run_as_person(bus, "config", "set", "brake_hops", "1")
    shown = bus.ok("config", "list")

    assert refused.status == 1
    assert (bus.path / "config.toml").read_text() == "colour = ["
    assert "the bus would not start again" in shown.err
    assert "brake_hops = 40 (default)" in shown.out


@pytest.mark.parametrize("words", [("set", "brake_hops", "30"), ("unset", "brake_hops")])
def test_invalid_value_in_the_file_can_be_replaced(bus: Home, words: tuple[str, ...]) -> None:
    (bus.path / "config.toml").write_text('brake_hops = "few"\n')

    changed = check_output(run_as_person(bus, "config", *words, "--json")).json

    assert changed["old"] == "few"
    assert of_file(bus) == ({"brake_hops": 30} if words[0] == "set" else {})


def test_unknown_key_cannot_be_shown(bus: Home) -> None:
    refused = bus.pal("config", "get", "colour")

    assert refused.status == 1
    assert "there is no setting 'colour'" in refused.err


def test_editor_runs_in_the_process_of_the_person(bus: Home) -> None:
    script = Path(bus.path.parent) / "editor.sh"
    script.write_text('#!/bin/sh\necho "$MINE" >"$0.said"\necho "brake_hops = 3" >>"$1"\n')
    script.chmod(0o700)

    ended = run_script_as_person(bus, f"MINE=yes EDITOR={script} pal config edit")

    assert (ended.status, ended.out) == (0, "takes effect now: brake_hops\n")
    assert bus.ok("config", "get", "brake_hops").out == "3\n"
    assert Path(f"{script}.said").read_text() == "yes\n"
    assert of_file(bus) == {"brake_hops": 3}


def test_completion_lists_settings(bus: Home) -> None:
    assert bus.ok("__complete", "--", "config", "get", "brake_").out.split() == [
        "brake_hops",
        "brake_per_minute",
    ]
